"""Rewriting typed expressions: a new tree with some nodes replaced.

Called by the planner (aggregates become columns of the grouped frame), by RENAME COLUMN (names in stored expressions) and
for the CHECK constraints of domains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headgate.expression.node import Expression, names

Substitute = Callable[[Expression], Expression | None]


def rewrite(expression: Expression, substitute: Substitute) -> Expression:
    """The tree with each node for which `substitute` gives one replaced by that; the children of others are rewritten."""
    found = substitute(expression)
    if found is not None:
        return found
    changes = {}
    for each in names(type(expression)):
        value = getattr(expression, each)
        new = _rewritten(value, substitute)
        if new is not value:
            changes[each] = new
    return replace(expression, **changes) if changes else expression


def _rewritten(value: Any, substitute: Substitute) -> Any:
    if isinstance(value, Expression):
        return rewrite(value, substitute)
    if isinstance(value, tuple):
        new = tuple(_rewritten(item, substitute) for item in value)
        return new if any(one is not other for one, other in zip(new, value, strict=True)) else value
    return value
