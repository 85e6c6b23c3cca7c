"""Evaluate a SELECT without FROM at plan time, without the catalog or Spark.

Called by `answer`. The expressions may have subqueries that the driver answers: scalar ones and EXISTS. They run only when the value of the
expression needs them. Parameters are refused beside constants only. A function that the driver cannot evaluate raises NotColumnwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from headgate.analysis.query import Limit, PlanColumn, Query, Select, SelectItem
from headgate.commands.query import row_by_row
from headgate.commands.query.catalog import answer as catalog
from headgate.commands.query.driver import table_rows, values_list
from headgate.commands.query.planner import Planner
from headgate.commands.query.row_evaluator import RowEvaluator
from headgate.errors import PostgresError
from headgate.expression import columnwise, rewriting
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import BOOLEAN, INTEGER, ColumnRef, Const, Expression, FuncExpr, Param, SubLink, TypeRef, walk
from headgate.expression.spark import compiler
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.session_time import planning
from headgate.types import registry
from headgate.types.resultset import ResultSet
from headgate.types.text.text import read_text


def refusal(query: Query, select: Select, refuse: Callable[[Query], str | None]) -> str | None:
    """Return the reason why the driver does not take a query without FROM, or None if it does. `refuse`: the same for a subquery."""
    parts = [part for target in select.targets for part in walk(target.expression)]
    links = [part for part in parts if isinstance(part, SubLink)]
    if not query.only_projects or (not links and any(isinstance(part, Param) for part in parts)):
        return "not a constant"
    if any(isinstance(part, FuncExpr) and catalog.acts(part) for part in parts):
        return "a function that acts"
    if not all(values_list.is_read_exactly(part.type.oid) for part in parts):
        return "a type whose values are read elsewhere"
    return next((reason for link in links if (reason := _refusal_of(link, refuse)) is not None), None)


def _refusal_of(link: SubLink, refuse: Callable[[Query], str | None]) -> str | None:
    if link.kind not in ("EXPR", "EXISTS") or not isinstance(link.query, Query):
        return "a subquery"
    return refuse(_answered(link))


def _answered(link: SubLink) -> Query:
    """Return the query of a SubLink. Of EXISTS only one row is read, and no column."""
    query: Query = link.query
    select = query.body
    if link.kind != "EXISTS" or not isinstance(select, Select) or select.grouped is not None or query.limit is not None:
        return query
    column = PlanColumn("exists", INTEGER, "exists")
    target = SelectItem("exists", Const(type=INTEGER, value="1"))
    body = replace(select, targets=(target,), distinct=False, on=())
    return replace(
        query, body=body, columns=(column,), sorts=(), limit=Limit(Const(type=TypeRef(registry.INT8), value="1"), None, with_ties=False)
    )


def answer(planner: Planner, query: Query, select: Select, run: Callable[[Query], ResultSet]) -> ResultSet:
    """Return the result of one row. `run`: returns the result of a subquery."""
    calls = any(row_by_row.calls_session(target.expression) for target in select.targets)
    try:
        return table_rows.result(query.columns, [_value(planner, target.expression, run) for target in select.targets], planner.session)
    except PostgresError as error:
        if error.sqlstate in table_rows.CANCELLED or (calls and error.sqlstate != "0A000"):
            raise  # the next engine would call a function of a user again
        raise NotColumnwise(error.sqlstate) from error


def _value(planner: Planner, target: Expression, run: Callable[[Query], ResultSet]) -> pa.Array:
    """Return a one-element array of the value in stored form. Raise NotColumnwise if only Spark can compute it."""
    links: dict[str, SubLink] = {}

    def placed(node: Expression) -> Expression | None:
        if not isinstance(node, SubLink):
            return None
        key = f"subquery{len(links)}"
        links[key] = node
        return ColumnRef(type=node.type, name=key, attnum=1, key=key)

    expression, kind = planner.prepare(rewriting.rewrite(target, placed)), target.type
    if links:
        text = RowEvaluator(planner.evaluation.time, lambda column: _subquery(links[column.key], run)).constant(expression).value
        return read_text(pa.array([text], pa.string()), kind.oid, kind.typmod)
    with planning(planner.evaluation.time):
        planned = compiler.plan(expression)
    if planned.fields or (planned.constant is None and not planned.is_null):
        return columnwise.value(expression, {}, 1)
    return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)


def _subquery(link: SubLink, run: Callable[[Query], ResultSet]) -> Const:
    rows = (row for batch in run(_answered(link)) for row in batch.to_pylist())
    first = next(rows, None)
    if link.kind == "EXISTS":
        return Const(type=BOOLEAN, value="f" if first is None else "t")
    if next(rows, None) is not None:
        raise PostgresError("21000", "more than one row returned by a subquery used as an expression")
    return Const(type=link.type, value=None if first is None else next(iter(first.values())))
