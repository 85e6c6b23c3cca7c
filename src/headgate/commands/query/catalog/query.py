"""Answers SELECT and VALUES on system relations, and queries without any relation that need what only the catalogs have.

`answer` is called by the commands for a query whose relations are all PostgreSQL's system relations (`uses_catalog_only`). The tree is
rewritten to DuckDB SQL (headgate.catalog.query.rewrite), run on the session's cursor, and its columns printed as PostgreSQL prints them.
The text of DuckDB's own errors never reaches a client.
"""

from __future__ import annotations

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
from headgate.catalog.query import volatile_function
from headgate.catalog.query.cast import output
from headgate.catalog.query.rewrite import Rewriter, TypedParameter
from headgate.catalog.query.scope import Query
from headgate.catalog.query.value import TypedSql
from headgate.catalog.relation import relation
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.errors import PostgresError, disk_full
from headgate.interruption import look
from headgate.settings import check
from headgate.sql.names import strings
from headgate.sql.parser import walk
from headgate.types import registry as t
from headgate.types.datetime import interval
from headgate.types.resultset import ResultColumn, ResultSet

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
    ctes = {each.ctename for each in walk(tree) if each.DESCRIPTOR.name == "CommonTableExpr"}
    path: list[str] | None = None
    named = [each for each in walk(tree) if each.DESCRIPTOR.name in ("RangeVar", "TypeName")]
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
    text: str,
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
    del text  # locations in the tree already count in it
    given = [TypedParameter(each.type_oid, each.text) for each in parameters]
    rewriter = Rewriter(context, cursor, dynamic, functions, given)
    query = rewriter.select(select, None)
    if rewriter.acting:
        return volatile_function.answer(rewriter, query, select, _run)
    types = query.types()
    values = [(name, TypedSql(f"q.c{place}", kind)) for place, ((name, _), kind) in enumerate(zip(query.columns, types, strict=True), 1)]
    shown = [f"{_shown(value, rewriter, context)} AS c{place}" for place, (_, value) in enumerate(values, 1)]
    sql = f"SELECT {', '.join(shown) or 'NULL'} FROM ({query.build(types)}) q"
    table = _run(rewriter, sql)
    columns = _columns(query, types)
    return ResultSet(columns, _batches(table, columns, context))


def describe(
    select: pb.SelectStmt, context: SessionContext, cursor: Cursor, parameter_types: Sequence[int] = (), functions: Collection[str] = ()
) -> tuple[tuple[int, ...], tuple[ResultColumn, ...]]:
    """The types of the parameters (0 in `parameter_types`: inferred, text if nothing decides) and the columns of a query, not run.

    `functions`: the names of those that act, as for `answer`.
    """
    given = [TypedParameter(kind, None) for kind in parameter_types]
    rewriter = Rewriter(context, cursor, _NOTHING, _Uncalled(functions), given, describing=True)
    query = rewriter.select(select, None)
    types = query.types()
    if not rewriter.acting:
        query.build(types)
    count = max([len(given), *rewriter.inferred], default=0)
    found = []
    for number in range(1, count + 1):
        declared = given[number - 1].type_oid if number <= len(given) else 0
        found.append(declared or rewriter.inferred.get(number, 0) or t.TEXT)
    return tuple(found), _columns(query, types)


class _Uncalled(dict[str, Callable[..., Any]]):
    """Stands for the caller's functions while a query is only described: none is called."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(dict.fromkeys(names, lambda *_, **__: None))


def _shown(value: TypedSql, rewriter: Rewriter, context: SessionContext) -> str:
    if value.type == t.RECORD and not value.struct:
        return value.sql
    if value.type == t.TIMESTAMPTZ and context.time_zone not in ("UTC", "Etc/UTC", "GMT"):
        return value.sql
    return output(value, rewriter.names)


def _columns(query: Query, types: Sequence[int]) -> tuple[ResultColumn, ...]:
    return tuple(
        ResultColumn(name, kind, value.typmod, value.relation, value.attnum)
        for (name, value), kind in zip(query.columns, types, strict=True)
    )


def _run(rewriter: Rewriter, sql: str) -> list[list[Any]]:
    """The columns of the result."""
    cursor = rewriter.cursor
    rewriter.check_guarded(sql)
    for name, table in rewriter.tables.items():
        cursor.register(name, table)
    try:
        done = cursor.execute(sql)
        rows = _fetched(done)
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in done.description or ()]
    except duckdb.Error as error:
        _log.debug("%s\nwhile running %s", error, sql)
        raise _translated(error) from error
    finally:
        for name in rewriter.tables:
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


def _translated(error: duckdb.Error) -> PostgresError:
    """DuckDB's error as PostgreSQL's, or one that says only which part failed."""
    said = str(error).split("\n", 1)[0]
    marked = re.search(r"headgate:([0-9A-Z]{5}):(.*)", said)
    if marked:
        return PostgresError(marked[1], marked[2])
    full = None if isinstance(error, duckdb.ConversionException) else disk_full(error)
    if full is not None:
        return full
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
    arrays = []
    for column, values in zip(columns, table, strict=True):
        if column.type_oid == t.TIMESTAMPTZ:
            shown = [_in_zone(value, context.time_zone) if isinstance(value, datetime.datetime) else value for value in values]
        else:
            shown = [value if value is None or isinstance(value, str) else str(value) for value in values]
        if column.type_oid == t.INTERVAL:  # DuckDB writes -1 day, PostgreSQL -1 days
            shown = [None if value is None else interval.normal(value).print() for value in shown]
        arrays.append(pa.array(shown, pa.string()))
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(columns)])
    return [pa.RecordBatch.from_arrays(arrays, schema=schema)]


def _in_zone(value: datetime.datetime, zone: str) -> str:
    local = value.replace(tzinfo=datetime.UTC).astimezone(check.zone(zone))
    text = local.strftime("%Y-%m-%d %H:%M:%S")
    if local.microsecond:
        text += f".{local.microsecond:06d}".rstrip("0")
    offset = local.utcoffset() or datetime.timedelta()
    minutes = int(offset.total_seconds() // 60)
    sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
    return text + f"{sign}{minutes // 60:02d}" + (f":{minutes % 60:02d}" if minutes % 60 else "")


__all__ = ["TypedParameter", "answer", "describe", "uses_catalog_only"]
