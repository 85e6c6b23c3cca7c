"""Where a typed expression stands in the text: the location of its leftmost token, which PostgreSQL's errors point to (exprLocation).

Called by the binder and its parts, the planner and the row filter's checks, each for the position of an error.
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
    """PostgreSQL's exprLocation: the leftmost token of the expression, as a byte offset; -1 if unknown."""
    match expression:
        case FuncExpr(args=args) | OpExpr(args=args) | Distinct(args=args) | NullIf(args=args) | ScalarArrayOp(args=args):
            return _leftmost(expression.location, *(location_of(each) for each in args))
        case BoolExpr(args=args):
            return _leftmost(expression.location, *(location_of(each) for each in args[:1]))
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
    return min((each for each in locations if each >= 0), default=-1)
