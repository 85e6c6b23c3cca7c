"""PostgreSQL's calendar: proleptic Gregorian days since 1970-01-01, with years before 1 (1 BC is year 0).

Used by `decoder`, `timestamp_input`, `timestamp` and `interval`, and by functions of dates. Days are those of Arrow's date32. The epoch of
PostgreSQL itself is 2000-01-01.

Infinite dates and timestamps are stored as the largest and smallest integers, which no finite value of PostgreSQL's calendar reaches.
DuckDB reads the same numbers as infinity and -infinity.
"""

from __future__ import annotations

EPOCH_DAYS = 10957
"""Days from 1970-01-01 to PostgreSQL's epoch."""
EPOCH_MICROS = EPOCH_DAYS * 86_400_000_000
DAY = 86_400_000_000
"""Microseconds in a day."""
INFINITE_DAY = (1 << 31) - 1
"""The date32 for infinity; its negative is -infinity."""
INFINITE_MICROS = (1 << 63) - 1
"""The timestamp for infinity; its negative is -infinity."""
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
JULIAN_EPOCH = 2440588
"""The Julian day of 1970-01-01."""


def divmod_toward_zero(value: int, by: int) -> tuple[int, int]:
    """Divide as C's / and % do.

    >>> divmod_toward_zero(-7, 3)
    (-2, -1)
    """
    whole = abs(value) // by
    return (whole, value - whole * by) if value >= 0 else (-whole, value + whole * by)


def is_leap(year: int) -> bool:
    """Return whether February has 29 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month, 1 to 12."""
    return 29 if month == 2 and is_leap(year) else MONTH_DAYS[month - 1]


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 (negative before).

    >>> days_of(2000, 1, 1)
    10957
    """
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def date_of(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a day since 1970-01-01.

    >>> date_of(-719528)
    (0, 1, 1)
    """
    shifted = days + 719468
    era = shifted // 146097
    day_of_era = shifted - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + (3 if shifted_month < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted_month + 2) // 5 + 1


def weekday_of(days: int) -> int:
    """Return the weekday, from 0 for Sunday to 6 for Saturday."""
    return (days + 4) % 7
