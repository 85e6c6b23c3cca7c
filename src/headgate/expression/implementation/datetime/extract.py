"""EXTRACT (numeric) and date_part (double precision) of dates, timestamps, times and intervals, with PostgreSQL's scales.

Seconds and epoch have six fraction digits, milliseconds three, the others none. date_part adds the parts in binary as PostgreSQL does.
Spark extracts fields of dates and timestamps, `functions.datetime.extract` those of times and intervals. Fields of infinity that increase
monotonically are infinite, others are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.duckdb.datetime import epoch
from headgate.expression.functions import numeric as decimals
from headgate.expression.functions.datetime import extract
from headgate.expression.implementation.datetime.infinity import infinite_date, infinite_timestamp
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table
from headgate.expression.implementation.number.numeric import exactly
from headgate.expression.node import Expression
from headgate.expression.spark.units import Unit, field_unit
from headgate.expression.spark.value import DATE, DIGITS, FLOAT8, TIMESTAMP, Env, Rep, Value, as_text, decimal, raising, spark_type
from headgate.expression.spark.vectorised import call
from headgate.types.datetime.calendar import DAY

NAMES = {"date": "date", "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone"}
_JULIAN = 2_440_588
_GROWING = frozenset({"year", "decade", "century", "millennium", "julian", "isoyear", "epoch"})


def big(number: int) -> Column:
    return F.lit(number).cast("bigint")


def whole(value: Column, by: int) -> Column:
    """Divide integers towards zero, as C does."""
    return F.call_function("div", value.cast("bigint"), big(by))


@dataclass(frozen=True)
class FieldValue:
    """A field as an exact number of 10^-scale units, and as PostgreSQL's double (the same number without `double`)."""

    exact: Callable[[Column], Column]
    scale: int = 0
    double: Callable[[Column], Column] | None = None


def _year(moment: Column) -> Column:
    """Return the year as printed. There is no year 0."""
    year = F.year(moment)
    return F.when(year <= 0, year - 1).otherwise(year)


def _by_years(years: int) -> Callable[[Column], Column]:
    def part(moment: Column) -> Column:
        year = F.year(moment)
        return F.when(year > 0, whole(year + F.lit(years - 1), years)).otherwise(-whole(F.lit(years) - year, years))

    return part


def isodow(moment: Column) -> Column:
    """Return the ISO day of the week, 1 for Monday to 7 for Sunday."""
    return F.weekday(moment) + 1


def _isoyear(moment: Column) -> Column:
    year = F.year(F.date_add(moment.cast("date"), F.lit(4) - isodow(moment)))
    return F.when(year <= 0, year - 1).otherwise(year)


_CALENDAR: dict[str, Callable[[Column], Column]] = {
    "year": _year,
    "month": F.month,
    "day": F.dayofmonth,
    "quarter": F.quarter,
    "week": F.weekofyear,
    "dow": lambda moment: F.dayofweek(moment) - 1,
    "isodow": isodow,
    "doy": F.dayofyear,
    "isoyear": _isoyear,
    "century": _by_years(100),
    "millennium": _by_years(1000),
    "decade": lambda moment: F.floor(F.year(moment) / 10),
}


def micros_of(moment: Column) -> Column:
    """Return microseconds since 1970 of a timestamp with or without time zone."""
    return F.unix_micros(moment.cast("timestamp"))


def _clock(moment: Column) -> Column:
    """Return microseconds since midnight."""
    return F.pmod(micros_of(moment), big(DAY))


def _second(moment: Column) -> Column:
    return _clock(moment) % big(60_000_000)


def _divide(units: Column, by: float) -> Column:
    return units.cast("double") / F.lit(by)


def _sum(moment: Column, unit: float) -> Column:
    """Add whole seconds and their fraction in binary, in 1/unit seconds."""
    second = _second(moment)
    return whole(second, 1_000_000).cast("double") * F.lit(unit) + _divide(second % big(1_000_000), 1_000_000.0 / unit)


_PARTS: dict[str, FieldValue] = {
    "hour": FieldValue(lambda moment: whole(_clock(moment), 3_600_000_000)),
    "minute": FieldValue(lambda moment: whole(_clock(moment), 60_000_000) % big(60)),
    "second": FieldValue(_second, 6, lambda moment: _sum(moment, 1.0)),
    "millisecond": FieldValue(_second, 3, lambda moment: _sum(moment, 1000.0)),
    "microsecond": FieldValue(_second),
    "epoch": FieldValue(micros_of, 6, lambda moment: _divide(micros_of(moment), 1_000_000.0)),
}
_OF_DATE: dict[str, FieldValue] = {
    "epoch": FieldValue(lambda day: F.unix_date(day).cast("bigint") * big(86400)),
    "julian": FieldValue(lambda day: F.unix_date(day) + F.lit(_JULIAN)),
}


def _part_of(unit: Unit, rep: Rep, type_name: str) -> FieldValue:
    """Return the field of a date or timestamp. It raises an error if the type does not have the field."""
    if unit.name in _CALENDAR:
        return FieldValue(_CALENDAR[unit.name])
    field_value = (_OF_DATE if rep == DATE else _PARTS).get(unit.name)
    if field_value is not None:
        return field_value
    error = unit.error(type_name)
    return FieldValue(lambda value: F.when(F.isnotnull(value), raising(*error).cast("bigint")))


def numeric_part(part: FieldValue, source: Value) -> Value:
    """Return the field as numeric with its scale."""
    rep = decimal(19 + part.scale, part.scale)

    def make(env: Env) -> Column:
        units = part.exact(source.make(env)).cast("decimal(19,0)")
        if part.scale == 0:
            return units
        unit = F.lit(f"0.{'0' * (part.scale - 1)}1").cast(f"decimal({part.scale},{part.scale})")
        return (units * unit).cast(f"decimal({rep.precision},{rep.scale})")

    return Value(rep, make)


def _double_part(part: FieldValue, source: Value) -> Value:
    double = part.double or (lambda value: part.exact(value).cast("double"))
    return Value(FLOAT8, lambda env: double(source.make(env)))


def julian_day(days: int, micros: int) -> str:
    """Return the Julian day of a timestamp with its fraction, as numeric."""
    return decimals.add(str(days + _JULIAN), decimals.divide(str(micros), str(DAY)))


def _julian(source: Value, *, numeric: bool) -> Value:
    """Return the Julian day of a timestamp with its fraction."""

    def day(env: Env) -> Column:
        return F.unix_date(source.make(env).cast("date"))

    def fraction(env: Env) -> Column:
        clock = _clock(source.make(env))
        seconds = whole(clock, 1_000_000).cast("double") + _divide(clock % big(1_000_000), 1_000_000.0)
        return seconds / F.lit(86400.0)

    if not numeric:
        return Value(FLOAT8, lambda env: (day(env) + F.lit(_JULIAN)).cast("double") + fraction(env))
    return exactly(julian_day, (Value(Rep("int4"), day), Value(Rep("int8"), lambda env: _clock(source.make(env)))))


def extracted(unit: Unit, source: Value, *, numeric: bool, shown: str = "") -> Value:
    """Return the field of a date or timestamp. `shown` is the type that errors name."""
    if unit.name == "julian" and source.rep == TIMESTAMP:
        return _julian(source, numeric=numeric)
    part = _part_of(unit, source.rep, shown or NAMES[source.rep.name])
    return numeric_part(part, source) if numeric else _double_part(part, source)


def with_infinity(unit: Unit, source: Value, finite: Value) -> Value:
    """Return a field of a date or timestamp that may be infinite. `finite` is the field of a finite one."""
    test = infinite_date if source.rep == DATE else infinite_timestamp
    if source.constant is not None and "infinity" not in source.constant:
        return finite
    if unit.name not in _GROWING:
        return Value(finite.rep, lambda env: F.when(~test(source.make(env)), finite.make(env)), finite.fallible)
    if finite.rep == FLOAT8:
        return Value(FLOAT8, lambda env: F.when(test(source.make(env)), _end(source, env)).otherwise(finite.make(env)))
    texts = as_text(finite)
    return Value(
        DIGITS,
        lambda env: F.when(test(source.make(env)), _end(source, env).cast("string")).otherwise(texts(env)),
        finite.fallible,
    )


def _end(source: Value, env: Env) -> Column:
    moment = source.make(env)
    number = F.unix_date(moment).cast("bigint") if source.rep == DATE else micros_of(moment)
    return F.when(number > 0, F.lit(float("inf"))).otherwise(F.lit(float("-inf")))


def field_of(args: Sequence[Value], *, numeric: bool) -> Unit:
    """Return the field that a call of EXTRACT or date_part names."""
    return field_unit(args[0], "EXTRACT" if numeric else "date_part")


def _of_day(*, numeric: bool) -> SparkForm:
    def builder(node: Expression, args: Sequence[Value]) -> Value:
        unit = field_of(args, numeric=numeric)
        field = extracted(unit, args[1], numeric=numeric)
        if args[1].rep == DATE and unit.name not in _CALENDAR and unit.name not in _OF_DATE:
            return field  # it raises, of infinity too
        return with_infinity(unit, args[1], field)

    return builder


def _part_of_date(node: Expression, args: Sequence[Value]) -> Value:
    """Return date_part of a date, which is that of its midnight."""
    unit = field_of(args, numeric=False)
    midnight = Value(TIMESTAMP, lambda env: F.when(~infinite_date(args[1].make(env)), args[1].make(env)).cast("timestamp_ntz"))
    return with_infinity(unit, args[1], extracted(unit, midnight, numeric=False))


def _of_text(
    type_name: str, units: frozenset[str], exact: Callable[[str, str], str], double: Callable[[str, str], float], *, numeric: bool
) -> SparkForm:
    """Return the form of a field of a time or interval."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        unit = field_of(args, numeric=numeric)
        rep = DIGITS if numeric else FLOAT8
        if unit.name in units:
            if numeric:
                return call(exact, DIGITS, args[1:], prefix=(unit.name,), raises=False)
            return call(double, FLOAT8, args[1:], prefix=(unit.name,), raises=False)
        error = Unit(unit.name, unit.written).error(type_name)
        return Value(rep, lambda env: F.when(F.isnotnull(args[1].make(env)), raising(*error).cast(spark_type(rep))))

    return builder


def _text_families() -> Table:
    table: Table = {}
    for name, type_name, units, exact, double in (
        ("time", "time without time zone", extract.TIME_UNITS, extract.exact_time, extract.double_time),
        ("timetz", "time with time zone", extract.TIMETZ_UNITS, extract.exact_timetz, extract.double_timetz),
        ("interval", "interval", extract.INTERVAL_UNITS, extract.exact_interval, extract.double_interval),
    ):
        in_duckdb = epoch if name == "interval" else None
        table[f"extract_{name}"] = Implementation(_of_text(type_name, frozenset(units), exact, double, numeric=True), duckdb=in_duckdb)
        table[f"{name}_part"] = Implementation(_of_text(type_name, frozenset(units), exact, double, numeric=False), duckdb=in_duckdb)
    return table


IMPLEMENTATIONS: Table = {
    **_text_families(),
    "extract_date": _of_day(numeric=True),
    "extract_timestamp": Implementation(_of_day(numeric=True), duckdb=epoch),
    "timestamp_part": Implementation(_of_day(numeric=False), duckdb=epoch),
    "date_part/25,1082": _part_of_date,
}
