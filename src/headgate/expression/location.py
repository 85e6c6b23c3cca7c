"""The position of a typed expression in the source text: that of its leftmost token, to which PostgreSQL's errors point (exprLocation).

Called by the binder and its parts, the planner and the row filter's checks, for the position of an error.
"""

from __future__ import annotations

from headgate.expression.node import (
    ArrayCoerce,
    BooleanTest,
    BoolExpr,
    CoerceViaIO,
    Collate,
    Distinct,
    Expression,
    FieldSelect,
    FuncExpr,
    NullIf,
    NullTest,
    OpExpr,
    Relabel,
    RowCoerce,
    RowCompare,
    ScalarArrayOp,
    SubLink,
    Subscript,
)


def location_of(expression: Expression) -> int:
    """Return the byte offset of the expression's leftmost token (exprLocation), or -1 if unknown."""
    match expression:
        case FuncExpr(args=args) | OpExpr(args=args) | Distinct(args=args) | NullIf(args=args) | ScalarArrayOp(args=args):
            return _leftmost(expression.location, *(location_of(operand) for operand in args))
        case BoolExpr(args=args):
            return _leftmost(expression.location, *(location_of(operand) for operand in args[:1]))
        case RowCompare(left=left):
            return location_of(left[0]) if left else -1
        case Relabel(arg=arg) | CoerceViaIO(arg=arg) | ArrayCoerce(arg=arg) | NullTest(arg=arg) | BooleanTest(arg=arg) | RowCoerce(arg=arg):
            return _leftmost(expression.location, location_of(arg))
        case SubLink(test=Expression() as test):
            return _leftmost(expression.location, location_of(test))
        case Collate(arg=arg) | FieldSelect(arg=arg) | Subscript(arg=arg):
            return location_of(arg)
        case _:
            return expression.location


def _leftmost(*locations: int) -> int:
    return min((location for location in locations if location >= 0), default=-1)
