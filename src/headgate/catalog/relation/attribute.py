"""The columns of a relation: rows of pg_attribute, and of pg_attrdef for a default or generated value.

Called by `definition` and `index` for the columns of new relations, and by the commands that alter columns. A change of a column's name or
type is also applied to the table's indexes. `removal` drops columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog import physical
from headgate.catalog.physical import Cursor, Oids, insert, one, run, update
from headgate.catalog.pretty import pretty
from headgate.catalog.relation import key_text, pg_class, sequence
from headgate.catalog.relation.relation import Column, Relation
from headgate.errors import PostgresError, existing
from headgate.types import registry


def add_column(cursor: Cursor, oids: Oids, relation: Relation, column: Column) -> int:
    """Add a column and return its attnum. Raise 42701 if the name is in use."""
    if relation.column(column.name) is not None:
        raise PostgresError("42701", f'column "{column.name}" of relation "{relation.name}" already exists')
    attnum = len(relation.all_columns) + 1
    write_column(cursor, oids, relation.database, relation.oid, column, attnum)
    pg_class.set_class(cursor, relation, "relnatts", attnum)
    return attnum


def write_column(cursor: Cursor, oids: Oids, database: int, relation: int, column: Column, attnum: int) -> None:
    """Write the row of a column, with its default or generated value."""
    write_columns(cursor, oids, database, relation, [(column, attnum)])


def write_columns(cursor: Cursor, oids: Oids, database: int, relation: int, columns: Sequence[tuple[Column, int]]) -> None:
    """Write the rows of several columns, each with its attnum."""
    physical.insert_all(cursor, "pg_attribute", [_row(cursor, database, relation, column, attnum) for column, attnum in columns])
    for column, attnum in columns:
        expression = column.generated if column.generated is not None else column.default
        if expression is not None:
            _insert_default(cursor, oids, database, relation, attnum, expression)


def _row(cursor: Cursor, database: int, relation: int, column: Column, attnum: int) -> dict[str, object]:
    length, by_value, align, storage = _form(cursor, database, column.type_oid)
    return {
        "dbid": database, "attrelid": relation, "attname": column.name, "atttypid": column.type_oid, "attstattarget": -1,
        "attlen": length, "attnum": attnum, "attndims": dimensions_of(column), "attcacheoff": -1,
        "atttypmod": column.typmod, "attbyval": by_value, "attalign": align, "attstorage": storage, "attcompression": "",
        "attnotnull": column.not_null, "atthasdef": column.generated is not None or column.default is not None,
        "attidentity": column.identity, "attgenerated": "s" if column.generated is not None else "",
        "attislocal": True, "attcollation": column.collation,
    }  # fmt: skip


def dimensions_of(column: Column) -> int:
    """Return attndims of a column as declared, or 1 for an array without a declaration."""
    kind = registry.known().find(column.type_oid)
    return column.dimensions or (1 if kind is not None and kind.is_array else 0)


Form = tuple[int, bool, str, str]


def _form(cursor: Cursor, database: int, type_oid: int) -> Form:
    """Return typlen, typbyval, typalign, typstorage of a type. Those of built-in types are cached, because they never change."""
    if type_oid in _builtin_forms:
        return _builtin_forms[type_oid]
    sql = "SELECT typlen, typbyval, typalign, typstorage, dbid FROM hg.pg_type WHERE oid = ? AND dbid IN (0, ?)"
    row = existing(one(cursor, sql, [type_oid, database]), "42704", f"type with OID {type_oid}")
    length, by_value, align, storage, owner = row
    form = (length, by_value, align, storage)
    if owner == 0:
        _builtin_forms[type_oid] = form
    return form


def storage_of(cursor: Cursor, database: int, type_oid: int) -> str:
    """Return typstorage of a type."""
    return _form(cursor, database, type_oid)[3]


_builtin_forms: dict[int, Form] = {}


def rename_column(cursor: Cursor, relation: Relation, attnum: int, name: str) -> None:
    """Rename a column, also in the table's indexes. Raise 42701 if the name is in use."""
    if relation.column(name) is not None:
        raise PostgresError("42701", f'column "{name}" of relation "{relation.name}" already exists')
    _set_column(cursor, relation, attnum, "attname", name)
    for index in relation.indexes:
        for place, number in enumerate((*index.attnums, *index.included), 1):
            if number == attnum:
                update(cursor, "pg_attribute", {"dbid": relation.database, "attrelid": index.oid, "attnum": place}, attname=name)
    key_text.write(cursor, relation.database, relation.oid)


def set_not_null(cursor: Cursor, relation: Relation, attnum: int, not_null: bool) -> None:
    _set_column(cursor, relation, attnum, "attnotnull", not_null)


def set_identity(cursor: Cursor, relation: Relation, attnum: int, identity: str) -> None:
    """Set pg_attribute.attidentity: '', 'a' or 'd'."""
    _set_column(cursor, relation, attnum, "attidentity", identity)


def set_type(cursor: Cursor, relation: Relation, attnum: int, type_oid: int, typmod: int, collation: int, dimensions: int) -> None:
    """Change the type of a column, in the table and in its indexes."""
    places = [(relation.oid, attnum)]
    places += [(index.oid, place) for index in relation.indexes for place, number in enumerate((*index.attnums, *index.included), 1)
               if number == attnum]  # fmt: skip
    for oid, number in places:
        run(
            cursor,
            "UPDATE hg.pg_attribute a SET atttypid = t.oid, atttypmod = ?, attcollation = ?, attndims = ?, attlen = t.typlen,"
            " attbyval = t.typbyval, attalign = t.typalign, attstorage = t.typstorage"
            " FROM hg.pg_type t WHERE t.oid = ? AND t.dbid IN (0, ?)"
            " AND a.dbid = ? AND a.attrelid = ? AND a.attnum = ?",
            [typmod, collation, dimensions, type_oid, relation.database, relation.database, oid, number],
        )


def set_default(cursor: Cursor, oids: Oids, relation: Relation, attnum: int, default: str | None) -> None:
    """Set the default of a column (text as pg_get_expr prints it), or drop it if None."""
    scope = [relation.database, relation.oid, attnum]
    chosen = "SELECT oid FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ? AND adnum = ?"
    run(cursor, f"DELETE FROM hg.pg_depend WHERE dbid = ? AND classid = 2604 AND objid IN ({chosen})", [relation.database, *scope])
    run(cursor, "DELETE FROM hg.pg_attrdef WHERE dbid = ? AND adrelid = ? AND adnum = ?", scope)
    if default is not None:
        _insert_default(cursor, oids, relation.database, relation.oid, attnum, default)
    _set_column(cursor, relation, attnum, "atthasdef", default is not None)


def set_statistics_target(cursor: Cursor, relation: Relation, attnum: int, target: int) -> None:
    """Set how many values ANALYZE of PostgreSQL would look at. A node only returns it to pg_dump."""
    _set_column(cursor, relation, attnum, "attstattarget", target)


def set_storage(cursor: Cursor, relation: Relation, attnum: int, storage: str) -> None:
    """Set attstorage. A node only returns it to pg_dump."""
    _set_column(cursor, relation, attnum, "attstorage", storage)


def _set_column(cursor: Cursor, relation: Relation, attnum: int, column: str, value: object) -> None:
    sql = f"UPDATE hg.pg_attribute SET {column} = ? WHERE dbid = ? AND attrelid = ? AND attnum = ?"
    run(cursor, sql, [value, relation.database, relation.oid, attnum])


def _insert_default(cursor: Cursor, oids: Oids, database: int, relation: int, attnum: int, text: str) -> None:
    """Write the row of a default, and its dependencies: on its column, and on the sequences whose nextval it calls."""
    oid = oids()
    insert(cursor, "pg_attrdef", dbid=database, oid=oid, adrelid=relation, adnum=attnum, adbin=text, adbinpretty=pretty(text))
    depends = [(relation, attnum, "a")]
    depends += [(sequence_oid, 0, "n") for sequence_oid in sequence.of_default(cursor, database, text)]
    for target, sub, kind in depends:
        insert(
            cursor, "pg_depend", dbid=database, classid=2604, objid=oid, refclassid=1259, refobjid=target, refobjsubid=sub, deptype=kind
        )  # fmt: skip
