"""Functions that act (pg_create_logical_replication_slot, pg_sleep, nextval, …) in a query on system relations.

Called by `query` for a query in which the writer met some (`Rewriter.acting`): in the SQL of a column they are ``<acting n>``. What must
hold: each is called once per row of the query, after its arguments have been computed, and never for a row that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.catalog.query.cast import output
from headgate.catalog.query.from_function import result_rows
from headgate.catalog.query.procedure import called
from headgate.catalog.query.rewrite import Rewriter
from headgate.catalog.query.scope import Query
from headgate.catalog.query.session_call import Acting, constant, python_value
from headgate.catalog.query.value import TypedSql, quote
from headgate.errors import PostgresError
from headgate.sql.names import strings
from headgate.sql.parser import ParseNode, walk
from headgate.types import registry as t
from headgate.types.resultset import ResultColumn, ResultSet

Run = Callable[[Rewriter, str], list[list[Any]]]
"""Runs SQL; gives its columns."""
_ACTING = r"<acting (\d+)>"
_DECIDING = frozenset({"CaseExpr", "CoalesceExpr", "BoolExpr", "SubLink"})
_NOT_STRICT = frozenset({"pg_stat_reset_subscription_stats", "set_config", "pg_stat_reset_replication_slot", "pg_notify"})


def answer(rewriter: Rewriter, query: Query, select: pb.SelectStmt, run: Run) -> ResultSet:
    """A select list with functions that act: their arguments come from the query, then each is called once per row."""
    if not select.from_clause and not select.HasField("where_clause"):
        _settle_inner(rewriter, query, select, run)
    places: dict[int, tuple[Acting, int]] = {}
    hidden: list[tuple[str, TypedSql]] = []
    shown: list[tuple[str, TypedSql]] = []
    for place, (name, value) in enumerate(query.columns):
        matched = re.fullmatch(_ACTING, value.sql)
        if matched is None and "<acting " in value.sql:
            raise PostgresError("0A000", "a function that acts is only supported as a column of its own")
        if matched is not None:
            acting, arguments = rewriter.acting[int(matched[1])]
            places[place] = (acting, len(hidden))
            hidden += [("", argument) for argument in arguments]
            shown.append((name, TypedSql("CAST(NULL AS VARCHAR)", t.VARCHAR)))
        else:
            shown.append((name, value))
    if len(places) != len(rewriter.acting):
        raise PostgresError("0A000", "a function that acts is only supported as a column of its own")
    count = len(shown)
    query.columns[:] = [*shown, *hidden]
    types = [t.VARCHAR if place in places else kind for place, kind in enumerate(query.types())]
    printed = [
        output(TypedSql(f"q.c{place + 1}", kind), rewriter.names) if place < count and place not in places else f"q.c{place + 1}"
        for place, kind in enumerate(types)
    ]
    printed = [f"{sql} AS c{place}" for place, sql in enumerate(printed, 1)]
    table = run(rewriter, f"SELECT {', '.join(printed)} FROM ({query.build(types)}) q")
    columns = table
    results: dict[int, list[str | None]] = {place: [] for place in places}
    for row in range(len(table[0])):
        for place, (acting, first) in places.items():
            values = [python_value(columns[count + first + each][row], acting.types[each]) for each in range(len(acting.types))]
            results[place].append(_call(rewriter, acting, values))
    given = tuple(ResultColumn(name, places[place][0].result if place in places else types[place]) for place, (name, _) in enumerate(shown))
    arrays = [pa.array(results[place] if place in places else columns[place], pa.string()) for place in range(count)]
    schema = pa.schema([pa.field(str(place), pa.string()) for place in range(count)])
    return ResultSet(given, [pa.RecordBatch.from_arrays(arrays, schema=schema)])


def _settle_inner(rewriter: Rewriter, query: Query, select: pb.SelectStmt, run: Run) -> None:
    """Calls the functions that act inside larger expressions, from left to right, and puts their values there: there is only one row.

    Under CASE, COALESCE, AND or OR they stay, and are refused: whether they are called there depends on other values.
    """
    if any(acts(call, rewriter.functions) for each in walk(select) if each.DESCRIPTOR.name in _DECIDING for call in walk(each)):
        return
    for place, (name, value) in enumerate(query.columns):
        sql = value.sql
        for number in [] if re.fullmatch(_ACTING, sql) else [int(each) for each in re.findall(_ACTING, sql)]:
            acting, arguments = rewriter.acting[number]
            found = run(rewriter, f"SELECT {', '.join(each.sql for each in arguments) or 'NULL'}")
            values = [python_value(column[0], kind) for column, kind in zip(found, acting.types, strict=False)]
            row = _result(rewriter, acting, values)
            told = _row_text(rewriter, row, acting) if acting.procedure.outputs and row is not None else None
            made = constant(told, t.TEXT) if acting.procedure.outputs else constant(None if row is None else row[0], acting.result)
            if acting.procedure.outputs and row is not None:
                sql = sql.replace(f"struct_extract(<acting {number}>,", f"struct_extract({_struct(row, acting)},")
            sql = sql.replace(f"<acting {number}>", made.sql)
        query.columns[place] = (name, replace(value, sql=sql))
    kept = {int(each) for _, value in query.columns for each in re.findall(_ACTING, value.sql)}
    rewriter.acting[:] = [each for number, each in enumerate(rewriter.acting) if number in kept]
    for place, (name, value) in enumerate(query.columns):
        if (matched := re.fullmatch(_ACTING, value.sql)) is not None:
            query.columns[place] = (name, replace(value, sql=f"<acting {sorted(kept).index(int(matched[1]))}>"))


def acts(node: ParseNode, functions: Container[str]) -> bool:
    """Whether a node of a tree calls one of the functions that act or that tell of the node's state."""
    return node.DESCRIPTOR.name == "FuncCall" and called(strings(node.funcname)) in functions


def _call(rewriter: Rewriter, acting: Acting, values: list[Any]) -> str | None:
    """Calls one function for one row; its result in text form."""
    row = _result(rewriter, acting, values)
    if row is None:
        return None
    return _row_text(rewriter, row, acting) if acting.procedure.outputs else _text(rewriter, row[0], acting.result)


def _result(rewriter: Rewriter, acting: Acting, values: list[Any]) -> Sequence[Any] | None:
    """Calls one function; None where it is strict and an argument is NULL."""
    procedure = acting.procedure
    if procedure.required and any(value is None for value in values) and acting.name not in _NOT_STRICT:
        return None
    [row, *_] = result_rows(rewriter.functions[acting.name], values, acting.keywords, procedure) or [(None,)]
    return row


def _row_text(rewriter: Rewriter, row: Sequence[Any], acting: Acting) -> str:
    parts = [_text(rewriter, value, kind) for value, (_, kind) in zip(row, acting.procedure.outputs, strict=True)]
    return "(" + ",".join("" if part is None else part for part in parts) + ")"


def _struct(row: Sequence[Any], acting: Acting) -> str:
    """The row as DuckDB's struct, of which a field can be taken."""
    parts = (f"{quote(name)}: {constant(value, kind).sql}" for value, (name, kind) in zip(row, acting.procedure.outputs, strict=True))
    return "{" + ", ".join(parts) + "}"


def _text(rewriter: Rewriter, value: object, kind: int) -> str | None:
    if kind == t.VOID:
        return ""
    if value is None:
        return None
    [found] = rewriter.cursor.execute(f"SELECT {output(constant(value, kind), rewriter.names)}").fetchall()
    return None if found[0] is None else str(found[0])
