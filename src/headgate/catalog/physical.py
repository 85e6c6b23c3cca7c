"""The catalogs as DuckDB tables: their columns, the storage of PostgreSQL's types, and functions that read and write rows.

Used by the other modules of this package. The definitions are the rows of pg_class and pg_attribute that tools/dump_catalog.py dumped from
a real server, so names, types and order are defined only once, by PostgreSQL.

Each catalog is ``hg.<its name>`` with PostgreSQL's columns in PostgreSQL's order. If PostgreSQL has one such catalog per database, `dbid`
precedes them: the oid of the database, or 0 for built-in rows that all databases share. The DuckDB tables have no keys, because DuckDB's
indexes restrict updates. `insert` and `update` claim the keys instead (`unique`).

Storage: oid, xid, regproc → UINTEGER; pg_lsn → UBIGINT; int2vector → SMALLINT[]; timestamptz → TIMESTAMP in UTC;
name, "char", text and any other type → VARCHAR; arrays → lists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from headgate.catalog import unique
from headgate.catalog.cursor import CatalogCursor, Row
from headgate.errors import PostgresError, disk_full
from headgate.initial_catalog import rows as initial
from headgate.types import registry

Cursor = CatalogCursor
"""The type that `Catalog.cursor` returns."""

Oids = Callable[[], int]
"""Returns a new oid: `Catalog.next_oid`."""

_SCALARS = {
    registry.BOOL: "BOOLEAN",
    registry.INT2: "SMALLINT",
    registry.INT4: "INTEGER",
    registry.INT8: "BIGINT",
    registry.FLOAT4: "FLOAT",
    registry.FLOAT8: "DOUBLE",
    registry.OID: "UINTEGER",
    registry.XID: "UINTEGER",
    registry.CID: "UINTEGER",
    registry.REGPROC: "UINTEGER",
    registry.REGCLASS: "UINTEGER",
    registry.REGTYPE: "UINTEGER",
    registry.REGROLE: "UINTEGER",
    registry.REGNAMESPACE: "UINTEGER",
    2202: "UINTEGER",  # regprocedure
    2203: "UINTEGER",  # regoper
    2204: "UINTEGER",  # regoperator
    registry.XID8: "UBIGINT",
    registry.PG_LSN: "UBIGINT",
    registry.INT2VECTOR: "SMALLINT[]",
    registry.OIDVECTOR: "UINTEGER[]",
    registry.TIMESTAMP: "TIMESTAMP",
    registry.TIMESTAMPTZ: "TIMESTAMP",
    registry.DATE: "DATE",
    registry.TIME: "TIME",
    registry.INTERVAL: "INTERVAL",
    registry.NUMERIC: "DECIMAL(38,10)",
    registry.BYTEA: "BLOB",
}

EXTRA = {
    "pg_publication": (("pubreconcile", "BOOLEAN"), ("pubgencols", "VARCHAR")),
    "pg_publication_rel": (("prqualtree", "VARCHAR"),),
    "pg_class": (("relpartconstraint", "VARCHAR"),),
    "pg_attrdef": (("adbinpretty", "VARCHAR"),),
    "pg_constraint": (("conbinpretty", "VARCHAR"), ("conkeytext", "VARCHAR"), ("conreference", "VARCHAR"), ("conincludetext", "VARCHAR")),
    "pg_index": (
        ("indkeytext", "VARCHAR"), ("indkeypretty", "VARCHAR"), ("indexprlist", "VARCHAR[]"), ("indcolumns", "VARCHAR[]"),
        ("indcolumnspretty", "VARCHAR[]"), ("indincludetext", "VARCHAR"), ("indpredpretty", "VARCHAR"),
    ),
    "pg_partitioned_table": (("partkeydef", "VARCHAR"),),
    "pg_proc": (("prodef", "VARCHAR"), ("proargumentstext", "VARCHAR"), ("proidentitytext", "VARCHAR"), ("proresulttext", "VARCHAR")),
    "pg_trigger": (("tgqualpretty", "VARCHAR"), ("tgargstext", "VARCHAR")),
    "pg_rewrite": (("ev_pretty", "VARCHAR"),),
}  # fmt: skip
"""Columns that PostgreSQL does not have, after its own: options of publications, the bound tree of a row filter, and texts that would
take long to compute in a query (printed keys of indexes, constraints and partitions, pretty-printed expressions).
`upgrade` adds those that a file of an earlier version lacks."""


@dataclass(frozen=True)
class PhysicalColumn:
    """A column of a catalog: PostgreSQL's name, type and NOT NULL."""

    name: str
    type_oid: int
    not_null: bool
    attnum: int = 0


@dataclass(frozen=True)
class PhysicalTable:
    """A catalog. `shared` means that all databases have one, without a `dbid`."""

    oid: int
    name: str
    shared: bool
    columns: tuple[PhysicalColumn, ...]


def duckdb_type(type_oid: int) -> str:
    """Return the DuckDB type in which values of a PostgreSQL type are stored and computed."""
    plain = _SCALARS.get(type_oid)
    if plain is not None:
        return plain
    built_in = registry.builtin().find(type_oid)
    if built_in is not None and built_in.is_array:
        return duckdb_type(built_in.element) + "[]"
    if built_in is not None and built_in.kind == registry.TypeKind.DOMAIN:
        return duckdb_type(built_in.base)
    return "VARCHAR"


@functools.cache
def tables() -> Mapping[str, PhysicalTable]:
    classes = initial.rows("pg_class", "oid", "relname", "relnamespace", "relkind", "relisshared")
    catalog_rows = {row["oid"]: row for row in classes if row["relkind"] == "r" and row["relnamespace"] == 11}
    columns: dict[int, list[PhysicalColumn]] = {oid: [] for oid in catalog_rows}
    attributes = initial.rows("pg_attribute", "attrelid", "attname", "atttypid", "attnum", "attnotnull")
    for row in sorted(attributes, key=lambda attribute: attribute["attnum"]):
        if row["attrelid"] in catalog_rows and row["attnum"] > 0:
            columns[row["attrelid"]].append(PhysicalColumn(row["attname"], row["atttypid"], row["attnotnull"], row["attnum"]))
    return {
        row["relname"]: PhysicalTable(oid, row["relname"], row["relisshared"], tuple(columns[oid])) for oid, row in catalog_rows.items()
    }


@functools.cache
def _statement(catalog: str, columns: tuple[str, ...]) -> tuple[str, dict[str, object]]:
    """Return the INSERT for a set of columns, and the values of the other columns."""
    table = tables()[catalog]
    missing: dict[str, object] = {}
    for column in table.columns:
        if column.name not in columns and column.not_null:
            missing[column.name] = _neutral(column.type_oid)
    names = [*columns, *missing]
    marks = ", ".join("?" for _ in names)
    return f"INSERT INTO hg.{catalog} ({', '.join(names)}) VALUES ({marks})", missing


def _neutral(type_oid: int) -> object:
    kind = duckdb_type(type_oid)
    if kind.endswith("[]"):
        return []
    return {"BOOLEAN": False, "VARCHAR": ""}.get(kind, 0)


def insert(cursor: Cursor, catalog: str, **values: object) -> None:
    """Insert one row. Omitted columns are NULL, or 0, false, '' if PostgreSQL has them NOT NULL. Raise 23505 for a key in use."""
    sql, missing = _statement(catalog, tuple(values))
    claim = cursor.claim
    if claim is not None:
        for key in unique.keys(catalog, {**missing, **values}):
            claim(key)
    run(cursor, sql, [*values.values(), *missing.values()])


def insert_all(cursor: Cursor, catalog: str, rows_by_column: Sequence[Mapping[str, object]]) -> None:
    """Insert rows that have the same columns, in one statement, as `insert` does."""
    if not rows_by_column:
        return
    sql, missing = _statement(catalog, tuple(rows_by_column[0]))
    claim = cursor.claim
    if claim is not None:
        for values in rows_by_column:
            for key in unique.keys(catalog, {**missing, **values}):
                claim(key)
    marks = sql[sql.rindex("(") :]
    more = f", {marks}" * (len(rows_by_column) - 1)
    run(cursor, sql + more, [value for values in rows_by_column for value in (*values.values(), *missing.values())])


def update(cursor: Cursor, catalog: str, where: Mapping[str, object], **values: object) -> None:
    """Update the rows in which the columns of `where` have these values. Raise 23505 if a row gets a key that is in use."""
    condition = " AND ".join(f"{column} = ?" for column in where)
    claim = cursor.claim
    touched = unique.of_columns(catalog, values) if claim is not None else []
    if claim is not None and touched:
        columns = list(
            dict.fromkeys([*([] if touched[0].shared else ["dbid"]), *[key_column for index in touched for key_column in index.columns]])
        )
        for key_values in rows(cursor, f"SELECT {', '.join(columns)} FROM hg.{catalog} WHERE {condition}", [*where.values()]):
            before = dict(zip(columns, key_values, strict=True))
            for index in touched:
                key = index.key({**before, **values})
                if key != index.key(before):
                    claim(key)
    run(
        cursor,
        f"UPDATE hg.{catalog} SET {', '.join(f'{column} = ?' for column in values)} WHERE {condition}",
        [*values.values(), *where.values()],
    )


def delete(cursor: Cursor, catalog: str, **where: object) -> None:
    """Delete the rows in which the columns of `where` have these values."""
    run(cursor, f"DELETE FROM hg.{catalog} WHERE {' AND '.join(f'{column} = ?' for column in where)}", [*where.values()])


def run(cursor: Cursor, sql: str, parameters: Sequence[object] | None = None) -> duckdb.DuckDBPyConnection:
    """Execute a statement on the catalog. Errors of DuckDB are converted by `refused`."""
    try:
        return cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
    except duckdb.Error as error:
        raise refused(error) from error


def refused(error: duckdb.Error) -> PostgresError:
    """Return 53100 for a full disk, 40001 for a conflict with another transaction, and XX000 for any other error of DuckDB.

    A COMMIT that fails raises TransactionException, for any reason.
    """
    full = disk_full(error)
    if full is not None:
        return full
    if isinstance(error, duckdb.TransactionException):
        return PostgresError(
            "40001",
            "could not serialize access due to concurrent update",
            detail="The row of the system catalog is being changed by another transaction.",
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return out_of_memory()
    return PostgresError("XX000", f"catalog: {_first_line(error)}")


def out_of_memory() -> PostgresError:
    """Return 53200: the catalog does not have enough memory for a statement."""
    hint = "Repeat the statement; a CHECKPOINT writes what the catalog holds into its file."
    return PostgresError("53200", "out of memory", detail="The node's catalog has no memory left.", hint=hint)


def one(cursor: Cursor, sql: str, parameters: Sequence[object] | None = None) -> Row | None:
    query_rows = rows(cursor, sql, parameters)
    return tuple(query_rows[0]) if query_rows else None


def rows(cursor: Cursor, sql: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Return all rows of a query on the catalog."""  # the type is written out: mypy infers nothing for dict() of the alias Rows
    try:
        return cursor.rows(sql, parameters)
    except duckdb.Error as error:
        raise refused(error) from error


def _first_line(error: duckdb.Error) -> str:
    return str(error).split("\n", 1)[0]
