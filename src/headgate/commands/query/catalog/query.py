"""Answers SELECT and VALUES on system relations, and queries without any relation that need what only the catalogs have.

`answer` is called by the commands for a query whose relations are all PostgreSQL's system relations (`uses_catalog_only`). The tree is
planned as DuckDB SQL (`select`), run on the session's cursor, and its columns printed as PostgreSQL prints them.
The text of DuckDB's own errors never reaches a client.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.namespace import check_use, effective
from headgate.catalog.physical import Cursor, out_of_memory
from headgate.catalog.relation import relation
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.commands.query.catalog import volatile_function
from headgate.commands.query.catalog.relation_source import CatalogQuery
from headgate.commands.query.catalog.select import CatalogPlanner, TypedParameter
from headgate.errors import PostgresError, disk_full, not_supported
from headgate.expression.duckdb import cast
from headgate.expression.duckdb.value import base_of, element_of
from headgate.expression.node import ColumnRef, TypeRef
from headgate.interruption import look
from headgate.sql.names import strings
from headgate.sql.parser import walk
from headgate.storage.spark import failure
from headgate.types import registry as t
from headgate.types.datetime import interval
from headgate.types.resultset import ResultColumn, ResultSet
from headgate.types.text import text
from headgate.types.text.array import Shape, print_array

Functions = Mapping[str, Callable[..., Any]]

_ROWS = 8192
_VALUES = 2_000_000
"""How many values a query on system relations may give: some 100 bytes each."""
_NOTHING: Mapping[str, Any] = {}

_log = logging.getLogger(__name__)


class BeyondCatalog(PostgresError):
    """0A000: the query needs more SQL than the catalogs have; one without any relation can still be answered by Spark."""


def uses_catalog_only(tree: pb.SelectStmt, context: SessionContext, cursor: Cursor) -> bool:
    """Whether no relation of a query is a user's: then `answer` answers it.

    A name that stands for nothing counts as no user's, so that `answer` raises 42P01. Nor does `answer` know the types of users: a query
    without any relation that names one is not for it.
    """
    found = [each for each in walk(tree) if each.DESCRIPTOR.name in ("CommonTableExpr", "RangeVar", "TypeName")]
    ctes = {each.ctename for each in found if each.DESCRIPTOR.name == "CommonTableExpr"}
    path: list[str] | None = None
    named = [each for each in found if each.DESCRIPTOR.name != "CommonTableExpr"]
    if all(each.DESCRIPTOR.name == "TypeName" for each in named) and any(map(_is_users, named)):
        return False
    for each in named:
        if each.DESCRIPTOR.name != "RangeVar":
            continue
        name, schema = each.relname, each.schemaname or None
        if schema is None and name in ctes:
            continue
        if schema in ("pg_catalog", "information_schema"):
            continue
        if path is None:
            path = effective(cursor, context.database, context.user, context.search_path, context.temp_schema)
        schema = (context.temp_schema or schema) if schema == "pg_temp" else schema
        oid = relation.find_oid(cursor, context.database, schema, name, path)
        if oid is not None and oid >= t.FIRST_USER_OID:
            return False
        if oid is None and schema is not None:
            check_use(cursor, context.user, context.database, schema)
    return True


def _is_users(node: pb.TypeName) -> bool:
    """Whether a TypeName names a type that a user made."""
    if not node.names:
        return False
    parts = strings(node.names)
    found = t.known().find_name(parts[-1], parts[-2] if len(parts) > 1 else None)
    return found is not None and found.oid >= t.FIRST_USER_OID


def answer(
    select: pb.SelectStmt,
    context: SessionContext,
    cursor: Cursor,
    dynamic: Mapping[str, Provider] = _NOTHING,
    functions: Functions = _NOTHING,
    parameters: Sequence[Any] = (),
) -> ResultSet:
    """Runs a SelectStmt.

    `dynamic`: rows of dynamic relations by name; `functions`: functions that act, by name (Python values in: str,
    int, bool, Lsn, list; out: a value, a tuple for a row, an iterable of rows for a set); `parameters`: $1… with `type_oid`, `text`.
    """
    if _in_turn(select):
        return _one_by_one(select, context, cursor, dynamic, functions, parameters)
    given = [TypedParameter(each.type_oid, each.text) for each in parameters]
    planner = CatalogPlanner(context, cursor, dynamic, functions, given)
    query = planner.select(select, None)
    if planner.acting:
        return volatile_function.answer(planner, query, select, _run)
    types = planner.types_of(query)
    columns = _columns(query, types)
    table = _run(planner, f"SELECT {_printed(planner, query)} FROM ({query.build(types)}) q")
    return ResultSet(columns, _batches(table, columns, context))


def _in_turn(select: pb.SelectStmt) -> bool:
    """Whether a column of one row changes what those behind it say: set_config, of which current_user and others are seen to follow."""
    if len(select.target_list) < 2 or {field.name for field, _ in select.ListFields()} - {"target_list", "limit_option", "op"}:
        return False
    calls = (each for target in select.target_list for each in walk(target) if each.DESCRIPTOR.name == "FuncCall")
    return any(strings(each.funcname)[-1] == "set_config" for each in calls)


def _one_by_one(
    select: pb.SelectStmt,
    context: SessionContext,
    cursor: Cursor,
    dynamic: Mapping[str, Provider],
    functions: Functions,
    parameters: Sequence[Any],
) -> ResultSet:
    """The columns of one row, each computed when those before it have been."""
    columns: list[ResultColumn] = []
    arrays: list[pa.Array] = []
    for target in select.target_list:
        alone = pb.SelectStmt()
        alone.CopyFrom(select)
        del alone.target_list[:]
        alone.target_list.append(target)
        found = answer(alone, context, cursor, dynamic, functions, parameters)
        [batch] = found.batches
        if batch.num_rows != 1:
            raise BeyondCatalog("0A000", "set_config beside a function that gives several rows is not supported")
        columns += found.columns
        arrays += batch.columns
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(columns)])
    return ResultSet(tuple(columns), [pa.RecordBatch.from_arrays(arrays, schema=schema)])


def describe(
    select: pb.SelectStmt, context: SessionContext, cursor: Cursor, parameter_types: Sequence[int] = (), functions: Collection[str] = ()
) -> tuple[tuple[int, ...], tuple[ResultColumn, ...]]:
    """The types of the parameters (0 in `parameter_types`: inferred, text if nothing decides) and the columns of a query, not run.

    `functions`: the names of those that act, as for `answer`.
    """
    given = [TypedParameter(kind, None) for kind in parameter_types]
    planner = CatalogPlanner(context, cursor, _NOTHING, _Uncalled(functions), given, describing=True)
    query = planner.select(select, None)
    types = planner.types_of(query)
    if not planner.acting:
        query.build(types)
    count = max([len(given), *planner.inferred], default=0)
    found = []
    for number in range(1, count + 1):
        declared = given[number - 1].type_oid if number <= len(given) else 0
        found.append(declared or planner.inferred.get(number, 0) or t.TEXT)
    return tuple(found), _columns(query, types)


class _Uncalled(dict[str, Callable[..., Any]]):
    """Stands for the caller's functions while a query is only described: none is called."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(dict.fromkeys(names, lambda *_, **__: None))


def _printed(planner: CatalogPlanner, query: CatalogQuery) -> str:
    """The SELECT list of the text forms of a query's columns, named q.c1, q.c2, …; of what Python prints, the values."""
    shown = []
    for place, column in enumerate(planner.shown(query, "q"), 1):
        kind = base_of(column.type.oid)
        inner = element_of(kind) or kind
        planner.facts[column.key] = column.facts
        if kind in _STYLED:
            sql = f"CAST({column.key} AS VARCHAR)"
        elif inner in _PRINTED_HERE:
            sql = column.key
        else:
            sql = cast.text(ColumnRef(type=column.type, name=column.name, attnum=1, key=column.key), column.key, planner)
        shown.append(f"{sql} AS c{place}")
    return ", ".join(shown) or "NULL"


def _columns(query: CatalogQuery, types: Sequence[TypeRef]) -> tuple[ResultColumn, ...]:
    return tuple(
        ResultColumn(each.name, base_of(kind.oid), each.type.typmod, each.relation, each.attnum)
        for each, kind in zip(query.columns, types, strict=True)
    )


def _run(planner: CatalogPlanner, sql: str) -> list[list[Any]]:
    """The columns of the result."""
    cursor = planner.cursor
    planner.check_guarded(sql)
    for name, table in planner.tables.items():
        cursor.register(name, table)
    try:
        done = cursor.execute(sql)
        rows = _fetched(done)
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in done.description or ()]
    except duckdb.Error as error:
        _log.debug("%s\nwhile running %s", error, sql)
        raise translated(error) from error
    finally:
        for name in planner.tables:
            with contextlib.suppress(duckdb.TransactionException):  # the statement has failed: with its transaction the table goes as well
                cursor.unregister(name)


def _fetched(done: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """All rows, which the process has in memory at once; 53200 for more than it may."""
    rows: list[tuple[Any, ...]] = []
    while chunk := done.fetchmany(_ROWS):
        look()
        rows += chunk
        if len(rows) * len(chunk[0]) > _VALUES:
            raise out_of_memory()
    return rows


_OWN_RANGES = ("DECIMAL", "imestamp", "TIMESTAMP", "nterval", "INTERVAL", "Date", "DATE", "HUGEINT", "INT128")
"""Types whose range is another in DuckDB than in PostgreSQL, as its errors name them."""


def translated(error: duckdb.Error) -> PostgresError:
    """DuckDB's error as PostgreSQL's, or one that says only which part failed."""
    said = str(error).split("\n", 1)[0]
    if failure.MARK in said:
        return failure.from_spark(error)
    full = None if isinstance(error, duckdb.ConversionException) else disk_full(error)
    if full is not None:
        return full
    if any(each in said for each in _OWN_RANGES):
        return BeyondCatalog("0A000", "this value is beyond what a node computes on its catalogs")
    if isinstance(error, duckdb.OutOfRangeException) or "out of range" in said or "Overflow" in said:
        kind = re.search(r"INT(16|32|64)", said)
        word = {"16": "smallint", "32": "integer", "64": "bigint"}.get(kind[1] if kind else "", "value")
        return PostgresError("22003", f"{word} out of range")
    if "Division by zero" in said or "division by zero" in said:
        return PostgresError("22012", "division by zero")
    if "More than one row returned by a subquery" in said:
        return PostgresError("21000", "more than one row returned by a subquery used as an expression")
    if isinstance(error, duckdb.ConversionException):
        found = re.search(r"string '(.*?)' to (\w+)", said)
        if found:
            words = {"INT32": "integer", "INT64": "bigint", "INT16": "smallint", "UINT32": "oid", "UINT64": "pg_lsn", "BOOL": "boolean"}
            return PostgresError("22P02", f'invalid input syntax for type {words.get(found[2], found[2].lower())}: "{found[1]}"')
        return PostgresError("22P02", "invalid input syntax")
    grouped = re.search(r'column "?(\w+)"? must appear in the GROUP BY', said)
    if grouped:
        return PostgresError("42803", "a column must appear in the GROUP BY clause or be used in an aggregate function")
    if "aggregate" in said.lower() and "WHERE" in said:
        return PostgresError("42803", "aggregate functions are not allowed in WHERE")
    if isinstance(error, duckdb.InterruptException):
        return PostgresError("57014", "canceling statement due to user request")
    if isinstance(error, duckdb.TransactionException):
        return PostgresError("40001", "could not serialize access due to concurrent update")
    if isinstance(error, duckdb.OutOfMemoryException):
        return out_of_memory()
    return BeyondCatalog(
        "0A000", "this query on system catalogs is not supported", detail="It goes beyond the SQL that a node runs on its catalogs."
    )


def _batches(table: list[list[Any]], columns: Sequence[ResultColumn], context: SessionContext) -> list[pa.RecordBatch]:
    if not columns:
        return [pa.RecordBatch.from_struct_array(pa.array([{}] * len(table[0]), pa.struct([])))]
    arrays = [_texts(column.type_oid, column.typmod, values, context) for column, values in zip(columns, table, strict=True)]
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(columns)])
    return [pa.RecordBatch.from_arrays(arrays, schema=schema)]


_PRINTED_HERE = frozenset({t.FLOAT4, t.FLOAT8, t.TIMESTAMPTZ})
"""Types, and arrays of them, whose values come here as Python's."""
_STYLED = frozenset({t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ, t.INTERVAL})
"""Types whose text depends on DateStyle or IntervalStyle."""


def _texts(kind: int, typmod: int, values: Sequence[Any], context: SessionContext) -> pa.StringArray:
    """A column of the result as the session sees it."""
    element = element_of(kind)
    if element in _PRINTED_HERE:
        return pa.array([None if each is None else _list(each, element, context) for each in values], pa.string())
    if kind in _PRINTED_HERE or kind in _STYLED:
        plain = pa.array([None if each is None else _text(each, kind) for each in values], pa.string())
    else:
        plain = pa.array([each if each is None or isinstance(each, str) else str(each) for each in values], pa.string())
    if (kind in _STYLED or kind in _PRINTED_HERE) and text.depends_on(kind, context.forms):
        return text.write_text(text.read_text(plain, kind, typmod), kind, typmod, session=context.forms)
    return plain


def _text(value: Any, kind: int) -> str:
    """A value in its type's normal form."""
    if isinstance(value, float):
        return str(text.write_scalar(value, kind))
    if kind == t.INTERVAL:  # DuckDB writes -1 day, PostgreSQL -1 days
        return interval.normal(str(value).replace(" month", " mon")).print()
    if "(BC)" in str(value) or (isinstance(value, datetime.datetime) and value.year in (1, 9999)):
        raise not_supported("a date before Christ, or an infinite one in an array, is not supported in a query on system catalogs")
    return f"{value}+00" if kind == t.TIMESTAMPTZ and not str(value).endswith("infinity") else str(value)


def _list(values: Sequence[Any], element: int, context: SessionContext) -> str:
    items = _texts(element, -1, values, context).to_pylist()
    return print_array(Shape([len(items)], [1]) if items else Shape([], []), items, ",")


__all__ = ["TypedParameter", "answer", "describe", "uses_catalog_only"]
