"""Functions with side effects (pg_create_logical_replication_slot, pg_sleep, nextval, …) in a query on system relations.

Called by `query` if the planner found such calls (`CatalogPlanner.acting`). The SQL of a column shows them as ``<acting n>``. Each must be
called once per row of the result, after its arguments have been computed, and never for rows that are not in the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.procedure import called
from headgate.commands.query.catalog.relation_source import CatalogQuery, OutputColumn
from headgate.commands.query.catalog.select import CatalogPlanner
from headgate.commands.query.catalog.session_call import Acting, constant, python_value, result_rows
from headgate.errors import PostgresError
from headgate.expression.duckdb import cast
from headgate.expression.duckdb.value import quote
from headgate.sql.names import strings
from headgate.sql.parser import ParseNode, walk
from headgate.types import registry as t
from headgate.types.resultset import ResultColumn, ResultSet

Run = Callable[[CatalogPlanner, str], list[list[object]]]
"""A function that runs SQL and returns the columns of the result."""
_ACTING = r"<acting (\d+)>"
_DECIDING = frozenset({"CaseExpr", "CoalesceExpr", "BoolExpr", "SubLink"})
_NOT_STRICT = frozenset({"pg_stat_reset_subscription_stats", "set_config", "pg_stat_reset_replication_slot", "pg_notify"})


def answer(planner: CatalogPlanner, query: CatalogQuery, select: pb.SelectStmt, run: Run) -> ResultSet:
    """Answer a query with side-effect functions in its SELECT list.

    The query computes the arguments, then each function is called per row.
    """
    if not select.from_clause and not select.HasField("where_clause"):
        _settle_inner(planner, query, select, run)
    places: dict[int, tuple[Acting, int]] = {}
    hidden: list[OutputColumn] = []
    shown: list[OutputColumn] = []
    for place, column in enumerate(query.columns):
        matched = re.fullmatch(_ACTING, column.sql)
        if matched is None and "<acting " in column.sql:
            raise PostgresError("0A000", "a function that acts is only supported as a column of its own")
        if matched is not None:
            acting, arguments = planner.acting[int(matched[1])]
            places[place] = (acting, len(hidden))
            hidden += [OutputColumn("", argument, planner.sql(argument)) for argument in arguments]
            shown.append(replace(column, sql="CAST(NULL AS VARCHAR)"))
        else:
            shown.append(column)
    if len(places) != len(planner.acting):
        raise PostgresError("0A000", "a function that acts is only supported as a column of its own")
    count = len(shown)
    query.columns[:] = [*shown, *hidden]
    types = planner.types_of(query)
    printed = [
        cast.output(kind.oid, f"q.c{place}", planner) if place <= count and place - 1 not in places else f"q.c{place}"
        for place, kind in enumerate(types, 1)
    ]
    printed = [f"{sql} AS c{place}" for place, sql in enumerate(printed, 1)]
    table = run(planner, f"SELECT {', '.join(printed)} FROM ({query.build(types)}) q")
    columns = table
    results: dict[int, list[str | None]] = {place: [] for place in places}
    for row in range(len(table[0])):
        for place, (acting, first) in places.items():
            values = [
                python_value(columns[count + first + place_of_argument][row], acting.types[place_of_argument])
                for place_of_argument in range(len(acting.types))
            ]
            results[place].append(_call(planner, acting, values))
    result_columns = tuple(
        ResultColumn(column.name, places[place][0].result if place in places else types[place].oid) for place, column in enumerate(shown)
    )
    arrays = [pa.array(results[place] if place in places else columns[place], pa.string()) for place in range(count)]
    schema = pa.schema([pa.field(str(place), pa.string()) for place in range(count)])
    return ResultSet(result_columns, [pa.RecordBatch.from_arrays(arrays, schema=schema)])


def _settle_inner(planner: CatalogPlanner, query: CatalogQuery, select: pb.SelectStmt, run: Run) -> None:
    """Call the functions inside larger expressions of a one-row query, from left to right, and insert their values.

    Under CASE, COALESCE, AND or OR they stay and are rejected, because the call would depend on other values.
    """
    if any(acts(call, planner.functions) for node in walk(select) if node.DESCRIPTOR.name in _DECIDING for call in walk(node)):
        return
    for place, column in enumerate(query.columns):
        sql = column.sql
        # a row test names its function once per column, but the function must run once
        for number in [] if re.fullmatch(_ACTING, sql) else dict.fromkeys(int(digits) for digits in re.findall(_ACTING, sql)):
            acting, arguments = planner.acting[number]
            columns = run(planner, f"SELECT {', '.join(planner.sql(argument) for argument in arguments) or 'NULL'}")
            values = [python_value(cells[0], kind) for cells, kind in zip(columns, acting.types, strict=False)]
            row = _result(planner, acting, values)
            row_text = _row_text(planner, row, acting) if acting.procedure.outputs and row is not None else None
            value_sql = constant(row_text, t.TEXT) if acting.procedure.outputs else constant(None if row is None else row[0], acting.result)
            if acting.procedure.outputs and row is not None:
                sql = sql.replace(f"struct_extract(<acting {number}>,", f"struct_extract({_struct(row, acting)},")
            sql = sql.replace(f"<acting {number}>", value_sql)
        query.columns[place] = replace(column, sql=sql)
    remaining = {int(digits) for column in query.columns for digits in re.findall(_ACTING, column.sql)}
    planner.acting[:] = [call for number, call in enumerate(planner.acting) if number in remaining]
    for place, column in enumerate(query.columns):
        if (matched := re.fullmatch(_ACTING, column.sql)) is not None:
            query.columns[place] = replace(column, sql=f"<acting {sorted(remaining).index(int(matched[1]))}>")


def acts(node: ParseNode, functions: Container[str]) -> bool:
    """Return whether a parse tree node calls one of the functions with side effects, or one that reports the node's state."""
    return node.DESCRIPTOR.name == "FuncCall" and called(strings(node.funcname)) in functions


def _call(planner: CatalogPlanner, acting: Acting, values: list[object]) -> str | None:
    """Call a function for one row and return its result in text form."""
    row = _result(planner, acting, values)
    if row is None:
        return None
    return _row_text(planner, row, acting) if acting.procedure.outputs else _text(planner, row[0], acting.result)


def _result(planner: CatalogPlanner, acting: Acting, values: list[object]) -> Sequence[object] | None:
    """Call a function. Return None if it is strict and an argument is NULL."""
    procedure = acting.procedure
    if procedure.required and any(value is None for value in values) and acting.name not in _NOT_STRICT:
        return None
    [row, *_] = result_rows(planner.functions[acting.name], values, procedure) or [(None,)]
    return row


def _row_text(planner: CatalogPlanner, row: Sequence[object], acting: Acting) -> str:
    parts = [_text(planner, value, kind) for value, (_, kind) in zip(row, acting.procedure.outputs, strict=True)]
    return "(" + ",".join("" if part is None else part for part in parts) + ")"


def _struct(row: Sequence[object], acting: Acting) -> str:
    """Return the row as a DuckDB struct literal, from which a field can be extracted."""
    parts = (f"{quote(name)}: {constant(value, kind)}" for value, (name, kind) in zip(row, acting.procedure.outputs, strict=True))
    return "{" + ", ".join(parts) + "}"


def _text(planner: CatalogPlanner, value: object, kind: int) -> str | None:
    if kind == t.VOID:
        return ""
    if value is None:
        return None
    [row] = planner.cursor.execute(f"SELECT {cast.output(kind, constant(value, kind), planner)}").fetchall()
    return None if row[0] is None else str(row[0])
