"""Checks which nodes a row filter contains (check_simple_rowfilter_expr of publicationcmds.c; manual, 31.3.2).

Called by `filter` on the bound expression. The first node that is not allowed, parents before children, raises 0A000 ``invalid
publication WHERE expression`` with the reason as DETAIL and the position of the node.
"""

from __future__ import annotations

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.binding.context import BindContext
from headgate.expression.location import location_of
from headgate.sql.parser import ParseNode, walk
from headgate.types.registry import FIRST_USER_OID

SYSTEM_COLUMN = "System columns are not allowed."
OPERATOR = "User-defined operators are not allowed."
TYPE = "User-defined types are not allowed."
FUNCTION = "User-defined or built-in mutable functions are not allowed."
COLLATION = "User-defined collations are not allowed."
NODE = (
    "Only columns, constants, built-in operators, built-in data types, built-in collations, and immutable built-in functions are allowed."
)
_SIMPLE = (
    n.ColumnRef, n.Const, n.FuncExpr, n.BoolExpr, n.Relabel, n.Collate, n.Case, n.CaseTest, n.ArrayExpr, n.RowExpr, n.Coalesce,
    n.MinMax, n.NullTest, n.BooleanTest, n.OpExpr, n.Distinct, n.NullIf, n.ScalarArrayOp, n.RowCompare,
)  # fmt: skip


def check(expression: n.Expression, context: BindContext) -> None:
    """Raise 0A000 for an expression that PostgreSQL does not allow in a publication's WHERE."""
    for node in n.walk(expression):
        detail = refusal(node)
        if detail is not None:
            raise PostgresError("0A000", "invalid publication WHERE expression", detail=detail, location=location_of(node))


def refuse_named_arguments(where: ParseNode) -> None:
    """Raise 0A000 for ``name => value`` in a call. PostgreSQL has a separate node for it, which a filter may not contain."""
    for node in walk(where):
        if node.DESCRIPTOR.name == "NamedArgExpr":
            raise PostgresError("0A000", "invalid publication WHERE expression", detail=NODE, position=node.location + 1)


def refusal(node: n.Expression) -> str | None:
    """Return the DETAIL for a node that a filter may not contain, or None."""
    if not isinstance(node, _SIMPLE) or isinstance(node, n.DomainCoerce):
        return NODE
    if isinstance(node, n.ColumnRef) and node.attnum < 0:
        return SYSTEM_COLUMN
    if any(operator >= FIRST_USER_OID for operator in _operators(node)):
        return OPERATOR
    if node.type.oid >= FIRST_USER_OID or _whole_row(node):
        return TYPE
    if any(_mutable(function) for function in _functions(node)):
        return FUNCTION
    if node.type.collation >= FIRST_USER_OID:
        return COLLATION
    return None


def _whole_row(node: n.Expression) -> bool:
    return isinstance(node, n.ColumnRef) and node.attnum == 0


def _operators(node: n.Expression) -> tuple[int, ...]:
    if isinstance(node, (n.OpExpr, n.Distinct, n.NullIf, n.ScalarArrayOp)):
        return (node.operator,)
    return node.operators if isinstance(node, n.RowCompare) else ()


def _functions(node: n.Expression) -> tuple[int, ...]:
    if isinstance(node, n.FuncExpr):
        return (node.function,)
    return tuple(builtin.operator(operator).function for operator in _operators(node))


def _mutable(oid: int) -> bool:
    return oid >= FIRST_USER_OID or builtin.function(oid).volatility != "i"
