"""Type modifiers: ``numeric(10,2)``, ``varchar(5)``, ``timestamp(3)`` to and from the number in pg_attribute.atttypmod.

`registry` uses it to print types, `storage` and the column readers to apply a modifier, and the sql layer to read one. Types are
identified by their OIDs, so that this module does not depend on the registry. -1 always means "no modifier".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.errors import PostgresError

NONE: Final = -1
_HEADER: Final = 4  # VARHDRSZ: the modifiers of numeric, varchar and char count the varlena header
_NUMERIC: Final = 1700
_LENGTHS: Final = {1042: "character", 1043: "character varying", 1560: "bit", 1562: "bit varying"}
_TIMES: Final = {
    1083: ("time", " without time zone", "TIME"),
    1266: ("time", " with time zone", "TIME"),
    1114: ("timestamp", " without time zone", "TIMESTAMP"),
    1184: ("timestamp", " with time zone", "TIMESTAMP"),
}
_INTERVAL: Final = 1186
_FULL_RANGE: Final = 0x7FFF
_FULL_PRECISION: Final = 0xFFFF
_FIELDS: Final = {
    1 << 2: "year", 1 << 1: "month", 1 << 3: "day", 1 << 10: "hour", 1 << 11: "minute", 1 << 12: "second",
    1 << 2 | 1 << 1: "year to month", 1 << 3 | 1 << 10: "day to hour", 1 << 3 | 1 << 10 | 1 << 11: "day to minute",
    1 << 3 | 1 << 10 | 1 << 11 | 1 << 12: "day to second", 1 << 10 | 1 << 11: "hour to minute",
    1 << 10 | 1 << 11 | 1 << 12: "hour to second", 1 << 11 | 1 << 12: "minute to second",
}  # fmt: skip
"""The field restriction of an interval: bits as in PostgreSQL's datetime.h (INTERVAL_MASK)."""


def numeric(precision: int, scale: int = 0) -> int:
    """Return the modifier of ``numeric(p, s)``. Raise 22023 outside PostgreSQL's limits."""
    if not 1 <= precision <= 1000:
        raise PostgresError("22023", f"NUMERIC precision {precision} must be between 1 and 1000")
    if not -1000 <= scale <= 1000:
        raise PostgresError("22023", f"NUMERIC scale {scale} must be between -1000 and 1000")
    return (precision << 16 | scale & 0x7FF) + _HEADER


def numeric_parts(typmod: int) -> tuple[int, int] | None:
    """Return (precision, scale) of a numeric modifier, or None without one."""
    if typmod < _HEADER:
        return None
    bare = typmod - _HEADER
    return bare >> 16 & 0xFFFF, ((bare & 0x7FF) ^ 1024) - 1024


MAX_PRECISION: Final = 38
"""The highest precision of Arrow's decimal128, Spark and Delta."""


def decimal_parts(modifier: int) -> tuple[int, int] | None:
    """Return (precision, scale) if numeric with this modifier is stored as a decimal, or None if it is stored as text."""
    parts = numeric_parts(modifier)
    return parts if parts and parts[0] <= MAX_PRECISION and 0 <= parts[1] <= parts[0] else None


def length(oid: int, typmod: int) -> int | None:
    """Return the declared length of varchar(n), char(n) (characters), bit(n) and varbit(n) (bits), or None without one."""
    if typmod < 0:
        return None
    return typmod if oid in (1560, 1562) else typmod - _HEADER


def fraction_digits(oid: int, typmod: int) -> int | None:
    """Return the declared digits of seconds, 0 to 6, of time, timestamp (with or without zone) and interval, or None without them."""
    if typmod < 0:
        return None
    if oid == _INTERVAL:
        digits = typmod & _FULL_PRECISION
        return None if digits == _FULL_PRECISION else digits
    return typmod


def interval_fields(typmod: int) -> str | None:
    """Return the declared fields of an interval (``year to month``), or None for all of them."""
    if typmod < 0:
        return None
    fields = typmod >> 16 & _FULL_RANGE
    return None if fields == _FULL_RANGE else _FIELDS.get(fields)


def interval(fields: str | None, digits: int | None) -> int:
    """Return the modifier of ``interval fields (digits)``, or -1 if both are None. `fields` is a result of `interval_fields`."""
    if fields is None and digits is None:
        return NONE
    mask = _FULL_RANGE if fields is None else next(bits for bits, name in _FIELDS.items() if name == fields)
    return mask << 16 | (_FULL_PRECISION if digits is None else digits)


def from_arguments(oid: int, name: str, arguments: Sequence[int]) -> int:
    """Return the modifier of ``name(arguments)`` (typmodin). Raise 22023 or 42601 as PostgreSQL does.

    >>> from_arguments(1700, "numeric", [10, 2])
    655366
    """
    if not arguments:
        return NONE
    if oid == _NUMERIC:
        if len(arguments) > 2:
            raise PostgresError("22023", "invalid NUMERIC type modifier")
        return numeric(*arguments)
    if oid in _LENGTHS:
        return _length_modifier(oid, arguments)
    if oid in _TIMES or oid == _INTERVAL:
        if len(arguments) != 1:
            raise PostgresError("22023", "invalid type modifier")
        word = _TIMES[oid][2] if oid in _TIMES else "INTERVAL"
        zoned = " WITH TIME ZONE" if oid in (1266, 1184) else ""
        if arguments[0] < 0:
            raise PostgresError("22023", f"{word}({arguments[0]}){zoned} precision must not be negative")
        return interval(None, min(arguments[0], 6)) if oid == _INTERVAL else min(arguments[0], 6)
    raise PostgresError("42601", f'type modifier is not allowed for type "{name}"')


def _length_modifier(oid: int, arguments: Sequence[int]) -> int:
    word = {1042: "char", 1043: "varchar", 1560: "bit", 1562: "varbit"}[oid]
    bits = oid in (1560, 1562)
    limit = 83886080 if bits else 10485760
    if len(arguments) != 1:
        raise PostgresError("22023", "invalid type modifier")
    if arguments[0] < 1:
        raise PostgresError("22023", f"length for type {word} must be at least 1")
    if arguments[0] > limit:
        raise PostgresError("22023", f"length for type {word} cannot exceed {limit}")
    return arguments[0] if bits else arguments[0] + _HEADER


def print_type(oid: int, typmod: int) -> str:
    """Return the SQL spelling of a type with a modifier: ``numeric(10,2)``, ``timestamp(3) without time zone``.

    `typmod` must not be negative. The caller (`TypeRegistry.format_type`) prints names without a modifier.
    """
    if oid == _NUMERIC:
        parts = numeric_parts(typmod)
        return "numeric" if parts is None else f"numeric({parts[0]},{parts[1]})"
    if oid in _LENGTHS:
        return f"{_LENGTHS[oid]}({length(oid, typmod)})"
    if oid in _TIMES:
        word, zone, _ = _TIMES[oid]
        return f"{word}({typmod}){zone}"
    fields, digits = interval_fields(typmod), fraction_digits(_INTERVAL, typmod)
    return "interval" + (f" {fields}" if fields else "") + (f"({digits})" if digits is not None else "")
