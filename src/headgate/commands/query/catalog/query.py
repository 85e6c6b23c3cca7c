"""Answer queries on system relations, and queries without relations that need functions or types of the catalogs.

The commands call `answer` for the queries that `catalog.answer` takes. `select` compiles the query to DuckDB's SQL, which runs on the
session's cursor, and the columns are printed as PostgreSQL prints them. The text of DuckDB's own errors is never sent to a client.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from headgate import interruption
from headgate.analysis.query import PlanColumn, Query, Select, reference, used_keys
from headgate.catalog.physical import Cursor, out_of_memory
from headgate.catalog.session import SessionContext
from headgate.catalog.system_view import Provider
from headgate.commands.query.catalog import from_item, volatile_function
from headgate.commands.query.catalog.planner import CatalogPlanner
from headgate.commands.query.catalog.select import CatalogQueryPlanner
from headgate.commands.session import Parameter
from headgate.errors import PostgresError, disk_full, not_supported
from headgate.expression.duckdb import cast
from headgate.expression.duckdb.value import base_of, element_of
from headgate.storage.spark import failure
from headgate.types import registry as t
from headgate.types.datetime import interval
from headgate.types.resultset import ResultColumn, ResultSet
from headgate.types.text import text
from headgate.types.text.array import Shape, print_array

Functions = Mapping[str, Callable[..., object]]

_ROWS = 8192
_VALUES = 2_000_000
"""Maximum number of values in the result of a query on system relations. A value takes about 100 bytes."""
_NOTHING: Mapping[str, Callable[..., Iterable[Sequence[object]]]] = {}

_log = logging.getLogger(__name__)


def answer(
    query: Query,
    context: SessionContext,
    cursor: Cursor,
    dynamic: Mapping[str, Provider] = _NOTHING,
    functions: Functions = _NOTHING,
    parameters: Sequence[Parameter] = (),
) -> ResultSet:
    """Run an analysed query.

    `dynamic`: the providers of dynamic relations by name. `functions`: functions with side effects by name. Their arguments are Python
    values (str, int, bool, Lsn, list). They return a value, a tuple for a row, or an iterable of rows for a set. `parameters`: $1… with
    `type_oid` and `text`.
    """
    planner = CatalogQueryPlanner(context, cursor, dynamic, functions, parameters)
    from_item.call_functions(planner, query)
    if not volatile_function.has_acting(query, functions):
        return _result(planner, query)
    if not volatile_function.is_one_row(query):
        return volatile_function.answer(planner, query, _run)
    # one column after the other, because a call can change the values of later columns: set_config, whose effect current_user must show
    results = [
        _result(CatalogQueryPlanner(context, cursor, dynamic, functions, parameters), column, settle=True)
        for column in _columns_alone(query)
    ]
    batches = [batch for result in results for batch in result.batches]
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(batches)])
    arrays = [batch.column(0) for batch in batches]
    return ResultSet(result_columns(query), [pa.RecordBatch.from_arrays(arrays, schema=schema)])


def _columns_alone(query: Query) -> Iterator[Query]:
    """Yield a query for each column of a SELECT list."""
    assert isinstance(query.body, Select)
    for target, column in zip(query.body.targets, query.columns, strict=True):
        yield replace(query, body=replace(query.body, targets=(target,)), columns=(column,))


def _result(planner: CatalogPlanner, query: Query, *, settle: bool = False) -> ResultSet:
    """Return the result of a query. `settle`: call the functions with side effects in its SELECT list first."""
    if settle:
        assert isinstance(query.body, Select)
        targets = [replace(target, expression=volatile_function.settled(planner, target.expression, _run)) for target in query.body.targets]
        query = replace(query, body=replace(query.body, targets=tuple(targets)))
    planner.used = used_keys(query, range(len(query.columns)))
    sql = planner.query(query)
    columns = result_columns(query)
    table = _run(planner, f"SELECT {_print_columns(planner, query.columns)} FROM ({sql}) q")
    return ResultSet(columns, _batches(table, columns, planner.context))


def check(
    query: Query,
    context: SessionContext,
    cursor: Cursor,
    dynamic: Mapping[str, Provider],
    functions: Functions,
    parameters: Sequence[Parameter],
) -> None:
    """Compile a query without calling functions with side effects. Raise 0A000 if the catalog cannot answer it."""
    planner = CatalogQueryPlanner(context, cursor, dynamic, functions, parameters)
    from_item.call_functions(planner, query, run=False)
    if not volatile_function.has_acting(query, functions):
        planner.query(query)


def result_columns(query: Query) -> tuple[ResultColumn, ...]:
    """Return the columns of a query. A domain is replaced by its base type."""
    return tuple(
        ResultColumn(column.name, base_of(column.type.oid), column.type.typmod, column.relation, column.attnum) for column in query.columns
    )


def _print_columns(planner: CatalogPlanner, columns: Sequence[PlanColumn]) -> str:
    """Return the SELECT list with the text of the columns q.c1, q.c2, …, or with the values of types that Python prints."""
    shown = []
    for place, column in enumerate(columns, 1):
        kind = base_of(column.type.oid)
        inner = element_of(kind) or kind
        sql = planner.columns[column.key] = f"q.c{place}"
        if kind in _STYLED:
            sql = f"CAST({sql} AS VARCHAR)"
        elif inner not in _PRINTED_HERE:
            sql = cast.text(reference(column), sql, planner)
        shown.append(f"{sql} AS c{place}")
    return ", ".join(shown) or "NULL"


def _run(planner: CatalogPlanner, sql: str) -> list[list[object]]:
    """Run the SQL and return the columns of its result. Raise DuckDB's errors as PostgresError."""
    cursor = planner.cursor
    for name, table in planner.tables.items():
        cursor.register(name, table)
    try:
        executed = cursor.execute(sql)
        rows = _fetch(executed)
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in executed.description or ()]
    except duckdb.Error as error:
        _log.debug("%s\nwhile running %s", error, sql)
        raise translated(error) from error
    finally:
        for name in planner.tables:
            with contextlib.suppress(
                duckdb.TransactionException
            ):  # the statement has failed, and the table is dropped with its transaction
                cursor.unregister(name)


def _fetch(executed: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """Fetch all rows into memory. Raise 53200 if they exceed the limit of `_VALUES`."""
    rows: list[tuple[object, ...]] = []
    while chunk := executed.fetchmany(_ROWS):
        interruption.check()
        rows += chunk
        if len(rows) * len(chunk[0]) > _VALUES:
            raise out_of_memory()
    return rows


_OWN_RANGES = ("DECIMAL", "imestamp", "TIMESTAMP", "nterval", "INTERVAL", "Date", "DATE", "HUGEINT", "INT128")
"""Types whose range differs between DuckDB and PostgreSQL, as DuckDB's errors name them."""


def translated(error: duckdb.Error) -> PostgresError:
    """Translate an error of DuckDB to PostgreSQL's. If there is no equivalent, return 0A000."""
    message = str(error).split("\n", 1)[0]
    if failure.MARK in message:
        return failure.from_spark(error)
    full = None if isinstance(error, duckdb.ConversionException) else disk_full(error)
    if full is not None:
        return full
    if any(type_name in message for type_name in _OWN_RANGES):
        return not_supported("this value is beyond what a node computes on its catalogs")
    if isinstance(error, duckdb.OutOfRangeException) or "out of range" in message or "Overflow" in message:
        kind = re.search(r"destination type INT(16|32|64)", message) or re.search(r"INT(16|32|64)", message)
        word = {"16": "smallint", "32": "integer", "64": "bigint"}.get(kind[1] if kind else "", "value")
        return PostgresError("22003", f"{word} out of range")
    if "Division by zero" in message or "division by zero" in message:
        return PostgresError("22012", "division by zero")
    if "More than one row returned by a subquery" in message:
        return PostgresError("21000", "more than one row returned by a subquery used as an expression")
    if isinstance(error, duckdb.ConversionException):
        conversion = re.search(r"string '(.*?)' to (\w+)", message)
        if conversion:
            words = {"INT32": "integer", "INT64": "bigint", "INT16": "smallint", "UINT32": "oid", "UINT64": "pg_lsn", "BOOL": "boolean"}
            return PostgresError(
                "22P02", f'invalid input syntax for type {words.get(conversion[2], conversion[2].lower())}: "{conversion[1]}"'
            )
        return PostgresError("22P02", "invalid input syntax")
    grouped = re.search(r'column "?(\w+)"? must appear in the GROUP BY', message)
    if grouped:
        return PostgresError("42803", "a column must appear in the GROUP BY clause or be used in an aggregate function")
    if "aggregate" in message.lower() and "WHERE" in message:
        return PostgresError("42803", "aggregate functions are not allowed in WHERE")
    if isinstance(error, duckdb.InterruptException):
        return interruption.pending() or PostgresError("57014", "canceling statement due to user request")
    if isinstance(error, duckdb.TransactionException):
        return PostgresError("40001", "could not serialize access due to concurrent update")
    if isinstance(error, duckdb.OutOfMemoryException):
        return out_of_memory()
    return not_supported("this query on system catalogs is not supported", detail="A node does not support this SQL on system catalogs.")


def _batches(table: list[list[object]], columns: Sequence[ResultColumn], context: SessionContext) -> list[pa.RecordBatch]:
    if not columns:
        return [pa.RecordBatch.from_struct_array(pa.array([{}] * len(table[0]), pa.struct([])))]
    arrays = [_texts(column.type_oid, column.typmod, values, context) for column, values in zip(columns, table, strict=True)]
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(columns)])
    return [pa.RecordBatch.from_arrays(arrays, schema=schema)]


_PRINTED_HERE = frozenset({t.FLOAT4, t.FLOAT8, t.TIMESTAMPTZ})
"""Types whose values (also as array elements) arrive as Python values and are printed here."""
_STYLED = frozenset({t.DATE, t.TIMESTAMP, t.TIMESTAMPTZ, t.INTERVAL})
"""Types whose text depends on DateStyle or IntervalStyle."""


def _texts(kind: int, typmod: int, values: Sequence[object], context: SessionContext) -> pa.StringArray:
    """Return the text of a result column in the session's styles."""
    element = element_of(kind)
    if element in _PRINTED_HERE:
        return pa.array([_list(item, element, context) if isinstance(item, list) else None for item in values], pa.string())
    if kind in _PRINTED_HERE or kind in _STYLED:
        plain = pa.array([None if item is None else _text(item, kind) for item in values], pa.string())
    else:
        plain = pa.array([item if item is None or isinstance(item, str) else str(item) for item in values], pa.string())
    if (kind in _STYLED or kind in _PRINTED_HERE) and text.depends_on(kind, context.forms):
        return text.write_text(text.read_text(plain, kind, typmod), kind, session=context.forms)
    return plain


def _text(value: object, kind: int) -> str:
    """Return the text of a value in its type's normal form."""
    if isinstance(value, float):
        return str(text.write_scalar(value, kind))
    if kind == t.INTERVAL:  # DuckDB writes -1 day, PostgreSQL -1 days
        return interval.normal(str(value).replace(" month", " mon")).print()
    if "(BC)" in str(value) or (isinstance(value, datetime.datetime) and value.year in (1, 9999)):
        raise not_supported("a date before Christ, or an infinite one in an array, is not supported in a query on system catalogs")
    return f"{value}+00" if kind == t.TIMESTAMPTZ and not str(value).endswith("infinity") else str(value)


def _list(values: Sequence[object], element: int, context: SessionContext) -> str:
    items = _texts(element, -1, values, context).to_pylist()
    return print_array(Shape([len(items)], [1]) if items else Shape([], []), items, ",")
