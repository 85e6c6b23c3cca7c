"""Dates and timestamps without time zone: arithmetic, date_trunc, date_bin, age, OVERLAPS, make_date and make_timestamp.

Timestamps are microseconds in the proleptic Gregorian calendar, in Spark as in PostgreSQL. Spark's session is in UTC, so that a timestamp
without time zone and its instant are the same number. `extract` has EXTRACT. `time_zone` has functions that depend on a time zone.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.duckdb.datetime import date_trunc, in_range
from headgate.expression.functions.datetime import interval, timestamp
from headgate.expression.implementation.datetime import time_of_day
from headgate.expression.implementation.datetime.extract import NAMES, big, isodow, micros_of, whole
from headgate.expression.implementation.datetime.infinity import date_to_timestamp, infinite_date, infinite_timestamp, too_late
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table, native
from headgate.expression.node import Expression
from headgate.expression.spark.common_subexpression import bound
from headgate.expression.spark.comparison import by_key
from headgate.expression.spark.literal import to_timestamp
from headgate.expression.spark.session_time import local_now
from headgate.expression.spark.units import Unit, truncation_unit
from headgate.expression.spark.value import (
    BOOL,
    DATE,
    INT4,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Env,
    Make,
    Value,
    after,
    of_columns,
    raising,
    settle,
)
from headgate.expression.spark.vectorised import call, scalar
from headgate.types import registry
from headgate.types.datetime.calendar import DAY
from headgate.types.datetime.interval import Interval

_END_DAY = 2_147_483_494 - 2_440_588
LAST_MOMENT_DAY = 106_751_990
"""The last whole day whose microseconds since 1970 fit in 64 bits."""


def out_of_days() -> Column:
    """Return a Column that raises 22008 for a timestamp."""
    return raising("22008", "timestamp out of range")


def moment_of(days: Column, clock: Column) -> Column:
    """Return the timestamp of a day (bigint, since 1970) and microseconds since midnight. It raises 22008 outside PostgreSQL's range."""
    outside = (days < big(timestamp.FIRST_DAY)) | (days > big(LAST_MOMENT_DAY))
    return to_timestamp(F.when(outside, out_of_days()).otherwise(days * big(DAY) + clock))


def midnight(value: Value) -> Make:
    """Convert a date to the timestamp of its midnight. Infinity stays infinite."""
    return lambda env: date_to_timestamp(value.make(env))


def _date_plus(sign: int) -> SparkForm:
    def build(source: Column, days: Column) -> Column:
        moved = F.unix_date(source).cast("bigint") + F.lit(sign) * days.cast("bigint")
        outside = (moved < timestamp.FIRST_DAY) | (moved >= _END_DAY)
        result = F.when(outside, raising("22008", "date out of range")).otherwise(F.date_from_unix_date(moved.cast("int")))
        return F.when(infinite_date(source) & F.isnotnull(days), source).otherwise(result)

    return lambda node, args: of_columns(DATE, build, *(args if args[0].rep == DATE else args[::-1]))


def _date_minus_date(left: Column, right: Column) -> Column:
    error = raising("22008", "cannot subtract infinite dates").cast("int")
    are_known = F.isnotnull(left) & F.isnotnull(right)
    return F.when(are_known & (infinite_date(left) | infinite_date(right)), error).otherwise(F.unix_date(left) - F.unix_date(right))


def span_of(value: Value, sign: int) -> Interval | None:
    """Return a constant interval, multiplied by `sign`, or None if the value is not a constant."""
    if value.constant is None:
        return None
    return interval.signed(sign, value.constant)


def shifted(moment: Column, span: Interval) -> Column:
    """Add a constant interval to a timestamp: months, then days, then microseconds (manual, 9.9).

    It raises 22008 outside PostgreSQL's range, and 0A000 for the last years, which the storage cannot represent. Infinity stays infinite.
    """
    return bound((moment,), lambda at: _shift(at, span))


def _shift(moment: Column, span: Interval) -> Column:
    micros = micros_of(moment)
    if not span.months:
        moved = F.try_add(micros, big(span.days * DAY + span.micros))
        day = whole(micros, DAY) + big(span.days + span.micros // DAY)
    else:
        day = F.unix_date(F.add_months(moment.cast("date"), F.lit(span.months))).cast("bigint") + big(span.days)
        moved = F.try_add(F.try_multiply(day, big(DAY)), F.pmod(micros, big(DAY)) + big(span.micros))
    usual = (moved >= big(timestamp.FIRST_DAY * DAY)) & (moved <= big(LAST_MOMENT_DAY * DAY))
    error = F.when((day >= big(LAST_MOMENT_DAY)) & (day < big(timestamp.END_DAY)), too_late().cast("bigint")).otherwise(out_of_days())
    result = to_timestamp(F.when(usual, moved).otherwise(F.when(F.isnotnull(moment), error)))
    return F.when(infinite_timestamp(moment), moment).otherwise(result)


def usual_span(span: Interval) -> bool:
    """Return whether an interval is so short that no step of `shifted` overflows Spark's integers."""
    return abs(span.months) < 12_000_000 and abs(span.days) < 100_000_000 and abs(span.micros) < 2**62


def _plus_interval(sign: int, *, flipped: bool = False) -> SparkForm:
    """Return the form of timestamp or date ± interval: in Spark for a constant of usual length, otherwise in Python."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        source, span = (args[1], args[0]) if flipped else (args[0], args[1])
        constant = span_of(span, sign)
        if constant is None or not usual_span(constant):
            move = timestamp.date_moved if source.rep == DATE else timestamp.moved
            return call(move, TIMESTAMP, (source, span), prefix=(sign,))
        moment = midnight(source) if source.rep == DATE else source.make
        return Value(TIMESTAMP, lambda env: shifted(moment(env), constant))

    return builder


def _age_today(node: Expression, args: Sequence[Value]) -> Value:
    midnight = local_now("age(timestamp)") // DAY * DAY
    today = Value(TIMESTAMP, lambda env: to_timestamp(big(midnight)))
    return call(timestamp.age, TEXT, (today, args[0]))


_CLOCK = {"microsecond": 1, "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": DAY}
_YEARS = {"decade": 10, "century": 100, "millennium": 1000}
CALENDAR_UNITS = frozenset({"day", "week", "month", "quarter", "year", *_YEARS})


def truncated(unit: Unit, moment: Column, type_name: str) -> Column:
    """Return date_trunc of a timestamp without time zone. Infinity stays infinite."""
    return bound((moment,), lambda at: _truncated(unit, at, type_name))


def _truncated(unit: Unit, moment: Column, type_name: str) -> Column:
    if unit.name in _CLOCK:
        micros = micros_of(moment)
        result = to_timestamp(micros - F.pmod(micros, big(_CLOCK[unit.name])))
    elif unit.name == "week":
        result = of_day(F.date_sub(moment.cast("date"), isodow(moment) - 1))
    elif unit.name in ("month", "quarter", "year"):
        result = of_day(F.trunc(moment.cast("date"), unit.name))
    elif unit.name in _YEARS:
        result = of_day(F.make_date(_first_year(F.year(moment), _YEARS[unit.name]), F.lit(1), F.lit(1)))
    else:
        result = F.when(F.isnotnull(moment), raising(*unit.error(type_name)).cast("timestamp_ntz"))
    return F.when(infinite_timestamp(moment), moment).otherwise(result)


def of_day(day: Column) -> Column:
    """Return the midnight of a date. It raises 22008 if the timestamp is out of range."""
    return bound((F.unix_date(day).cast("bigint"),), lambda at: moment_of(at, big(0)))


def _first_year(year: Column, size: int) -> Column:
    """Return the first astronomical year of a decade, century or millennium."""
    if size == 10:
        return (F.floor(year / 10) * 10).cast("int")
    upper = whole(year + F.lit(size - 1), size) * big(size) - big(size - 1)
    lower = -whole(F.lit(size) - year, size) * big(size) + big(1)
    return F.when(year > 0, upper).otherwise(lower).cast("int")


def _truncate(node: Expression, args: Sequence[Value]) -> Value:
    unit = truncation_unit(args[0])
    return of_columns(TIMESTAMP, lambda moment: truncated(unit, moment, NAMES["timestamp"]), args[1])


def _key(value: Value, oid: int) -> Make:
    """Return a key that sorts as the value does."""
    return by_key(value, oid).make if oid == registry.TIMETZ else value.make


def overlap(first: Make, first_end: Make, second: Make, second_end: Make) -> Value:
    """Return OVERLAPS over keys. An end may be NULL, and may precede its start."""

    def overlaps(a: Column, b: Column, c: Column, d: Column) -> Column:
        def ends(left: Column, right: Column) -> tuple[Column, Column]:
            both = F.isnotnull(left) & F.isnotnull(right)
            start = F.when(both & (left > right), right).otherwise(F.coalesce(left, right))
            return start, F.when(both, F.when(left > right, left).otherwise(right))

        (start, end), (other_start, other_end) = ends(a, b), ends(c, d)

        def apart(late: Column, late_end: Column, early_end: Column) -> Column:
            return F.when(F.isnull(early_end), F.lit(None)).when(late < early_end, F.lit(True)).when(F.isnotnull(late_end), F.lit(False))

        same = F.when(F.isnotnull(end) & F.isnotnull(other_end), F.lit(True))
        return (
            F.when(F.isnull(start) | F.isnull(other_start), F.lit(None).cast("boolean"))
            .when(start > other_start, apart(start, end, other_end))
            .when(start < other_start, apart(other_start, other_end, end))
            .otherwise(same)
        )

    return Value(BOOL, lambda env: bound([key(env) for key in (first, first_end, second, second_end)], overlaps))


def _overlaps(oid: int) -> SparkForm:
    return lambda node, args: overlap(*(_key(arg, oid) for arg in args))


def _overlaps_spans(plus: SparkForm, *places: int) -> SparkForm:
    """Return the form of OVERLAPS in which the ends at `places` are intervals."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        ends = [plus(node, (args[index - 1], arg)) if index in places else arg for index, arg in enumerate(args)]
        moved = [settle(ends[index]) for index in places]
        return after(moved, overlap(*(settle(end) for end in ends)))

    return builder


def overlaps_spans(plus: SparkForm, kind: int) -> Table:
    """Return the three forms of OVERLAPS with intervals for one type (by oid)."""
    return {
        f"overlaps/{kind},1186,{kind},1186": _overlaps_spans(plus, 1, 3),
        f"overlaps/{kind},{kind},{kind},1186": _overlaps_spans(plus, 3),
        f"overlaps/{kind},1186,{kind},{kind}": _overlaps_spans(plus, 1),
    }


def _is_finite(node: Expression, args: Sequence[Value]) -> Value:
    test = infinite_date if args[0].rep == DATE else infinite_timestamp
    return of_columns(BOOL, lambda column: ~test(column), *args)


def _order(node: Expression, args: Sequence[Value]) -> Value:
    return comparison(args[0].make, args[1].make)


def comparison(first: Make, second: Make) -> Value:
    """Return -1, 0 or 1 for two moments, as timestamp_cmp does."""

    def make(env: Env) -> Column:
        left, right = first(env), second(env)
        return F.when(left < right, F.lit(-1)).when(left > right, F.lit(1)).when(left == right, F.lit(0))

    return Value(INT4, make)


IMPLEMENTATIONS: Table = {
    "date_pli": Implementation(_date_plus(1), duckdb="CAST({0} + {1} AS DATE)"),
    "date_mii": Implementation(_date_plus(-1), duckdb="CAST({0} - {1} AS DATE)"),
    "integer_pl_date/23,1082": _date_plus(1),
    "date_mi": Implementation(native(INT4, _date_minus_date), duckdb="CAST(date_diff('day', {1}, {0}) AS INTEGER)"),
    "date_cmp": _order,
    "timestamp_cmp": _order,
    "timestamp_trunc": Implementation(_truncate, duckdb=date_trunc),
    "timestamp_bin": scalar(timestamp.binned, TIMESTAMP),
    "timestamptz_bin": scalar(timestamp.binned, TIMESTAMPTZ),
    "make_date": scalar(timestamp.made_date, DATE),
    "make_timestamp": scalar(timestamp.made_timestamp, TIMESTAMP),
    "timestamp_pl_interval": Implementation(_plus_interval(1), duckdb=in_range("{0} + {1}")),
    "timestamp_mi_interval": Implementation(_plus_interval(-1), duckdb=in_range("{0} - {1}")),
    "date_pl_interval": _plus_interval(1),
    "date_mi_interval": _plus_interval(-1),
    "interval_pl_timestamp/1186,1114": Implementation(_plus_interval(1, flipped=True), duckdb=in_range("{1} + {0}")),
    "interval_pl_date/1186,1082": _plus_interval(1, flipped=True),
    "timestamp_mi": Implementation(scalar(timestamp.minus_moment, TEXT), duckdb="({0} - {1})"),
    "timestamp_age": scalar(timestamp.age, TEXT),
    "age/1114": _age_today,
    "overlaps_timestamp": _overlaps(registry.TIMESTAMP),
    "overlaps_time": _overlaps(registry.TIME),
    "overlaps_timetz": _overlaps(registry.TIMETZ),
    **overlaps_spans(_plus_interval(1), 1114),
    **overlaps_spans(time_of_day.plus_interval, 1083),
    "date_finite": _is_finite,
    "timestamp_finite": _is_finite,
}
