"""EXTRACT and date_part of times and intervals on their stored text, on single values (time_part_common, interval_part_common).

Called through `vectorised` from `implementation.datetime.extract`. `exact_…` returns numeric's text with PostgreSQL's scale, `double_…` its
double, which is added up in binary. The caller has checked the unit with `has_…`.
"""

from __future__ import annotations

from headgate.types.datetime.calendar import divmod_toward_zero
from headgate.types.datetime.interval import Interval, normal
from headgate.types.datetime.time_of_day import parts_of

TIME_UNITS = frozenset({"hour", "minute", "second", "millisecond", "microsecond", "epoch"})
TIMETZ_UNITS = TIME_UNITS | {"timezone", "timezone_hour", "timezone_minute"}
_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
INTERVAL_UNITS = TIME_UNITS | _YEARS.keys() | {"month", "quarter", "day"}


def scaled(number: int, digits: int) -> str:
    """Return a number of 10^-digits units as numeric."""
    whole, rest = divmod(abs(number), 10**digits)
    return f"{'-' if number < 0 else ''}{whole}" + (f".{rest:0{digits}d}" if digits else "")


def _exact_clock(unit: str, micros: int) -> str:
    if unit == "hour":
        return str(divmod_toward_zero(micros, 3_600_000_000)[0])
    if unit == "minute":
        return str(divmod_toward_zero(divmod_toward_zero(micros, 60_000_000)[0], 60)[1])
    second = divmod_toward_zero(micros, 60_000_000)[1]
    return scaled(second, {"second": 6, "millisecond": 3, "microsecond": 0}[unit])


def _double_clock(unit: str, micros: int) -> float:
    if unit not in ("second", "millisecond"):
        return float(_exact_clock(unit, micros))
    whole, fraction = divmod_toward_zero(divmod_toward_zero(micros, 60_000_000)[1], 1_000_000)
    return whole + fraction / 1_000_000.0 if unit == "second" else whole * 1000.0 + fraction / 1000.0


def exact_time(unit: str, text: str) -> str:
    """Return EXTRACT of a time (extract_time)."""
    micros = parts_of(text)[0]
    return scaled(micros, 6) if unit == "epoch" else _exact_clock(unit, micros)


def double_time(unit: str, text: str) -> float:
    """Return date_part of a time (time_part)."""
    micros = parts_of(text)[0]
    return micros / 1_000_000.0 if unit == "epoch" else _double_clock(unit, micros)


def _zone(unit: str, east: int) -> int:
    if unit == "timezone":
        return east
    return divmod_toward_zero(east, 3600)[0] if unit == "timezone_hour" else divmod_toward_zero(divmod_toward_zero(east, 60)[0], 60)[1]


def exact_timetz(unit: str, text: str) -> str:
    """Return EXTRACT of a timetz (extract_timetz)."""
    micros, east = parts_of(text)
    if unit.startswith("timezone"):
        return str(_zone(unit, east))
    return scaled(micros - east * 1_000_000, 6) if unit == "epoch" else _exact_clock(unit, micros)


def double_timetz(unit: str, text: str) -> float:
    """Return date_part of a timetz (timetz_part)."""
    micros, east = parts_of(text)
    if unit.startswith("timezone"):
        return float(_zone(unit, east))
    return micros / 1_000_000.0 - east if unit == "epoch" else _double_clock(unit, micros)


def _months(unit: str, span: Interval) -> int:
    years, months = divmod_toward_zero(span.months, 12)
    if unit == "month":
        return months
    return divmod_toward_zero(months, 3)[0] + 1 if unit == "quarter" else divmod_toward_zero(years, _YEARS[unit])[0]


def exact_interval(unit: str, text: str) -> str:
    """Return EXTRACT of an interval (extract_interval)."""
    span = normal(text)
    if unit == "epoch":
        years, months = divmod_toward_zero(span.months, 12)
        return scaled((years * 1461 + months * 120 + span.days * 4) * 21_600_000_000 + span.micros, 6)
    if unit == "day":
        return str(span.days)
    return _exact_clock(unit, span.micros) if unit in TIME_UNITS else str(_months(unit, span))


def double_interval(unit: str, text: str) -> float:
    """Return date_part of an interval (interval_part)."""
    span = normal(text)
    if unit == "epoch":
        years, months = divmod_toward_zero(span.months, 12)
        total = span.micros / 1_000_000.0 + (365.25 * 86400) * years
        return total + (30.0 * 86400) * months + 86400.0 * span.days
    return _double_clock(unit, span.micros) if unit in TIME_UNITS else float(exact_interval(unit, text))
