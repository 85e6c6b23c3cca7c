"""Compare values in text form by the keys of their type (`types.order`). Called through `vectorised`, for `implementation`."""

from __future__ import annotations

from headgate.expression.functions import array
from headgate.types import order


def is_met(test: str, oid: int, left: str, right: str) -> bool:
    """Return the result of the comparison operator `test`."""
    if left == right:
        return test in ("=", "<=", ">=")
    key = order.remembered(oid)
    return array.TESTS[test](key(left), key(right))


def compared(oid: int, left: str, right: str) -> int:
    """Return -1, 0 or 1, as a btree operator class does."""
    key = order.remembered(oid)
    left_key, right_key = key(left), key(right)
    return (left_key > right_key) - (left_key < right_key)


def extreme(oid: int, larger: bool, left: str, right: str) -> str:
    """Return the larger or the smaller value."""
    return left if (compared(oid, left, right) > 0) is larger else right
