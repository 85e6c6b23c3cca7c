"""Triggers of tables: rows of pg_trigger (manual, 39).

Written by `commands.trigger.definition`, read by the commands that change rows. `foreign_key_trigger` writes those of foreign keys.

A row trigger of a partitioned table has a clone on each partition below it (`clone`). The clones fire, because partitions hold the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, delete, insert, rows, update
from headgate.catalog.relation import partition as partitions
from headgate.catalog.relation.relation import Relation, fires
from headgate.errors import PostgresError
from headgate.sql.names import quote_literal

ROW, BEFORE, INSERT, DELETE, UPDATE, TRUNCATE, INSTEAD = 1, 2, 4, 8, 16, 32, 64
"""Bits of tgtype."""
EVENTS = {INSERT: "INSERT", DELETE: "DELETE", UPDATE: "UPDATE", TRUNCATE: "TRUNCATE"}


@dataclass(frozen=True)
class Trigger:
    """A trigger. `kind`: bits of tgtype; `enabled`: ``O`` origin, ``R`` replica, ``A`` always, ``D`` never; `condition`: WHEN as text."""

    oid: int
    relation: int
    name: str
    function: int
    kind: int
    enabled: str = "O"
    columns: tuple[int, ...] = ()
    """The columns of UPDATE OF, by number."""
    arguments: tuple[str, ...] = ()
    condition: str | None = None
    pretty_condition: str | None = None
    is_constraint: bool = False
    parent: int = 0
    """The trigger of the partitioned table above that this one is a clone of (tgparentid); 0 for none."""
    deferrable: bool = False
    initially_deferred: bool = False
    old_table: str | None = None
    """The name of the transition table of old rows (tgoldtable)."""
    new_table: str | None = None
    """The name of the transition table of new rows (tgnewtable)."""
    referenced: int = 0
    """The table of FROM of a constraint trigger (tgconstrrelid); 0 for none."""

    @property
    def is_row(self) -> bool:
        return bool(self.kind & ROW)

    @property
    def is_before(self) -> bool:
        return bool(self.kind & BEFORE)

    @property
    def has_transition_tables(self) -> bool:
        """Whether its function can read the rows that the statement has changed."""
        return self.old_table is not None or self.new_table is not None

    def fires(self, role: str) -> bool:
        """Return whether it fires in a session whose session_replication_role this is."""
        return fires(self.enabled, role)


_COLUMNS = (
    "oid, tgrelid, tgname, tgfoid, tgtype, tgenabled, tgattr, tgargs, tgqual, tgqualpretty, tgconstraint, tgparentid,"
    " tgdeferrable, tginitdeferred, tgoldtable, tgnewtable, tgconstrrelid"
)


def of_relation(cursor: Cursor, database: int, relation: int) -> list[Trigger]:
    """Return the triggers of a table in the order in which they fire: by name."""
    sql = f"SELECT {_COLUMNS} FROM hg.pg_trigger WHERE dbid = ? AND tgrelid = ? AND NOT tgisinternal ORDER BY tgname"
    return [_read(row) for row in rows(cursor, sql, [database, relation])]


def any_before_statement(cursor: Cursor, database: int) -> bool:
    """Return whether a table of the database has a BEFORE STATEMENT trigger."""
    sql = f"SELECT 1 FROM hg.pg_trigger WHERE dbid = ? AND tgtype & {ROW | BEFORE} = {BEFORE} AND NOT tgisinternal LIMIT 1"
    return bool(rows(cursor, sql, [database]))


def _read(row: Row) -> Trigger:
    oid, relation, name, function, kind, enabled, columns, arguments, condition, pretty, constraint, parent, *others = row
    deferrable, deferred, old_table, new_table, referenced = others
    words = bytes(arguments or b"").split(b"\0")[:-1]
    return Trigger(
        oid, relation, name, function, kind, enabled, tuple(columns or ()), tuple(word.decode() for word in words), condition, pretty,
        is_constraint=bool(constraint), parent=int(parent or 0), deferrable=bool(deferrable),
        initially_deferred=bool(deferred), old_table=old_table, new_table=new_table, referenced=int(referenced or 0),
    )  # fmt: skip


def write(cursor: Cursor, database: int, trigger: Trigger) -> None:
    """Create a trigger, or replace the one with its oid."""
    _remove(cursor, database, trigger.oid)
    insert(
        cursor, "pg_trigger", dbid=database, oid=trigger.oid, tgrelid=trigger.relation, tgparentid=trigger.parent, tgname=trigger.name,
        tgfoid=trigger.function, tgtype=trigger.kind, tgenabled=trigger.enabled, tgisinternal=False, tgconstrindid=0,
        tgconstrrelid=trigger.referenced,
        tgconstraint=trigger.oid if trigger.is_constraint else 0, tgdeferrable=trigger.deferrable,
        tginitdeferred=trigger.initially_deferred, tgnargs=len(trigger.arguments), tgattr=list(trigger.columns),
        tgargs=b"".join(word.encode() + b"\0" for word in trigger.arguments), tgqual=trigger.condition,
        tgqualpretty=trigger.pretty_condition, tgargstext=", ".join(map(quote_literal, trigger.arguments)),
        tgoldtable=trigger.old_table, tgnewtable=trigger.new_table,
    )  # fmt: skip
    update(cursor, "pg_class", {"dbid": database, "oid": trigger.relation}, relhastriggers=True)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    drop_clones(cursor, database, oid)
    _remove(cursor, database, oid)
    delete(cursor, "pg_description", dbid=database, objoid=oid, classoid=2620)


def drop_clones(cursor: Cursor, database: int, oid: int) -> None:
    for clone_oid, _ in clones(cursor, database, oid):
        drop(cursor, database, clone_oid)


def _remove(cursor: Cursor, database: int, oid: int) -> None:
    delete(cursor, "pg_trigger", dbid=database, oid=oid)


def states(cursor: Cursor, database: int, relation: int) -> list[tuple[int, str, bool]]:
    """Return the triggers of a table, also those of foreign keys: their oids and names, and whether they are internal, by name."""
    sql = "SELECT oid, tgname, tgisinternal FROM hg.pg_trigger WHERE dbid = ? AND tgrelid = ? ORDER BY tgname"
    return [(oid, name, is_internal) for oid, name, is_internal in rows(cursor, sql, [database, relation])]


def names_of_constraint(cursor: Cursor, table: Relation, constraint: int) -> list[str]:
    """Return the names of the triggers that a foreign key (oid) has on a table."""
    sql = "SELECT tgname FROM hg.pg_trigger WHERE dbid = ? AND tgrelid = ? AND tgconstraint = ?"
    return [name for (name,) in rows(cursor, sql, [table.database, table.oid, constraint])]


def set_enabled(cursor: Cursor, database: int, oid: int, enabled: str, *, only: bool) -> None:
    """Set tgenabled of a trigger, and unless `only` that of its clones on partitions."""
    update(cursor, "pg_trigger", {"dbid": database, "oid": oid}, tgenabled=enabled)
    for clone_oid, _ in () if only else clones(cursor, database, oid):
        set_enabled(cursor, database, clone_oid, enabled, only=False)


# ---- partitions -------------------------------------------------------------------------------------------------------


def clones(cursor: Cursor, database: int, oid: int) -> list[tuple[int, int]]:
    """Return the oids of the clones of a trigger on the partitions directly below, each with that of its table."""
    return [(clone, table) for clone, table in rows(
        cursor, "SELECT oid, tgrelid FROM hg.pg_trigger WHERE dbid = ? AND tgparentid = ? ORDER BY oid", [database, oid]
    )]  # fmt: skip


def clone(
    cursor: Cursor, next_oid: Callable[[], int], trigger: Trigger, table: Relation, partition: Relation, *, replaces: bool = False
) -> None:
    """Give a partition, and the partitions below it, a clone of a row trigger of the table above (CloneRowTriggersToPartition).

    Raises 42710 if the partition has a trigger of that name, unless the clone replaces it (CREATE OR REPLACE TRIGGER).
    """
    own = next((own for own in of_relation(cursor, partition.database, partition.oid) if own.name == trigger.name), None)
    if own is not None and replaces and not own.is_constraint:
        drop(cursor, partition.database, own.oid)
    elif own is not None:
        raise PostgresError("42710", f'trigger "{trigger.name}" for relation "{partition.name}" already exists')
    names = [column.name for column in table.columns_at(trigger.columns)]
    columns = tuple(column.attnum for name in names if (column := partition.column(name)) is not None)
    cloned = replace(trigger, oid=next_oid(), relation=partition.oid, columns=columns, parent=trigger.oid)
    write(cursor, partition.database, cloned)
    clone_below(cursor, next_oid, cloned, partition, replaces=replaces)


def clone_below(cursor: Cursor, next_oid: Callable[[], int], trigger: Trigger, table: Relation, *, replaces: bool) -> None:
    """Give each partition of a partitioned table a clone of one of its row triggers."""
    if table.is_partitioned and trigger.is_row:
        for branch in partitions.load(cursor, table.database, table.oid).children:
            clone(cursor, next_oid, trigger, table, branch.relation, replaces=replaces)


def inherit(cursor: Cursor, next_oid: Callable[[], int], table: Relation, partition: Relation) -> None:
    """Give a new partition clones of the row triggers of the table above."""
    for trigger in of_relation(cursor, table.database, table.oid):
        if trigger.is_row:
            clone(cursor, next_oid, trigger, table, partition)


def disinherit(cursor: Cursor, partition: Relation) -> None:
    """Drop the clones of a partition that becomes a table of its own."""
    for trigger in of_relation(cursor, partition.database, partition.oid):
        if trigger.parent:
            drop(cursor, partition.database, trigger.oid)
