"""The operators by which types are sorted and grouped: for ORDER BY, DISTINCT, GROUP BY, set operations and aggregates.

Called by the binder and by `analysis`. A type that has none raises 42883, whichever engine would run the query.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.binding.context import BindContext
from headgate.expression.location import location_of
from headgate.expression.node import Expression
from headgate.types import registry

_EQUAL = 3
"""The btree strategy number of equality."""
_ACLITEM = 1033
_ONLY_EQUAL = (registry.XID, registry.CID, _ACLITEM)
"""Types with an equality operator and without an order."""
_SORTED_AS = {
    registry.VARCHAR: registry.TEXT,
    registry.CIDR: registry.INET,
    **dict.fromkeys((registry.REGPROC, registry.REGCLASS, registry.REGTYPE, registry.REGROLE, registry.REGNAMESPACE), registry.OID),
    # regprocedure, regoper, regoperator, regconfig, regdictionary, regcollation
    **dict.fromkeys((2202, 2203, 2204, 3734, 3769, 4191), registry.OID),
}
"""Types without an operator class of their own, and the type whose class they use (they are binary coercible to it)."""


def ordering_operator(oid: int, strategy: int, context: BindContext) -> int | None:
    """Return the operator of a type's default btree class with this strategy (1 <, 3 =, 5 >), or None if the type cannot be sorted."""

    def is_supported(part: int) -> bool:
        return (strategy == _EQUAL and part in _ONLY_EQUAL) or ordering_operator(part, strategy, context) is not None

    table = builtin.builtins().ordering
    base = context.base_type(oid)
    operator = table.get((base, strategy))
    if operator is not None:
        return operator
    if base in _SORTED_AS:
        return table.get((_SORTED_AS[base], strategy))
    type_ = context.types.find(base)
    if type_ is not None and (type_.is_array or type_.is_vector):
        return table.get((registry.ANYARRAY, strategy)) if is_supported(type_.element) else None
    if type_ is not None and type_.kind is registry.TypeKind.ENUM:
        return table.get((registry.ANYENUM, strategy))
    if type_ is not None and type_.kind in (registry.TypeKind.RANGE, registry.TypeKind.MULTIRANGE):
        return table.get((registry.ANYRANGE if type_.kind is registry.TypeKind.RANGE else registry.ANYMULTIRANGE, strategy))
    if type_ is not None and type_.attributes:
        return table.get((registry.RECORD, strategy)) if all(is_supported(field.type_oid) for field in type_.attributes) else None
    return None


def require_order(expression: Expression, location: int) -> None:
    """Raise 42883 for a type without an ordering operator (json, xml, point)."""
    context = BindContext()
    if ordering_operator(expression.type.oid, 1, context) is None:
        shown = context.show_type(expression.type.oid)
        raise PostgresError(
            "42883",
            f"could not identify an ordering operator for type {shown}",
            hint="Use an explicit ordering operator or modify the query.",
            location=location,
        )


def require_equality(expression: Expression) -> None:
    """Raise 42883 for a type without an equality operator (json, xml, point)."""
    context = BindContext()
    if ordering_operator(expression.type.oid, _EQUAL, context) is None and expression.type.oid not in _ONLY_EQUAL:
        shown = context.show_type(expression.type.oid)
        raise PostgresError("42883", f"could not identify an equality operator for type {shown}", location=location_of(expression))


def require_distinct(args: Sequence[Expression]) -> None:
    """Raise 42883 if an aggregate with DISTINCT cannot compare and sort its arguments."""
    for argument in args:
        require_equality(argument)
        context = BindContext()
        if ordering_operator(argument.type.oid, 1, context) is None:
            raise PostgresError(
                "42883",
                f"could not identify an ordering operator for type {context.show_type(argument.type.oid)}",
                detail="Aggregates with DISTINCT must be able to sort their inputs.",
                location=location_of(argument),
            )
