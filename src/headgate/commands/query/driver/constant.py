"""A SELECT of constants and of functions of them: computed when it is planned, with neither the catalog nor Spark.

Called by `select`. What is not known when it is planned (a table, a parameter, a function that acts or that the compiler has not)
makes the answer None, and the query goes its usual way.
"""

from __future__ import annotations

import pyarrow as pa
from postgast import pg_query_pb2 as pb

from headgate.commands.query.catalog import volatile_function
from headgate.commands.query.clause import select_list
from headgate.commands.query.driver import table_rows, values_list
from headgate.commands.query.evaluation import Evaluation
from headgate.commands.query.plan import PlanColumn
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
from headgate.sql.parser import unwrap, walk
from headgate.types.resultset import ResultSet
from headgate.types.text.text import read_text

_PLAIN = frozenset({"target_list", "limit_option", "op"})
_VARIABLE = frozenset({"ParamRef", "SubLink", "ColumnRef", "SetToDefault"})


def answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    """The one row, or None."""
    if {field.name for field, _ in node.ListFields()} - _PLAIN or not node.target_list:
        return None
    if any(each.DESCRIPTOR.name in _VARIABLE or volatile_function.acts(each, session.functions) for each in walk(node)):
        return None
    try:
        return _answer(node, session)
    except (PostgresError, NotColumnwise):  # the way that can answer says what is wrong
        return None


def _answer(node: pb.SelectStmt, session: Session) -> ResultSet | None:
    evaluation = Evaluation(session)
    columns, arrays = [], []
    for place, item in enumerate(node.target_list):
        written = unwrap(item)
        [found] = select_list.resolve_unknown(_targets(written, evaluation), evaluation.context)
        kind = found.expression.type
        if not all(values_list.is_read_exactly(each.type.oid) for each in expressions(found.expression)):
            return None
        columns.append(PlanColumn(found.name, kind, str(place)))
        arrays.append(_value(evaluation.prepare(found.expression), evaluation))
    return table_rows.result(columns, arrays, session)


def _value(expression: Expression, evaluation: Evaluation) -> pa.Array:
    """An array of the one value in stored form; NotColumnwise where only Spark has it."""
    kind = expression.type
    with planning(evaluation.time):
        planned = compiler.plan(expression)
    if planned.fields or (planned.constant is None and not planned.is_null):
        return columnwise.value(expression, {}, 1)
    return read_text(pa.array([as_item(planned, kind).constant], pa.string()), kind.oid, kind.typmod)


def _targets(written: pb.ResTarget, evaluation: Evaluation) -> list[select_list.SelectItem]:
    expression = binder.bind_raw(written.val, EMPTY, evaluation.context)
    return [select_list.SelectItem(written.name or select_list.figure_name(written.val), expression, written.val)]
