"""Functions of timestamps on single values, in microseconds since 1970: ± interval, age, date_bin, make_* (timestamp.c).

Called through `vectorised` from `implementation.datetime.timestamp` and `implementation.datetime.time_zone`. Intervals are their stored
text. Results outside PostgreSQL's range raise 22008. Results that only the stored form cannot represent (after 294247-01-10) raise 0A000.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from headgate.errors import PostgresError, not_supported
from headgate.expression.functions.datetime import interval
from headgate.types.datetime import calendar, time_zone
from headgate.types.datetime.calendar import DAY, INFINITE_DAY, INFINITE_MICROS, date_of, days_in_month, days_of, divmod_toward_zero
from headgate.types.datetime.field import Flaw, Flawed, displacement
from headgate.types.datetime.interval import Interval, normal

FIRST_DAY = -calendar.JULIAN_EPOCH
END_DAY = 106_762_940
"""294277-01-01, the first day after the range of timestamps."""
TOO_LATE = "cannot store a timestamp after 294247-01-10 04:00:54.775806"
_FIRST = FIRST_DAY * DAY
_END = END_DAY * DAY


def out_of_range() -> PostgresError:
    """Return 22008 for a timestamp."""
    return PostgresError("22008", "timestamp out of range")


def endless(micros: int) -> bool:
    """Return whether a timestamp is infinite."""
    return abs(micros) == INFINITE_MICROS


def storable(micros: int) -> int:
    """Return a finite timestamp if it can be stored. Raise 22008 or 0A000 otherwise."""
    if not _FIRST <= micros < _END:
        raise out_of_range()
    if micros >= INFINITE_MICROS:
        raise not_supported(TOO_LATE)
    return micros


def _month_moved(days: int, months: int) -> int:
    """Add months to a day. If the resulting month is shorter, return its last day."""
    year, month, day = date_of(days)
    year, month_index = divmod(year * 12 + month - 1 + months, 12)
    return _day(days_of(year, month_index + 1, min(day, days_in_month(year, month_index + 1))))


def _day(days: int) -> int:
    if not FIRST_DAY <= days < END_DAY:
        raise out_of_range()
    return days


def _move(micros: int, span: Interval) -> int:
    if endless(micros):
        return micros
    days, clock = divmod(micros, DAY)
    if span.months:
        days = _month_moved(days, span.months)
    if span.days:
        days = _day(days + span.days)
    return storable(days * DAY + clock + span.micros)


def moved(sign: int, micros: int, text: str) -> int:
    """Return timestamp ± interval."""
    return _move(micros, interval.signed(sign, text))


@functools.lru_cache(maxsize=64)
def _zone(name: str) -> time_zone.Zone:
    return time_zone.find(name)


def moved_by_offset(sign: int, span: str, micros: int) -> int:
    """Return AT TIME ZONE interval: to local time (1) or to the instant (-1)."""
    return micros if endless(micros) else storable(micros + sign * offset_of(span) * 1_000_000)


def offset_of(span: str) -> int:
    """Return the seconds east of UTC of an interval used as time zone. Raise 22023 if it has months or days."""
    interval_value = normal(span)
    if interval_value.months or interval_value.days:
        raise PostgresError("22023", f'interval time zone "{span}" must not include months or days')
    return (divmod_toward_zero(interval_value.micros, 1_000_000)[0] + 2**31) % 2**32 - 2**31


def offset_at(timezone: str, micros: int) -> int:
    """Return the zone's offset in microseconds at an instant."""
    return int(_zone(timezone).at(np.array([micros // 1_000_000], np.int64))[0]) * 1_000_000


def instant_of(timezone: str, local: int) -> int:
    return local - int(_zone(timezone).of_local(np.array([local // 1_000_000], np.int64))[0]) * 1_000_000


def moved_in_zone(sign: int, timezone: str, micros: int, text: str) -> int:
    """Return timestamptz ± interval."""
    if endless(micros):
        return micros
    span = interval.signed(sign, text)
    if span.months:
        days, clock = divmod(micros + offset_at(timezone, micros), DAY)
        micros = instant_of(timezone, _month_moved(days, span.months) * DAY + clock)
    if span.days:
        days, clock = divmod(micros + offset_at(timezone, micros), DAY)
        micros = instant_of(timezone, _day(days + span.days) * DAY + clock)
    return storable(micros + span.micros)


def of_date(days: int) -> int:
    """Return a date's midnight. Raise 22008 if the timestamp is out of range."""
    if abs(days) == INFINITE_DAY:
        return INFINITE_MICROS if days > 0 else -INFINITE_MICROS
    if days >= END_DAY:
        raise PostgresError("22008", "date out of range for timestamp")
    return days * DAY


def date_moved(sign: int, days: int, text: str) -> int:
    """Return date ± interval."""
    return moved(sign, of_date(days), text)


def _difference(left: int, right: int, *, before: bool) -> str:
    """Return the symbolic difference of two local times, counted from the one that is earlier as an instant."""
    late, early = (right, left) if before else (left, right)
    (late_days, late_clock), (early_days, early_clock) = divmod(late, DAY), divmod(early, DAY)
    (late_year, late_month, late_day), (year, month, day) = date_of(late_days), date_of(early_days)
    clock, days = late_clock - early_clock, late_day - day
    months = (late_year - year) * 12 + late_month - month
    if clock < 0:
        clock, days = clock + DAY, days - 1
    if days < 0:
        days, months = days + days_in_month(year, month), months - 1
    sign = -1 if before else 1
    return Interval(sign * months, sign * days, sign * clock).print()


def minus_moment(left: int, right: int) -> str:
    """Return timestamp - timestamp: whole days and the rest, both of one sign."""
    if endless(left) or endless(right):
        raise PostgresError("22008", "cannot subtract infinite timestamps")
    days, micros = divmod_toward_zero((left - right + 2**63) % 2**64 - 2**63, DAY)  # PostgreSQL 15 lets it wrap
    return Interval(0, days, micros).print()


def age(left: int, right: int) -> str:
    left, right = _as_counted(left), _as_counted(right)
    return _difference(left, right, before=left < right)


def age_in_zone(timezone: str, left: int, right: int) -> str:
    before = left < right
    left, right = (_as_counted(micros) + offset_at(timezone, micros) for micros in (left, right))
    return _difference(left, right, before=before)


def _as_counted(micros: int) -> int:
    """Return infinity as the number that PostgreSQL 15 uses here, the last microsecond of 64 bits since 2000. Raise 22008 for -infinity."""
    if not endless(micros):
        return micros
    if micros < 0:
        raise out_of_range()
    return micros + calendar.EPOCH_MICROS


def binned(text: str, micros: int, origin: int) -> int:
    """Return the start of the bin that contains the timestamp (timestamp_bin)."""
    if endless(micros):
        return micros
    if endless(origin):
        raise PostgresError("22008", "origin out of range")
    span = normal(text)
    if span.months:
        raise PostgresError("0A000", "timestamps cannot be binned into intervals containing months or years")
    stride = span.days * DAY + span.micros
    if not -(2**63) <= stride < 2**63:
        raise interval.out_of_range()
    if stride <= 0:
        raise PostgresError("22008", "stride must be greater than zero")
    if not -(2**63) <= micros - origin < 2**63:
        raise interval.out_of_range()
    return storable(micros - (micros - origin) % stride)


def _day_of(year: int, month: int, day: int) -> int:
    """Return the day of make_date. A year before 1 is negative."""
    date_text = f"{year}-{month:02d}-{day:02d}"
    astronomical = year + 1 if year < 0 else year
    if year == 0 or not 1 <= month <= 12 or not 1 <= day <= 31 or day > days_in_month(astronomical, month):
        raise PostgresError("22008", f"date field value out of range: {date_text}")
    days = days_of(astronomical, month, day)
    if days < FIRST_DAY or astronomical > 5_874_897:
        raise PostgresError("22008", f"date out of range: {date_text}")
    return days


def made_date(year: int, month: int, day: int) -> int:
    return _day_of(year, month, day)


def clock_of(hour: int, minute: int, second: float) -> int:
    """Return microseconds since midnight. Raise 22008 outside 00:00:00 … 24:00:00."""
    if 0 <= hour <= 24 and 0 <= minute < 60 and not math.isnan(second):
        micros = round(second * 1_000_000.0) if math.isfinite(second * 1_000_000.0) else -1
        total = (hour * 60 + minute) * 60_000_000 + micros
        if 0 <= micros <= 60_000_000 and total <= DAY:
            return total
    raise PostgresError("22008", f"time field value out of range: {hour}:{minute:02d}:{_two_digits(second)}")


def _two_digits(second: float) -> str:
    """Format seconds as C's ``%02g`` does."""
    return f"{second:02g}"


def made_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    days = _day_of(year, month, day)
    clock = clock_of(hour, minute, second)
    if days >= END_DAY:
        timestamp_text = f"{year}-{month:02d}-{day:02d} {hour}:{minute:02d}:{_two_digits(second)}"
        raise PostgresError("22008", f"timestamp out of range: {timestamp_text}")
    return storable(days * DAY + clock)


def made_in_zone(timezone: str, year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    return storable(instant_of(timezone, made_timestamp(year, month, day, hour, minute, second)))


def made_time(hour: int, minute: int, second: float) -> str:
    from headgate.types.datetime.timestamp import print_clock

    return print_clock(clock_of(hour, minute, second))


def made_at_zone(year: int, month: int, day: int, hour: int, minute: int, second: float, name: str) -> int:
    local = made_timestamp(year, month, day, hour, minute, second)
    east = _numeric_zone(name)
    if east is None:
        east = int(named_zone(name).of_local(np.array([local // 1_000_000], np.int64))[0])
    return storable(local - east * 1_000_000)


def _numeric_zone(name: str) -> int | None:
    """Return the seconds east of a numeric zone, as in the text of a timestamp, or None for a name (parse_sane_timezone)."""
    if name[:1].isdecimal():
        message = f'invalid input syntax for type numeric time zone: "{name}"'
        raise PostgresError("22023", message, hint='Numeric time zones must have "-" or "+" as first character.')
    try:
        return displacement(name)
    except Flawed as flawed:
        if flawed.flaw is Flaw.DISPLACEMENT:
            raise PostgresError("22023", f'numeric time zone "{name}" out of range') from flawed
        return None


@functools.lru_cache(maxsize=256)
def named_zone(name: str) -> time_zone.Zone:
    """Return the zone of AT TIME ZONE: an abbreviation, a name or a POSIX specification. Raise 22023 for anything else."""
    zone = time_zone.abbreviation(name.lower()) or time_zone.find_or_none(name)
    if zone is None:
        raise PostgresError("22023", f'time zone "{name}" not recognized')
    return zone


def local_at(name: str, micros: int) -> int:
    """Return timestamptz AT TIME ZONE, for a zone that is a column."""
    if endless(micros):
        return micros
    return storable(micros + int(named_zone(name).at(np.array([micros // 1_000_000], np.int64))[0]) * 1_000_000)


def instant_at(name: str, local: int) -> int:
    """Return timestamp AT TIME ZONE, for a zone that is a column."""
    if endless(local):
        return local
    return storable(local - int(named_zone(name).of_local(np.array([local // 1_000_000], np.int64))[0]) * 1_000_000)


def of_epoch(seconds: float) -> int:
    """Return to_timestamp(double precision)."""
    if math.isnan(seconds):
        raise PostgresError("22008", "timestamp cannot be NaN")
    if math.isinf(seconds):
        return INFINITE_MICROS if seconds > 0 else -INFINITE_MICROS
    if not FIRST_DAY * 86400.0 <= seconds < END_DAY * 86400.0:
        raise PostgresError("22008", f'timestamp out of range: "{seconds:g}"')
    return storable(round((seconds - 946_684_800.0) * 1_000_000.0) + calendar.EPOCH_MICROS)
