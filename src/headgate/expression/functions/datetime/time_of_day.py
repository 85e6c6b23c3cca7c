"""Functions of time and time with time zone on their stored text, on single values: arithmetic, casts, fields (date.c).

Called through `vectorised` from `implementation.datetime.time_of_day` and `implementation.datetime.time_zone`. A time is microseconds
since midnight. A timetz also has seconds east of UTC.
"""

from __future__ import annotations

import numpy as np

from headgate.expression.functions.datetime import interval, timestamp
from headgate.types.datetime import time_zone
from headgate.types.datetime.calendar import DAY, INFINITE_DAY, INFINITE_MICROS, divmod_toward_zero
from headgate.types.datetime.interval import Interval, normal
from headgate.types.datetime.time_of_day import parts_of
from headgate.types.datetime.timestamp import print_clock, print_offset


def _print_zoned(micros: int, east: int) -> str:
    return print_clock(micros) + print_offset(east)


def _within_day(micros: int) -> int:
    return interval.wrapped(micros, interval.LONG) % DAY


def moved(sign: int, text: str, span: str) -> str:
    """Return time ± interval, modulo a day."""
    return print_clock(_within_day(parts_of(text)[0] + sign * normal(span).micros))


def zoned_moved(sign: int, text: str, span: str) -> str:
    """Return timetz ± interval (timetz_pl_interval, timetz_mi_interval)."""
    micros, east = parts_of(text)
    return _print_zoned(_within_day(micros + sign * normal(span).micros), east)


def difference(left: str, right: str) -> str:
    """Return time - time (time_mi_time)."""
    return Interval(micros=parts_of(left)[0] - parts_of(right)[0]).print()


def span_of(text: str) -> str:
    """Cast time to interval (time_interval)."""
    return Interval(micros=parts_of(text)[0]).print()


def of_span(span: str) -> str:
    """Cast interval to time (interval_time). Days of a negative interval are counted upwards, which overflows near the least interval."""
    micros = normal(span).micros
    if micros >= 0:
        return print_clock(micros % DAY)
    days, _ = divmod_toward_zero(interval.wrapped(DAY - 1 - micros, interval.LONG), DAY)
    return print_clock(interval.wrapped(micros + days * DAY, interval.LONG))


def without_zone(text: str) -> str:
    """Cast timetz to time (timetz_time)."""
    return print_clock(parts_of(text)[0])


def of_timestamp(micros: int) -> str | None:
    """Cast timestamp to time. Infinity becomes NULL."""
    return None if abs(micros) == INFINITE_MICROS else print_clock(micros % DAY)


def rounded(digits: int, text: str) -> str:
    """Round a time (time_scale), halves up, so that 23:59:59.9 may become 24:00:00."""
    return print_clock(_round(digits, parts_of(text)[0]))


def zoned_rounded(digits: int, text: str) -> str:
    """Round timetz to a precision (timetz_scale)."""
    micros, east = parts_of(text)
    return _print_zoned(_round(digits, micros), east)


def _round(digits: int, micros: int) -> int:
    if not 0 <= digits < 6:
        return micros
    unit: int = 10 ** (6 - digits)
    return (micros + unit // 2) // unit * unit


def on_date(days: int, text: str) -> int:
    """Return date + time."""
    if abs(days) == INFINITE_DAY:
        return timestamp.of_date(days)
    return timestamp.storable(timestamp.of_date(days) + parts_of(text)[0])


def zoned_on_date(days: int, text: str) -> int:
    """Return date + timetz, which is an instant."""
    if abs(days) == INFINITE_DAY:
        return timestamp.of_date(days)
    micros, east = parts_of(text)
    return timestamp.storable(timestamp.of_date(days) + micros - east * 1_000_000)


def on_date_in_zone(timezone: str, days: int, text: str) -> int:
    """Return timestamptz(date, time)."""
    if abs(days) == INFINITE_DAY:
        return timestamp.of_date(days)
    return timestamp.storable(timestamp.instant_of(timezone, timestamp.of_date(days) + parts_of(text)[0]))


def at_offset(span: str, text: str) -> str:
    """Return timetz AT TIME ZONE interval."""
    micros, east = parts_of(text)
    target = timestamp.offset_of(span)
    return _print_zoned((micros + (target - east) * 1_000_000) % DAY, target)


def local_of(timezone: str, micros: int) -> str | None:
    if abs(micros) == INFINITE_MICROS:
        return None
    return print_clock((micros + timestamp.offset_at(timezone, micros)) % DAY)


def zoned_of(timezone: str, micros: int) -> str | None:
    """Cast timestamptz to timetz."""
    if abs(micros) == INFINITE_MICROS:
        return None
    offset = timestamp.offset_at(timezone, micros)
    return _print_zoned((micros + offset) % DAY, offset // 1_000_000)


def with_zone(timezone: str, midnight: int, text: str) -> str:
    """Cast time to timetz, with the zone's offset at that time today (`midnight` is in local microseconds)."""
    micros = parts_of(text)[0]
    seconds = np.array([(midnight + micros) // 1_000_000], np.int64)
    return _print_zoned(micros, int(time_zone.find(timezone).of_local(seconds)[0]))


def at_zone(now: int, name: str, text: str) -> str:
    """Return timetz AT TIME ZONE, with the zone's current offset (`now` is in microseconds since 1970)."""
    micros, east = parts_of(text)
    target = int(timestamp.named_zone(name).at(np.array([now // 1_000_000], np.int64))[0])
    return _print_zoned((micros + (target - east) * 1_000_000) % DAY, target)
