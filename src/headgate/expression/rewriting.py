"""Rewrite typed expressions: build a new tree in which some nodes are replaced.

Called by the planner (aggregates become columns of the grouped frame), by RENAME COLUMN (names in stored expressions) and
for the CHECK constraints of domains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headgate.expression.node import BOOLEAN, BoolKind, Case, Const, Expression, NullTest, Param, UserCall, joined, names

Substitute = Callable[[Expression], Expression | None]


def rewrite(expression: Expression, substitute: Substitute) -> Expression:
    """Return the tree in which each node is replaced by the result of `substitute`, or rewritten recursively if that is None."""
    replacement = substitute(expression)
    if replacement is not None:
        return replacement
    changes = {}
    for name in ("args",) if isinstance(expression, UserCall) else names(type(expression)):
        value = getattr(expression, name)
        new = _rewrite_value(value, substitute)
        if new is not value:
            changes[name] = new
    return replace(expression, **changes) if changes else expression


def _rewrite_value(value: Any, substitute: Substitute) -> Any:
    if isinstance(value, Expression):
        return rewrite(value, substitute)
    if isinstance(value, tuple):
        new = tuple(_rewrite_value(item, substitute) for item in value)
        return new if any(rewritten_item is not old_item for rewritten_item, old_item in zip(new, value, strict=True)) else value
    return value


def inlined(call: UserCall) -> Expression:
    """Return the body of a call with the arguments in place of the parameters; NULL for a NULL argument of a STRICT function."""
    assert call.body is not None
    body = rewrite(call.body, lambda node: call.args[node.number - 1] if isinstance(node, Param) else None)
    if not call.strict or not call.args:
        return body
    missing = joined(BoolKind.OR, [NullTest(type=BOOLEAN, arg=argument, is_null=True) for argument in call.args])
    return Case(type=call.type, arg=None, conditions=(missing,), results=(Const(type=call.type, value=None),), default=body)
