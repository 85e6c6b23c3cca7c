"""Evaluate a SELECT of constants and of functions of constants at plan time, without the catalog or Spark.

Called by `select`. A query that needs anything else (a table, a parameter, a function with side effects, or a function that the compiler
does not support) gets None, and is planned as usual.
"""

from __future__ import annotations

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.analysis import select_list
from headgate.analysis.query import PlanColumn, SelectItem
from headgate.commands.query.catalog import volatile_function
from headgate.commands.query.driver import table_rows, values_list
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.expression import columnwise
from headgate.expression.binding import binder
from headgate.expression.binding.scope import EMPTY
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Expression
from headgate.expression.node import walk as expressions
from headgate.expression.spark import compiler
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.session_time import planning
from headgate.sql.column_name import title
from headgate.sql.parser import unwrap, walk
from headgate.types.resultset import ResultSet
from headgate.types.text.text import read_text

_PLAIN = frozenset({"target_list", "limit_option", "op"})
_VARIABLE = frozenset({"ParamRef", "SubLink", "ColumnRef", "SetToDefault"})


def answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    """Return the result of one row, or None if the query is not constant."""
    if {field.name for field, _ in node.ListFields()} - _PLAIN or not node.target_list:
        return None
    if any(descendant.DESCRIPTOR.name in _VARIABLE or volatile_function.acts(descendant, session.functions) for descendant in walk(node)):
        return None
    try:
        return _answer(node, session)
    except (PostgresError, NotColumnwise):  # the engine that runs the query then raises the error
        return None


def _answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    evaluation = Evaluation(session)
    columns, arrays = [], []
    for place, item in enumerate(node.target_list):
        target = unwrap(item)
        [resolved] = select_list.resolve_unknown(_targets(target, evaluation), evaluation.context)
        kind = resolved.expression.type
        if not all(values_list.is_read_exactly(part.type.oid) for part in expressions(resolved.expression)):
            return None
        columns.append(PlanColumn(resolved.name, kind, str(place)))
        arrays.append(_value(evaluation.prepare(resolved.expression), evaluation))
    return table_rows.result(columns, arrays, session)


def _value(expression: Expression, evaluation: Evaluation) -> pa.Array:
    """Return a one-element array of the value in stored form. Raise NotColumnwise if only Spark can compute it."""
    kind = expression.type
    with planning(evaluation.time):
        planned = compiler.plan(expression)
    if planned.fields or (planned.constant is None and not planned.is_null):
        return columnwise.value(expression, {}, 1)
    return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)


def _targets(target: pb.ResTarget, evaluation: Evaluation) -> list[SelectItem]:
    expression = binder.bind_raw(target.val, EMPTY, evaluation.context)
    return [SelectItem(target.name or title(target.val), expression, target.val)]
