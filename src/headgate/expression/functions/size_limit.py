"""Limit the size of a value before it is created.

PostgreSQL limits a value to a gigabyte (MaxAllocSize), and each function has its own error message. A node computes in Java's heap and
in workers with limited memory, which statements share. A value that would take a large part of them raises 53200 for its statement only.
"""

from __future__ import annotations

from headgate.errors import PostgresError

ALLOCATED = 0x3FFFFFFF
"""The largest size of an allocation in PostgreSQL (MaxAllocSize)."""
HEADER = 4
"""The number of bytes in front of the content of a text value."""
HELD = 64 << 20
"""The largest size in bytes of a value that a node builds from smaller ones."""
_ITEMS = 1 << 26
"""The limit for elements of an array built one by one: doubling their list again would exceed MaxAllocSize (accumArrayResult)."""


def out_of_memory(size: int) -> PostgresError:
    """Return 53200 for a value of this size in bytes."""
    return PostgresError("53200", "out of memory", detail=f"Failed on request of size {size}.")


def text(size: int) -> None:
    """Check the size of a text that is built in a buffer (enlargeStringInfo)."""
    if size >= ALLOCATED:
        detail = f"Cannot enlarge string buffer containing 0 bytes by {size} more bytes."
        raise PostgresError("54000", "out of memory", detail=detail)
    _check_held(size)


def items(count: int, size: int) -> None:
    """Check the number of elements of an array whose text has about `size` bytes."""
    if count > _ITEMS:
        raise PostgresError("XX000", f"invalid memory alloc request size {ALLOCATED + 1}")
    _check_held(max(count, size))


def _check_held(size: int) -> None:
    if size > HELD:
        raise out_of_memory(size)
