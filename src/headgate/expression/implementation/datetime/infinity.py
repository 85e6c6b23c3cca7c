"""Infinite dates and timestamps in expressions: casts between date and timestamp, and their comparison.

Infinity is stored as the greatest or least integer (`headgate.types.datetime.calendar`), so comparison, ORDER BY, MIN and MAX within one
type need no special handling. Used by `spark.cast`, `spark.comparison` and all functions of dates and timestamps.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.functions.datetime.timestamp import TOO_LATE
from headgate.expression.spark.common_subexpression import bound
from headgate.expression.spark.value import raising
from headgate.types.datetime import calendar

_LAST_DAY = calendar.INFINITE_MICROS // calendar.DAY
"""The first day that is not completely within the range of stored timestamps."""
_END_DAY = 109_203_528 - calendar.JULIAN_EPOCH
"""The first day after PostgreSQL's range of timestamps (TIMESTAMP_END_JULIAN)."""


def too_late() -> Column:
    """Return a Column that raises 0A000 for a timestamp that PostgreSQL can represent and Delta cannot."""
    return raising("0A000", TOO_LATE)


def infinite_date(day: Column) -> Column:
    return F.abs(F.unix_date(day)) == F.lit(calendar.INFINITE_DAY)


def infinite_timestamp(moment: Column) -> Column:
    """Return whether a timestamp (either kind) is infinite."""
    return F.abs(F.unix_micros(moment.cast("timestamp"))) == F.lit(calendar.INFINITE_MICROS)


def infinite(positive: Column) -> Column:
    """Return infinity if `positive`, otherwise -infinity, as a timestamp without time zone."""
    ends = F.when(positive, F.lit(calendar.INFINITE_MICROS)).otherwise(F.lit(-calendar.INFINITE_MICROS))
    return F.timestamp_micros(ends).cast("timestamp_ntz")


def date_to_timestamp(day: Column) -> Column:
    """Cast date to timestamp. Infinity stays infinite. It raises 22008 beyond PostgreSQL's timestamps, 0A000 beyond the stored ones."""
    return bound((day,), _midnight)


def _midnight(day: Column) -> Column:
    number = F.unix_date(day)
    return (
        F.when(infinite_date(day), infinite(number > 0))
        .when(number >= _END_DAY, raising("22008", "date out of range for timestamp").cast("timestamp_ntz"))
        .when(number >= _LAST_DAY, too_late().cast("timestamp_ntz"))
        .otherwise(day.cast("timestamp_ntz"))
    )


def timestamp_to_date(moment: Column) -> Column:
    """Cast timestamp to date. Infinity stays infinite."""
    return bound((moment,), _day)


def _day(moment: Column) -> Column:
    ends = F.when(F.unix_micros(moment.cast("timestamp")) > 0, F.lit(calendar.INFINITE_DAY)).otherwise(F.lit(-calendar.INFINITE_DAY))
    return F.when(infinite_timestamp(moment), F.date_from_unix_date(ends)).otherwise(moment.cast("date"))


def compared(test: Callable[[Column, Column], Column], day: Column, moment: Column, *, flipped: bool) -> Column:
    """Compare a date with a timestamp (`flipped`: the timestamp is on the left). A date beyond all timestamps is later than them."""
    number = F.unix_date(day)
    beyond = (number >= _LAST_DAY) & (number < F.lit(calendar.INFINITE_DAY))
    moment_rank = F.when(F.unix_micros(moment.cast("timestamp")) == F.lit(calendar.INFINITE_MICROS), F.lit(2)).otherwise(F.lit(0))
    usual = date_to_timestamp(F.when(~beyond, day))
    if flipped:
        return F.when(F.isnull(moment), F.lit(None)).when(beyond, test(moment_rank, F.lit(1))).otherwise(test(moment, usual))
    return F.when(F.isnull(moment), F.lit(None)).when(beyond, test(F.lit(1), moment_rank)).otherwise(test(usual, moment))
