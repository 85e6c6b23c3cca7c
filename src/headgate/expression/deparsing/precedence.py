"""Decide which parentheses the pretty form needs: whether an expression binds tighter than its parent (isSimpleNode of ruleutils.c).

Called by `deparse`.
"""

from __future__ import annotations

import re

from headgate.expression import builtin
from headgate.expression import node as n

_SEPARATED = (n.UserCall, n.Subscript, n.ArrayExpr, n.RowExpr, n.Coalesce, n.MinMax, n.NullIf, n.Aggregate, n.Case, n.WindowCall)
_SIMPLE = (
    n.ColumnRef, n.Const, n.Param, n.SetToDefault, n.Subscript, n.ArrayExpr, n.RowExpr, n.Coalesce, n.MinMax, n.SqlValue,
    n.NullIf, n.Aggregate, n.FuncExpr, n.UserCall, n.Case, n.WindowCall, n.Grouping,
)  # fmt: skip


def is_simple(expression: n.Expression, parent: n.Expression) -> bool:
    """Return whether the pretty form prints the node below `parent` without parentheses (isSimpleNode)."""
    if isinstance(expression, _SIMPLE):
        return True
    if isinstance(expression, n.FieldSelect):
        return not isinstance(parent, n.FieldSelect)
    if isinstance(expression, (n.Relabel, n.CoerceViaIO, n.ArrayCoerce, n.RowCoerce)):
        return is_simple(expression.arg, expression)
    if isinstance(expression, n.OpExpr) and isinstance(parent, n.OpExpr):
        return _binds_tighter(expression, parent)
    if isinstance(expression, (n.OpExpr, n.SubLink, n.NullTest, n.BooleanTest, n.Distinct)):
        return isinstance(parent, (n.BoolExpr, *_SEPARATED)) or (isinstance(parent, n.FuncExpr) and parent.form is n.Form.CALL)
    if isinstance(expression, n.BoolExpr):
        if isinstance(parent, n.BoolExpr):
            if expression.kind is n.BoolKind.OR:
                return parent.kind is n.BoolKind.OR
            return parent.kind in (n.BoolKind.AND, n.BoolKind.OR)
        return isinstance(parent, _SEPARATED) or (isinstance(parent, n.FuncExpr) and parent.form is n.Form.CALL)
    return False


def _binds_tighter(expression: n.OpExpr, parent: n.OpExpr) -> bool:
    own, above = _simple_name(expression), _simple_name(parent)
    if own is None or above is None or own not in "+-*/%" or above not in "+-*/%":
        return False
    high, high_above = own in "*/%", above in "*/%"
    if high != high_above:
        return high
    return expression is parent.args[0]


def _simple_name(node: n.OpExpr) -> str | None:
    name = builtin.operator(node.operator).name
    return name if len(node.args) == 2 and re.fullmatch(r".", name) else None
