"""Functions of intervals on their stored text, on single values: arithmetic, justify_*, make_interval, date_trunc (timestamp.c).

Called through `vectorised` from `implementation.datetime.time_of_day`. Overflow raises 22008 "interval out of range".
"""

from __future__ import annotations

import math

from headgate.errors import PostgresError
from headgate.types.datetime.calendar import DAY, divmod_toward_zero
from headgate.types.datetime.interval import Interval, adjusted, normal

_INT = 2**31
LONG = 2**63
"""Half of the range of 64 bits, for `wrapped`."""


def out_of_range() -> PostgresError:
    """Return 22008 for an interval."""
    return PostgresError("22008", "interval out of range")


def checked(months: int, days: int, micros: int) -> Interval:
    """Return the interval of three numbers. Raise 22008 if one is out of range."""
    if not (-_INT <= months < _INT and -_INT <= days < _INT and -LONG <= micros < LONG):
        raise out_of_range()
    return Interval(months, days, micros)


def signed(sign: int, text: str) -> Interval:
    """Return an interval, negated if the sign is -1. Its numbers are not checked (`checked`)."""
    return normal(text) if sign > 0 else normal(text).negated()


def added(sign: int, left: str, right: str) -> str:
    """Return interval ± interval (interval_pl, interval_mi)."""
    a, b = normal(left), signed(sign, right)
    return checked(a.months + b.months, a.days + b.days, a.micros + b.micros).print()


def negated(text: str) -> str:
    """Return - interval (interval_um)."""
    span = normal(text)
    return checked(-span.months, -span.days, -span.micros).print()


def _round_seconds(seconds: float) -> float:
    """Round seconds to microseconds (TSROUND)."""
    return _rint(seconds * 1_000_000.0) / 1_000_000.0


def _rint(value: float) -> float:
    return float(round(value)) if math.isfinite(value) else value


def _int(value: float) -> int:
    """Cast a double to int as C does on x86."""
    if not -_INT - 1 < value < _INT:
        return -_INT
    return int(value)


def _field(value: float) -> int:
    if not -_INT <= value < _INT:  # NaN is neither
        raise out_of_range()
    return int(value)


def _scale(months: float, days: float, micros: float) -> str:
    """Return an interval of fractional fields. Fractions of months become days, those of days seconds."""
    month, day = _field(months), _field(days)
    rest_days = _round_seconds((months - month) * 30)
    rest = _round_seconds((days - day + rest_days - _int(rest_days)) * 86400)
    if abs(rest) >= 86400:
        over = _int(rest / 86400)
        day += over
        rest -= over * 86400
    total = _rint(micros + rest * 1_000_000.0)
    if math.isnan(total) or not -float(LONG) <= total < float(LONG):
        raise out_of_range()
    return checked(month, day + _int(rest_days), int(total)).print()


def times(text: str, factor: float) -> str:
    """Return interval * double precision (interval_mul)."""
    span = normal(text)
    return _scale(span.months * factor, span.days * factor, span.micros * factor)


def over(text: str, divisor: float) -> str:
    """Return interval / double precision (interval_div)."""
    if divisor == 0:
        raise PostgresError("22012", "division by zero")
    span = normal(text)
    return _scale(span.months / divisor, span.days / divisor, span.micros / divisor)


def _one_sign(large: int, small: int, unit: int, low: int = 0) -> tuple[int, int]:
    """Give both numbers the same sign by exchanging one of `large` for `unit` of `small`. `low` decides the sign if `small` is 0."""
    if large > 0 and (small < 0 or (small == 0 and low < 0)):
        return large - 1, small + unit
    if large < 0 and (small > 0 or (small == 0 and low > 0)):
        return large + 1, small - unit
    return large, small


def justify_hours(text: str) -> str:
    """Convert full 24 hours to days (interval_justify_hours)."""
    span = normal(text)
    days, micros = divmod_toward_zero(span.micros, DAY)
    total = checked(0, span.days + days, 0).days
    day, rest = _one_sign(total, micros, DAY)
    return Interval(span.months, day, rest).print()


def justify_days(text: str) -> str:
    """Convert full 30 days to months (interval_justify_days)."""
    span = normal(text)
    months, days = divmod_toward_zero(span.days, 30)
    total = checked(span.months + months, 0, 0).months
    month, day = _one_sign(total, days, 30)
    return Interval(month, day, span.micros).print()


def justify_interval(text: str) -> str:
    """Convert full 24 hours to days and full 30 days to months, with equal signs (interval_justify_interval)."""
    span = normal(text)
    whole_days, micros = divmod_toward_zero(span.micros, DAY)
    months, days = divmod_toward_zero(span.days + whole_days, 30)
    total = checked(span.months + months, 0, 0).months
    month, day = _one_sign(total, days, 30, micros)
    day, rest = _one_sign(day, micros, DAY)
    return Interval(month, day, rest).print()


def made(years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, hours: int = 0, minutes: int = 0, seconds: float = 0.0) -> str:
    """Return an interval of these fields (make_interval)."""
    if not math.isfinite(seconds):
        raise out_of_range()
    micros = _rint(seconds * 1_000_000.0)
    whole = int(micros) if -LONG <= micros < LONG else -LONG
    clock = hours * 3_600_000_000 + minutes * 60_000_000 + whole
    return Interval(wrapped(years * 12 + months, _INT), wrapped(weeks * 7 + days, _INT), wrapped(clock, LONG)).print()


def wrapped(value: int, half: int) -> int:
    """Wrap an integer to the range from `-half` to `half - 1`, because PostgreSQL 15 does not check every overflow."""
    return (value + half) % (2 * half) - half


def modified(modifier: int, text: str) -> str:
    """Apply the fields and the precision of a type modifier (interval_scale)."""
    return adjusted(normal(text), modifier).print()


_MONTHS = {"millennium": 12000, "century": 1200, "decade": 120, "year": 12, "quarter": 3, "month": 1}
_MICROS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000, "microsecond": 1}
TRUNCATED = frozenset({*_MONTHS, *_MICROS, "day"})
"""The units that date_trunc takes for intervals."""


def truncated(unit: str, text: str) -> str:
    """Truncate an interval to one of `TRUNCATED` (interval_trunc)."""
    span = normal(text)
    if unit in _MONTHS:
        return Interval(span.months - divmod_toward_zero(span.months, _MONTHS[unit])[1]).print()
    if unit == "day":
        return Interval(span.months, span.days).print()
    return Interval(span.months, span.days, span.micros - divmod_toward_zero(span.micros, _MICROS[unit])[1]).print()


def summed(months: str, days: str, micros: str) -> str:
    """Return sum(interval) from the sums of its fields, which are numeric."""
    return checked(int(months), int(days), int(micros)).print()


def months_of(text: str) -> int:
    return normal(text).months


def days_of(text: str) -> int:
    return normal(text).days


def micros_of(text: str) -> int:
    """Return the microseconds of an interval."""
    return normal(text).micros
