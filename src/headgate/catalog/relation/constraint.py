"""Create CHECK constraints, and rename constraints of any kind: rows of pg_constraint.

Called by `definition` for the checks of a new table and by the commands on constraints, inside their transaction. Keys are created by
`index`, foreign keys by `foreign_key`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog.physical import Cursor, Oids, insert, one, rows, run, update
from headgate.catalog.pretty import pretty
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.object_name import free_name, require_free
from headgate.catalog.relation.relation import Relation
from headgate.errors import PostgresError, existing


@dataclass(frozen=True)
class NewCheck:
    """A new CHECK constraint. `expression` is as pg_get_expr prints it. `validated` is False for NOT VALID."""

    expression: str
    name: str | None = None
    attnums: tuple[int, ...] = ()
    validated: bool = True
    no_inherit: bool = False


def used_names(cursor: Cursor, relation: Relation) -> set[str]:
    sql = "SELECT conname FROM hg.pg_constraint WHERE dbid = ? AND conrelid = ?"
    return {name for (name,) in rows(cursor, sql, [relation.database, relation.oid])}


def require_unused(cursor: Cursor, relation: Relation, name: str) -> None:
    """Raise 42710 if the table has a constraint with this name."""
    if name in used_names(cursor, relation):
        raise PostgresError("42710", f'constraint "{name}" for relation "{relation.name}" already exists')


def add_check(cursor: Cursor, oids: Oids, relation: Relation, check: NewCheck) -> int:
    """Create a CHECK constraint. Raise 42710 if the table has a constraint with that name, 42P16 for NO INHERIT if it has partitions."""
    if check.no_inherit and relation.is_partitioned:
        raise PostgresError("42P16", f'cannot add NO INHERIT constraint to partitioned table "{relation.name}"')
    column = relation.numbered(check.attnums[0]) if len(check.attnums) == 1 else None
    name = check.name or free_name(relation.name, None if column is None else column.name, "check", used_names(cursor, relation))
    if check.name:
        require_unused(cursor, relation, name)
    oid = oids()
    insert(
        cursor, "pg_constraint", dbid=relation.database, oid=oid, conname=name, connamespace=relation.namespace_oid, contype="c",
        convalidated=check.validated, conrelid=relation.oid, confupdtype=" ", confdeltype=" ", confmatchtype=" ", conislocal=True,
        conkey=list(check.attnums), conbin=check.expression, conbinpretty=pretty(check.expression), connoinherit=check.no_inherit,
    )  # fmt: skip
    run(cursor, "UPDATE hg.pg_class SET relchecks = relchecks + 1 WHERE dbid = ? AND oid = ?", [relation.database, relation.oid])
    return oid


def rename_constraint(cursor: Cursor, relation: Relation, name: str, new_name: str) -> None:
    """Rename a constraint, and the index of a key. Raise 42704 if there is none, 42710 if the new name is used."""
    row = one(
        cursor,
        "SELECT oid, CASE WHEN contype <> 'f' THEN conindid ELSE 0 END FROM hg.pg_constraint"
        " WHERE dbid = ? AND conrelid = ? AND conname = ?",
        [relation.database, relation.oid, name],
    )
    oid, index = existing(row, "42704", f'constraint "{name}" for table "{relation.name}"')
    if index:
        require_free(cursor, relation.database, relation.namespace_oid, new_name)
        update(cursor, "pg_class", {"dbid": relation.database, "oid": index}, relname=new_name)
    require_unused(cursor, relation, new_name)
    update(cursor, "pg_constraint", {"dbid": relation.database, "oid": oid}, conname=new_name)


def rename_of_index(cursor: Cursor, index: Relation, name: str) -> None:
    """Rename the constraint of a key's index, which is about to get this name. Raise 42710 if the table has another one with it."""
    sql = "SELECT oid, conrelid FROM hg.pg_constraint WHERE dbid = ? AND conindid = ? AND contype IN ('p', 'u')"
    row = one(cursor, sql, [index.database, index.oid])
    if row is not None:
        require_unused(cursor, relations.get(cursor, index.database, row[1]), name)
        update(cursor, "pg_constraint", {"dbid": index.database, "oid": row[0]}, conname=name)
