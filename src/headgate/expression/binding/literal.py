"""Literals: the text of a constant, read by its type's input function and printed by its output function, when it is bound.

Called by `coercion` alone. ``a = '05'`` becomes the constant 5, ``c = 'today'`` today's date, ``d > '2020-01-01'`` an instant by
the session's TimeZone and in the order of its DateStyle, exactly once. What is kept is in ISO and in IntervalStyle postgres, so
that it reads the same in any session. The types' own floor reads and prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import PostgresError
from headgate.types import registry, text_cache
from headgate.types.text import text

if TYPE_CHECKING:
    from headgate.expression.binding.context import BindContext

_PASS = frozenset({registry.TEXT, registry.VARCHAR, registry.BPCHAR, registry.UNKNOWN, registry.CSTRING})

_FIXED = frozenset(
    {
        registry.BOOL,
        registry.CHAR,
        registry.INT2,
        registry.INT4,
        registry.INT8,
        registry.OID,
        registry.TEXT_ARRAY,
        registry.PG_LSN,
        registry.REGCLASS,
        registry.REGTYPE,
        registry.REGPROC,
        registry.REGNAMESPACE,
        registry.REGROLE,
        registry.NAME_ARRAY,
    }
)
"""Types whose constants are the same in every session and at every moment."""


@text_cache.cached(2048)
def _fixed(value: str, oid: int, modifier: int) -> str:
    return text.normal_form(value, oid, modifier)


def read(value: str, oid: int, modifier: int, context: BindContext) -> str:
    """Return the constant's normal text form; raise what the type's input function raises (22P02, 22003, 22007, 22008, …)."""
    if oid in _PASS:
        return value
    if oid == registry.NAME:
        return value.encode()[:63].decode(errors="ignore")
    if oid in _FIXED:
        return _fixed(value, oid, modifier)
    kind = context.types.by_oid(oid)
    if kind.kind is registry.TypeKind.PSEUDO:
        raise PostgresError("0A000", f"cannot accept a value of type {kind.name}")
    return text.normal_form(value, oid, modifier, session=context.forms, registry=context.types)
