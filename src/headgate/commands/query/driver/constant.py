"""Evaluate a SELECT of constants and of functions of constants at plan time, without the catalog or Spark.

Called by `answer`. A query with a parameter or a subquery is refused. A function that the compiler does not support raises NotColumnwise.
"""

from __future__ import annotations

import pyarrow as pa

from headgate.analysis.query import Query, Select
from headgate.commands.query.driver import table_rows, values_list
from headgate.commands.query.planner import Planner
from headgate.expression import columnwise
from headgate.expression.node import Expression, Param, SubLink, walk
from headgate.expression.spark import compiler
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.session_time import planning
from headgate.types.resultset import ResultSet
from headgate.types.text.text import read_text


def refusal(query: Query, select: Select) -> str | None:
    """Return the reason why the driver does not take a query without FROM, or None if it does."""
    parts = [part for target in select.targets for part in walk(target.expression)]
    if not query.only_projects or any(isinstance(part, Param | SubLink) for part in parts):
        return "not a constant"
    if not all(values_list.is_read_exactly(part.type.oid) for part in parts):
        return "a type whose values are read elsewhere"
    return None


def answer(planner: Planner, query: Query, select: Select) -> ResultSet:
    """Return the result of one row."""
    with table_rows.usual_way_says():
        return table_rows.result(query.columns, [_value(planner, target.expression) for target in select.targets], planner.session)


def _value(planner: Planner, target: Expression) -> pa.Array:
    """Return a one-element array of the value in stored form. Raise NotColumnwise if only Spark can compute it."""
    expression, kind = planner.prepare(target), target.type
    with planning(planner.evaluation.time):
        planned = compiler.plan(expression)
    if planned.fields or (planned.constant is None and not planned.is_null):
        return columnwise.value(expression, {}, 1)
    return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)
