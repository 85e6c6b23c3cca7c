"""The column that owns a sequence: OWNED BY, serial and identity columns. The sequence is dropped together with its owner.

Called by CREATE and ALTER SEQUENCE, and by CREATE and ALTER TABLE for the sequences of columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog import hold
from headgate.catalog.physical import Cursor, insert, one, run
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS, RelationKind
from headgate.commands import lookup
from headgate.commands.session import Session
from headgate.errors import PostgresError, existing


def own(cursor: Cursor, database: int, sequence: int, table: int, attnum: int, *, identity: bool) -> None:
    """Make a column the owner of a sequence, which is dropped together with the table."""
    insert(
        cursor, "pg_depend", dbid=database, classid=1259, objid=sequence, refclassid=1259, refobjid=table, refobjsubid=attnum,
        deptype="i" if identity else "a",
    )  # fmt: skip


def use_owner(cursor: Cursor, session: Session, parts: Sequence[str]) -> None:
    """Protect the table that OWNED BY names, if it exists, from DROP and changes until the transaction ends."""
    schema = parts[-3] if len(parts) > 2 else None
    path = lookup.search_path(cursor, session.context)
    table = relations.lookup(cursor, session.context.database, schema, parts[-2], path) if len(parts) > 1 else None
    if table is not None:
        hold.use(cursor, "pg_class", table.oid)


def own_by_name(cursor: Cursor, session: Session, relation: Relation, parts: Sequence[str]) -> None:
    """OWNED BY t.c, or NONE (process_owned_by)."""
    if list(parts) == ["none"]:
        _disown(cursor, relation)
        return
    if len(parts) < 2:
        raise PostgresError("42601", "invalid OWNED BY option", hint="Specify OWNED BY table.column or OWNED BY NONE.")
    *path, column_name = parts
    schema = path[-2] if len(path) > 1 else None
    found = relations.lookup(cursor, relation.database, schema, path[-1], lookup.search_path(cursor, session.context))
    table = existing(found, "42P01", f'relation "{".".join(path)}"')
    if table.kind not in TABLE_KINDS | {RelationKind.VIEW, RelationKind.FOREIGN_TABLE}:
        raise PostgresError("42809", f'sequence cannot be owned by relation "{table.name}"')
    if table.owner != relation.owner:
        raise PostgresError("55000", "sequence must have same owner as table it is linked to")
    if table.namespace_oid != relation.namespace_oid:
        raise PostgresError("55000", "sequence must be in same schema as table it is linked to")
    column = table.existing_column(column_name)
    _disown(cursor, relation)
    own(cursor, relation.database, relation.oid, table.oid, column.attnum, identity=False)


def _disown(cursor: Cursor, relation: Relation) -> None:
    scope = "dbid = ? AND classid = 1259 AND objid = ? AND refclassid = 1259"
    table = one(cursor, f"SELECT refobjid FROM hg.pg_depend WHERE {scope} AND deptype = 'i'", [relation.database, relation.oid])
    if table is not None:
        name = relations.get(cursor, relation.database, int(table[0])).name
        detail = f'Sequence "{relation.name}" is linked to table "{name}".'
        raise PostgresError("0A000", "cannot change ownership of identity sequence", detail=detail)
    run(cursor, f"DELETE FROM hg.pg_depend WHERE {scope} AND deptype = 'a'", [relation.database, relation.oid])
