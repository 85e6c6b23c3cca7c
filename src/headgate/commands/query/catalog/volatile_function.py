"""Functions with side effects (pg_drop_replication_slot, pg_sleep, nextval, …) in the SELECT list of a query on system relations.

Called by `query`. Each must be called once per row of the result, after its arguments have been computed, and never for rows that are not
in the result. The calls are taken out of the query before it is compiled, because the compiler rejects them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from headgate.analysis.query import FromItem, PlanColumn, Query, Select, SelectItem
from headgate.catalog import procedure
from headgate.catalog.procedure import Procedure
from headgate.commands.query.catalog import session_call
from headgate.commands.query.catalog.planner import CatalogPlanner
from headgate.commands.query.catalog.session_call import constant, python_value, result_rows, spread
from headgate.errors import not_supported
from headgate.expression import builtin, rewriting
from headgate.expression.duckdb import cast
from headgate.expression.node import BoolExpr, Case, Coalesce, ColumnRef, Const, Expression, FuncExpr, RowExpr, SubLink, TypeRef, walk
from headgate.types import registry as t
from headgate.types.resultset import ResultColumn, ResultSet

Run = Callable[[CatalogPlanner, str], list[list[object]]]
"""A function that runs SQL and returns the columns of the result."""
_DECIDING = (Case, Coalesce, BoolExpr, SubLink)
_NOT_STRICT = frozenset({"pg_stat_reset_subscription_stats", "set_config", "pg_stat_reset_replication_slot", "pg_notify"})


def acts(node: Expression, functions: Collection[str]) -> bool:
    """Return whether a node calls one of the functions with side effects."""
    return isinstance(node, FuncExpr) and session_call.acts(node, functions)


def has_acting(query: Query, functions: Collection[str]) -> bool:
    """Return whether a call in the SELECT list has side effects."""
    body = query.body
    return isinstance(body, Select) and any(acts(node, functions) for target in body.targets for node in walk(target.expression))


def is_one_row(query: Query) -> bool:
    """Return whether a query is a SELECT list without FROM whose result is one row."""
    body = query.body
    if not isinstance(body, Select) or type(body.source) is not FromItem or not query.only_projects:
        return False
    nodes = (node for target in body.targets for node in walk(target.expression))
    return not any(map(builtin.returns_set, nodes))


def settled(planner: CatalogPlanner, expression: Expression, run: Run) -> Expression:
    """Call the functions in an expression of a one-row query, from left to right. Return the expression over their values.

    Under CASE, COALESCE, AND or OR they stay and are rejected, because the call would depend on other values.
    """
    done: dict[tuple[int, Expression], Expression] = {}

    def called(node: Expression) -> Expression | None:
        if isinstance(node, _DECIDING):
            return node
        if not isinstance(node, FuncExpr) or not acts(node, planner.functions):
            return None
        # a row test names its function once per column, but the function must run once
        place = (node.location, node)
        if place not in done:
            done[place] = _value(planner, replace(node, args=tuple(rewriting.rewrite(argument, called) for argument in node.args)), run)
        return done[place]

    return rewriting.rewrite(expression, called)


def _value(planner: CatalogPlanner, node: FuncExpr, run: Run) -> Expression:
    """Call a function with arguments that need no row. Return its value as an expression."""
    args, chosen = spread(node), _permitted(planner, node)
    columns = run(planner, f"SELECT {', '.join(planner.sql(argument) for argument in args) or 'NULL'}")
    row = _result(planner, node, chosen, [python_value(cells[0], arg.type.oid) for cells, arg in zip(columns, args, strict=False)])
    if row is None:
        return Const(type=node.type, value=None)
    fields = node.type.fields or (("", node.type),)
    # a key that no FROM item has is SQL
    values = [
        ColumnRef(type=TypeRef(kind.oid), name=name, attnum=1, key=constant(value, kind.oid))
        for value, (name, kind) in zip(row, fields, strict=True)
    ]
    return RowExpr(type=node.type, args=tuple(values), names=tuple(name for name, _ in fields)) if node.type.fields else values[0]


def answer(planner: CatalogPlanner, query: Query, run: Run) -> ResultSet:
    """Answer a query of several rows with functions in its SELECT list. The query computes the arguments, then each is called per row."""
    select = query.body
    assert isinstance(select, Select)
    places: dict[int, tuple[FuncExpr, int]] = {}
    shown: list[Expression] = []
    hidden: list[Expression] = []
    for place, target in enumerate(select.targets):
        call = target.expression
        if isinstance(call, FuncExpr) and acts(call, planner.functions):
            places[place] = call, len(hidden)
            hidden += spread(call)
            shown.append(Const(type=TypeRef(t.TEXT), value=None))
        else:
            shown.append(call)
    if select.distinct or select.on:
        raise not_supported("a function that acts is not supported in SELECT DISTINCT")
    targets = tuple(SelectItem("", expression) for expression in [*shown, *hidden])
    columns = tuple(PlanColumn("", target.expression.type, f"hg_{place}") for place, target in enumerate(targets))
    sql = planner.query(replace(query, body=replace(select, targets=targets), columns=columns))
    printed = [
        cast.output(column.type.oid, f"q.c{place}", planner) if place <= len(shown) and place - 1 not in places else f"q.c{place}"
        for place, column in enumerate(columns, 1)
    ]
    table = run(planner, f"SELECT {', '.join(printed)} FROM ({sql}) q")
    permitted = {place: _permitted(planner, call) for place, (call, _) in places.items()}
    results: dict[int, list[str | None]] = {place: [] for place in places}
    for row in range(len(table[0])):
        for place, (call, first) in places.items():
            cells = table[len(shown) + first :]
            values = [python_value(cell[row], arg.type.oid) for cell, arg in zip(cells, spread(call), strict=False)]
            results[place].append(_text_of(planner, call, _result(planner, call, permitted[place], values)))
    arrays = [pa.array(results[place] if place in places else table[place], pa.string()) for place, _ in enumerate(shown)]
    schema = pa.schema([pa.field(str(place), pa.string()) for place, _ in enumerate(shown)])
    result_columns = tuple(ResultColumn(column.name, column.type.oid) for column in query.columns)
    return ResultSet(result_columns, [pa.RecordBatch.from_arrays(arrays, schema=schema)])


def _permitted(planner: CatalogPlanner, call: FuncExpr) -> Procedure:
    """Return the called function. Raise 42501 if the user may not call it, and 0A000 if the node does not have it."""
    chosen, name = procedure.procedures()[call.function], session_call.called(call)
    if name not in planner.functions:
        raise not_supported(f"function {name} is not supported", location=call.location)
    if chosen.is_set:
        raise not_supported(f"function {name} is only supported in FROM", location=call.location)
    session_call.check_right(planner, chosen)
    return chosen


def _result(planner: CatalogPlanner, call: FuncExpr, chosen: Procedure, values: Sequence[object]) -> Sequence[object] | None:
    """Call a function. Return None if it is strict and an argument is NULL."""
    name = session_call.called(call)
    if chosen.required and any(value is None for value in values) and name not in _NOT_STRICT:
        return None
    [row, *_] = result_rows(planner.functions[name], values, chosen) or [(None,)]
    return row


def _text_of(planner: CatalogPlanner, call: FuncExpr, row: Sequence[object] | None) -> str | None:
    if row is None:
        return None
    if not call.type.fields:
        return _text(planner, row[0], call.type.oid)
    texts = [_text(planner, value, kind.oid) for value, (_, kind) in zip(row, call.type.fields, strict=True)]
    return "(" + ",".join("" if text is None else text for text in texts) + ")"


def _text(planner: CatalogPlanner, value: object, kind: int) -> str | None:
    if kind == t.VOID:
        return ""
    if value is None:
        return None
    [row] = planner.cursor.execute(f"SELECT {cast.output(kind, constant(value, kind), planner)}").fetchall()
    return None if row[0] is None else str(row[0])
