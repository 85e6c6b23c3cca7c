"""Session and catalog functions in a query on tables: the catalogs evaluate each call once, and its value becomes a constant.

Called by `evaluation` for calls with constant arguments that the Spark compiler does not support: current_setting, current_schema,
txid_current, has_table_privilege, pg_relation_size, … Functions with side effects (nextval, pg_sleep, set_config) must not be called from
here. A query calls those as separate columns, and rejects them elsewhere.
"""

from __future__ import annotations

from headgate.analysis.query import FromItem, PlanColumn, Query, Select, SelectItem
from headgate.commands.query.catalog import query
from headgate.commands.query.catalog.session_call import STABLE, has_form
from headgate.commands.session import Session
from headgate.expression.binding import operators
from headgate.expression.binding.context import BindContext
from headgate.expression.node import BOOLEAN, INTEGER, Case, Const, Expression, FuncExpr, NullTest


def call(node: FuncExpr, session: Session) -> Const | None:
    """Return the value of a call with constant arguments, or None if the catalogs have no form of the function."""
    return value(node, session) if has_form(node, session.functions) else None


def blocking_pids(node: FuncExpr, session: Session, context: BindContext) -> Case:
    """Translate pg_blocking_pids of a row's process to a CASE over the processes that are blocked now."""
    [pid] = node.args
    waiting = [(blocked, pids) for blocked, pids in session.dynamic["blockers"]() if isinstance(pids, list)]
    same = [operators.make(["="], pid, Const(type=INTEGER, value=str(blocked)), context, -1) for blocked, _ in waiting]
    arrays = [Const(type=node.type, value="{" + ",".join(map(str, pids)) + "}") for _, pids in waiting]
    unknown, nothing = NullTest(type=BOOLEAN, arg=pid, is_null=True), Const(type=node.type, value=None)
    empty = Const(type=node.type, value="{}")
    return Case(type=node.type, arg=None, conditions=(unknown, *same), results=(nothing, *arrays), default=empty)


def value(node: Expression, session: Session) -> Const:
    """Return the value of an expression of session functions. Raise 0A000 for side effects."""
    stable_functions = {name: function for name, function in session.functions.items() if name in STABLE}
    select = Query(Select(FromItem(), targets=(SelectItem("", node),)), (PlanColumn("", node.type, "value"),))
    result = query.answer(select, session.context, session.begin_statement().cursor, session.dynamic, stable_functions)
    [batch] = result.batches
    return Const(type=node.type, value=batch.column(0)[0].as_py())
