"""Values of the session in an expression: parameters, now(), CURRENT_DATE, CURRENT_USER, made constants before it is compiled.

Called by the query and DML planners once per execution, so that all rows see one moment and one user, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from headgate.errors import not_supported
from headgate.expression import builtin, literal
from headgate.expression.context import BindContext
from headgate.expression.node import Const, Expression, FuncExpr, Param, SqlValue, SubLink, TypeRef
from headgate.types import registry

_NOW = frozenset({"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp"})


@dataclass(frozen=True)
class SessionValues:
    """What one execution keeps. `parameters`: the text of each $n, None for NULL. `moment`: the transaction's start."""

    moment: datetime = field(default_factory=lambda: datetime.now(UTC))
    user: str = "postgres"
    session_user: str = "postgres"
    database: str = "postgres"
    schema: str | None = "public"
    timezone: str = "UTC"
    parameters: Mapping[int, str | None] = field(default_factory=dict)


def settle(expression: Expression, values: SessionValues, context: BindContext | None = None) -> Expression:
    """The expression with parameters and session values as constants. 22P02 and its like for a parameter its type cannot read."""
    reading = context or BindContext(timezone=values.timezone)

    def changed(node: Expression) -> Expression:
        if isinstance(node, Param):
            return _parameter(node, values, reading)
        if isinstance(node, SqlValue):
            return _session_value(node, values, reading)
        if isinstance(node, FuncExpr) and (made := _function(node, values, reading)) is not None:
            return made
        return node

    return rewrite(expression, changed)


def rewrite(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The tree with `change` applied to every node, operands first; equal subtrees are kept as they are."""
    if isinstance(expression, SubLink):
        return change(expression)
    updates = {}
    for each in fields(expression):
        old = getattr(expression, each.name)
        new = _rewrite_field(old, change)
        if new is not old:
            updates[each.name] = new
    return change(replace(expression, **updates) if updates else expression)


def _rewrite_field(value: Any, change: Callable[[Expression], Expression]) -> Any:
    if isinstance(value, Expression):
        return rewrite(value, change)
    if isinstance(value, tuple):
        made = tuple(_rewrite_field(each, change) for each in value)
        return value if all(new is old for new, old in zip(made, value, strict=True)) else made
    return value


def _parameter(node: Param, values: SessionValues, context: BindContext) -> Const:
    text = values.parameters.get(node.number)
    return Const(type=node.type, value=None if text is None else literal.read(text, node.type.oid, -1, context), location=node.location)


def _session_value(node: SqlValue, values: SessionValues, context: BindContext) -> Const:
    names = {
        "CURRENT_USER": values.user,
        "USER": values.user,
        "CURRENT_ROLE": values.user,
        "SESSION_USER": values.session_user,
        "CURRENT_CATALOG": values.database,
        "CURRENT_SCHEMA": values.schema,
    }
    if node.name in names:
        return Const(type=node.type, value=names[node.name], location=node.location)
    return _moment(node.type, values, context)


def _moment(kind: TypeRef, values: SessionValues, context: BindContext) -> Const:
    local = values.moment.astimezone(ZoneInfo(values.timezone))
    shown = {
        registry.DATE: f"{local:%Y-%m-%d}",
        registry.TIMESTAMP: f"{local:%Y-%m-%d %H:%M:%S.%f}",
        registry.TIME: f"{local:%H:%M:%S.%f}",
        registry.TIMESTAMPTZ: f"{values.moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00",
    }.get(kind.oid)
    if shown is None:
        raise not_supported("CURRENT_TIME is not supported: use LOCALTIME")
    return Const(type=TypeRef(kind.oid, -1, kind.collation), value=literal.read(shown, kind.oid, kind.typmod, context))


def _function(node: FuncExpr, values: SessionValues, context: BindContext) -> Expression | None:
    name = builtin.function(node.function).name
    if name in _NOW and not node.args:
        return _moment(node.type, values, context)
    text = {
        "current_database": values.database,
        "current_schema": values.schema,
        "current_user": values.user,
        "session_user": values.session_user,
    }
    if name in text and not node.args:
        return Const(type=node.type, value=text[name], location=node.location)
    return None
