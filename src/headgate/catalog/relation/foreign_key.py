"""FOREIGN KEY constraints in the catalog: the rows of pg_constraint with contype 'f'.

`commands.table.foreign_key` has checked the constraint itself (columns, types, the unique index that it needs). The rows are checked by
`commands.constraint.referential_action`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headgate.catalog import constraint
from headgate.catalog.physical import Cursor, Oids, insert, one, rows, run, update
from headgate.catalog.relation import foreign_key_trigger, key_text, object_name
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.constraint import require_unused
from headgate.catalog.relation.relation import ForeignKey, Relation
from headgate.errors import PostgresError


def _free_name(cursor: Cursor, relation: Relation, key: ForeignKey) -> str:
    """Return a name that no constraint of the schema has."""
    sql = "SELECT conname FROM hg.pg_constraint WHERE dbid = ? AND connamespace = ?"
    used_names = [name for (name,) in rows(cursor, sql, [relation.database, relation.namespace_oid])]
    columns = "_".join(column.name for column in relation.columns_at(key.columns))
    return object_name.free_name(relation.name, columns, "fkey", used_names)


def create(cursor: Cursor, oids: Oids, relation: Relation, key: ForeignKey) -> ForeignKey:
    """Create a constraint and return it with its oid and name. An empty name is replaced. Raise 42710 if the table has the name.

    The clone for a partition of the referencing table has no actions, because those of its parent cover all partitions.
    """
    created = _insert(cursor, oids, relation, key)
    if not key.parent:
        foreign_key_trigger.create_actions(cursor, oids, relation.database, created)
    foreign_key_trigger.create_checks(cursor, oids, relation.database, created)
    return created


def create_for_target(cursor: Cursor, oids: Oids, relation: Relation, key: ForeignKey) -> ForeignKey:
    """Create the clone of a constraint for a partition of the referenced table: it has actions, and its parent has the checks."""
    created = _insert(cursor, oids, relation, replace(key, name=""))
    foreign_key_trigger.create_actions(cursor, oids, relation.database, created)
    return created


def _insert(cursor: Cursor, oids: Oids, relation: Relation, key: ForeignKey) -> ForeignKey:
    name = key.name or _free_name(cursor, relation, key)
    if key.name:
        require_unused(cursor, relation, name)
    oid = oids()
    insert(
        cursor, "pg_constraint", dbid=relation.database, oid=oid, conname=name, connamespace=relation.namespace_oid, contype="f",
        condeferrable=key.deferrable, condeferred=key.deferred, convalidated=key.validated, conrelid=relation.oid, conindid=key.index,
        confrelid=key.target, confupdtype=key.on_update, confdeltype=key.on_delete, confmatchtype=key.match, conislocal=not key.parent,
        coninhcount=int(bool(key.parent)), conparentid=key.parent, connoinherit=not key.parent and not relation.is_partitioned,
        conkey=list(key.columns), confkey=list(key.target_columns), confdelsetcols=list(key.set_columns) or None,
    )  # fmt: skip
    run(
        cursor,
        "UPDATE hg.pg_class SET relhastriggers = true WHERE dbid = ? AND oid IN (?, ?)",
        [relation.database, relation.oid, key.target],
    )
    key_text.write(cursor, relation.database, relation.oid)
    return replace(key, oid=oid, name=name)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    """Remove a constraint and its clones on partitions."""
    for clone in _clones(cursor, database, oid):
        drop(cursor, database, clone)
    constraint.delete(cursor, database, "oid = ?", [oid])


def _clones(cursor: Cursor, database: int, oid: int) -> list[int]:
    return [clone for (clone,) in rows(cursor, "SELECT oid FROM hg.pg_constraint WHERE dbid = ? AND conparentid = ?", [database, oid])]


def attach(cursor: Cursor, partition: Relation, oid: int, parent: int) -> None:
    """Make the constraint of a partition the clone of its parent's, which has the actions on partitions of the referenced table too."""
    database = partition.database
    sql = "SELECT oid FROM hg.pg_constraint WHERE dbid = ? AND conparentid = ? AND conrelid = ?"
    for (clone,) in rows(cursor, sql, [database, oid, partition.oid]):
        drop(cursor, database, clone)
    update(cursor, "pg_constraint", {"dbid": database, "oid": oid}, conparentid=parent, conislocal=False, coninhcount=1)
    foreign_key_trigger.attach(cursor, database, oid, parent)


def root_of(cursor: Cursor, relation: Relation, key: ForeignKey) -> ForeignKey:
    """Return the constraint of its table (`relation`) of which a constraint is the clone for a partition of the referenced table."""
    oid, own = key.oid, {key.oid: key for key in relation.foreign_keys}
    while oid and oid not in own:
        parent = one(cursor, "SELECT conparentid FROM hg.pg_constraint WHERE dbid = ? AND oid = ?", [relation.database, oid])
        oid = 0 if parent is None else parent[0]
    return own.get(oid, key)


def origin_of(cursor: Cursor, database: int, oid: int) -> tuple[str, int]:
    """Return the constraint of which a clone (oid) is derived, at the top: its name, and the oid of its table."""
    name, table, parent = rows(
        cursor, "SELECT conname, conrelid, conparentid FROM hg.pg_constraint WHERE dbid = ? AND oid = ?", [database, oid]
    )[0]
    return origin_of(cursor, database, parent) if parent else (name, table)


def clones_of(cursor: Cursor, relation: Relation) -> dict[str, int]:
    """Return the constraints of a table that are clones for partitions of the referenced tables: their oids by name."""
    sql = (
        "SELECT k.conname, k.oid FROM hg.pg_constraint k JOIN hg.pg_constraint p ON p.dbid = k.dbid AND p.oid = k.conparentid"
        " WHERE k.dbid = ? AND k.conrelid = ? AND k.contype = 'f' AND p.conrelid = k.conrelid"
    )
    return dict(rows(cursor, sql, [relation.database, relation.oid]))


def set_deferrable(cursor: Cursor, database: int, oid: int, *, deferrable: bool, deferred: bool) -> None:
    """Set whether a constraint and its clones on partitions are deferrable, and initially deferred."""
    for clone in _clones(cursor, database, oid):
        set_deferrable(cursor, database, clone, deferrable=deferrable, deferred=deferred)
    update(cursor, "pg_constraint", {"dbid": database, "oid": oid}, condeferrable=deferrable, condeferred=deferred)
    foreign_key_trigger.set_deferrable(cursor, database, oid, deferrable=deferrable, deferred=deferred)


def validate(cursor: Cursor, database: int, oid: int) -> None:
    update(cursor, "pg_constraint", {"dbid": database, "oid": oid}, convalidated=True)


def check_truncate(cursor: Cursor, truncated: Sequence[Relation]) -> None:
    """Raise 0A000 if a table outside `truncated` has a foreign key to one of them (heap_truncate_check_FKs)."""
    oids = {table.oid for table in truncated}
    for relation in truncated:
        for key in sorted(relation.referenced, key=lambda foreign_key: foreign_key.relation):
            if key.relation not in oids:
                referencing = relations.get(cursor, relation.database, key.relation)
                raise PostgresError(
                    "0A000",
                    "cannot truncate a table referenced in a foreign key constraint",
                    detail=f'Table "{referencing.name}" references "{relation.name}".',
                    hint=f'Truncate table "{referencing.name}" at the same time, or use TRUNCATE ... CASCADE.',
                )
