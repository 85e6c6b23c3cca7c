"""Triggers of tables: rows of pg_trigger (manual, 39).

Written by `commands.trigger.definition`, read by whatever changes rows. Foreign keys have none here: they are checked without.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, insert, rows, run
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

    @property
    def is_row(self) -> bool:
        """Whether it fires for each row."""
        return bool(self.kind & ROW)

    @property
    def is_before(self) -> bool:
        """Whether it fires before the change."""
        return bool(self.kind & BEFORE)

    def fires(self, role: str) -> bool:
        """Whether it fires in a session whose session_replication_role this is."""
        return self.enabled in ("A", "R" if role == "replica" else "O")


_COLUMNS = "oid, tgrelid, tgname, tgfoid, tgtype, tgenabled, tgattr, tgargs, tgqual, tgconstraint, tgqualpretty"


def of_relation(cursor: Cursor, database: int, relation: int) -> list[Trigger]:
    """The triggers of a table in the order in which they fire: by name."""
    sql = f"SELECT {_COLUMNS} FROM hg.pg_trigger WHERE dbid = ? AND tgrelid = ? AND NOT tgisinternal ORDER BY tgname"
    return [_read(row) for row in rows(cursor, sql, [database, relation])]


def _read(row: Row) -> Trigger:
    oid, relation, name, function, kind, enabled, columns, arguments, condition, constraint, pretty = row
    words = bytes(arguments or b"").split(b"\0")[:-1]
    return Trigger(
        oid,
        relation,
        name,
        function,
        kind,
        enabled,
        tuple(columns or ()),
        tuple(each.decode() for each in words),
        condition,
        pretty,
        bool(constraint),
    )


def write(cursor: Cursor, database: int, trigger: Trigger) -> None:
    """Makes a trigger, in place of the one with its oid if there is one."""
    drop(cursor, database, trigger.oid)
    insert(
        cursor, "pg_trigger", dbid=database, oid=trigger.oid, tgrelid=trigger.relation, tgparentid=0, tgname=trigger.name,
        tgfoid=trigger.function, tgtype=trigger.kind, tgenabled=trigger.enabled, tgisinternal=False, tgconstrrelid=0, tgconstrindid=0,
        tgconstraint=trigger.oid if trigger.is_constraint else 0, tgdeferrable=False, tginitdeferred=False, tgnargs=len(trigger.arguments),
        tgattr=list(trigger.columns), tgargs=b"".join(each.encode() + b"\0" for each in trigger.arguments), tgqual=trigger.condition,
        tgqualpretty=trigger.pretty_condition, tgargstext=", ".join(quote_literal(each) for each in trigger.arguments),
    )  # fmt: skip
    run(cursor, "UPDATE hg.pg_class SET relhastriggers = TRUE WHERE dbid = ? AND oid = ?", [database, trigger.relation])


def drop(cursor: Cursor, database: int, oid: int) -> None:
    """Removes a trigger."""
    run(cursor, "DELETE FROM hg.pg_trigger WHERE dbid = ? AND oid = ?", [database, oid])
