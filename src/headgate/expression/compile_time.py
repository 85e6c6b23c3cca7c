"""Dates and timestamps: arithmetic, EXTRACT and date_part, date_trunc, make_date, intervals written as constants.

Timestamps are microseconds of the proleptic Gregorian calendar in both systems. EXTRACT gives numeric with PostgreSQL's scale,
date_part gives float8. Time zones: only UTC sessions; what depends on another zone is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.compile_cast import micros_of, to_timestamp
from headgate.expression.compile_infinite import infinite_date, infinite_timestamp
from headgate.expression.node import Const, Expression, FuncExpr, OpExpr
from headgate.expression.value import BOOL, DATE, FLOAT8, INT4, TIMESTAMP, Env, Rep, Value, decimal, raising, refuse
from headgate.types import registry

Builder = Callable[[Expression, Sequence[Value]], Value]
_FIRST_DAY, _END_DAY = -2_440_588, 2_147_483_494 - 2_440_588
_DAY = 86_400_000_000
_UNITS = {
    "years": "year", "yr": "year", "yrs": "year", "y": "year", "months": "month", "mon": "month", "mons": "month", "days": "day",
    "d": "day", "hours": "hour", "hr": "hour", "hrs": "hour", "h": "hour", "minutes": "minute", "min": "minute", "mins": "minute",
    "m": "minute", "seconds": "second", "sec": "second", "secs": "second", "s": "second", "weeks": "week", "w": "week",
    "quarters": "quarter", "qtr": "quarter", "decades": "decade", "dec": "decade", "decs": "decade", "centuries": "century",
    "cent": "century", "c": "century", "millennia": "millennium", "mil": "millennium", "mils": "millennium",
    "millisecond": "milliseconds", "ms": "milliseconds", "msec": "milliseconds", "msecs": "milliseconds", "msecond": "milliseconds",
    "mseconds": "milliseconds", "microsecond": "microseconds", "us": "microseconds", "usec": "microseconds",
    "usecs": "microseconds", "usecond": "microseconds", "useconds": "microseconds",
}  # fmt: skip


def _unit(value: Value, what: str) -> str:
    if value.constant is None:
        raise refuse(what, "the field must be a constant")
    lowered = value.constant.lower()
    return _UNITS.get(lowered, lowered)


def _date_plus(sign: int) -> Builder:
    def builder(node: Expression, args: Sequence[Value]) -> Value:
        flipped = args[0].rep != DATE
        day, count = (args[1], args[0]) if flipped else (args[0], args[1])

        def make(env: Env) -> Column:
            moved = F.unix_date(day.make(env)).cast("bigint") + F.lit(sign) * count.make(env).cast("bigint")
            outside = (moved < _FIRST_DAY) | (moved >= _END_DAY)
            return F.when(outside, raising("22008", "date out of range")).otherwise(F.date_from_unix_date(moved.cast("int")))

        return Value(DATE, make)

    return builder


def _date_minus_date(node: Expression, args: Sequence[Value]) -> Value:
    return Value(INT4, lambda env: F.unix_date(args[0].make(env)) - F.unix_date(args[1].make(env)))


def _year(moment: Column) -> Column:
    year = F.year(moment)
    return F.when(year <= 0, year - 1).otherwise(year)


def _div(value: Column, by: int) -> Column:
    return F.call_function("div", value.cast("bigint"), F.lit(by).cast("bigint"))


def _century(moment: Column) -> Column:
    year = _year(moment)
    return F.when(year > 0, _div(year + 99, 100)).otherwise(-_div(F.lit(99) - (year - 1), 100))


def _millennium(moment: Column) -> Column:
    year = _year(moment)
    return F.when(year > 0, _div(year + 999, 1000)).otherwise(-_div(F.lit(999) - (year - 1), 1000))


def _decade(moment: Column) -> Column:
    return F.floor(F.year(moment) / 10)


def _isoyear(moment: Column) -> Column:
    year = F.year(F.date_add(moment.cast("date"), F.lit(4) - _isodow(moment)))
    return F.when(year <= 0, year - 1).otherwise(year)


def _isodow(moment: Column) -> Column:
    return F.weekday(moment) + 1


def _micros_of_day(moment: Column) -> Column:
    return F.pmod(F.unix_micros(moment.cast("timestamp")), F.lit(_DAY))


_FIELDS: dict[str, Callable[[Column], Column]] = {
    "year": _year,
    "month": F.month,
    "day": F.dayofmonth,
    "quarter": F.quarter,
    "week": F.weekofyear,
    "dow": lambda moment: F.dayofweek(moment) - 1,
    "isodow": _isodow,
    "doy": F.dayofyear,
    "isoyear": _isoyear,
    "century": _century,
    "millennium": _millennium,
    "decade": _decade,
}
_CLOCK: dict[str, tuple[Callable[[Column], Column], int]] = {
    "hour": (lambda micros: _div(micros, 3_600_000_000), 0),
    "minute": (lambda micros: _div(micros % F.lit(3_600_000_000), 60_000_000), 0),
    "second": (lambda micros: micros % F.lit(60_000_000), 6),
    "milliseconds": (lambda micros: micros % F.lit(60_000_000), 3),
    "microseconds": (lambda micros: micros % F.lit(60_000_000), 0),
}


def _scaled(whole: Column, scale: int) -> Column:
    """An integer number of 10^-scale units as a decimal of that scale."""
    if scale == 0:
        return whole.cast("decimal(19,0)")
    return (whole.cast("decimal(19,0)") * F.lit(f"0.{'0' * (scale - 1)}1").cast(f"decimal({scale},{scale})")).cast(
        f"decimal({19 + scale},{scale})"
    )


def _extracted(field: str, source: Value) -> tuple[Callable[[Column], Column], int]:
    """(the field as an integer number of units, the units' scale) of a date or timestamp."""
    if field in _FIELDS:
        return _FIELDS[field], 0
    if field == "julian" and source.rep == DATE:
        return (lambda day: F.unix_date(day) + F.lit(2_440_588)), 0
    if field == "epoch":
        if source.rep == DATE:
            return (lambda day: F.unix_date(day).cast("bigint") * F.lit(86400)), 0
        return (lambda moment: F.unix_micros(moment.cast("timestamp"))), 6
    if field in _CLOCK and source.rep != DATE:
        clock, scale = _CLOCK[field]
        return (lambda moment: clock(_micros_of_day(moment))), scale
    if field in ("timezone", "timezone_hour", "timezone_minute", "julian"):
        raise refuse(f"extraction of {field}")
    return _bad_unit(field, source)


def _bad_unit(field: str, source: Value) -> tuple[Callable[[Column], Column], int]:
    kind = {"date": "date", "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone"}[source.rep.name]
    known = field in _CLOCK
    state = "0A000" if known else "22023"
    message = f'unit "{field}" not {"supported" if known else "recognized"} for type {kind}'
    return (lambda moment: F.when(F.isnotnull(moment), raising(state, message).cast("bigint"))), 0


def _extract(node: Expression, args: Sequence[Value]) -> Value:
    """EXTRACT: numeric; its scale is 6 for seconds and epoch, 3 for milliseconds, 0 for the rest."""
    field = _unit(args[0], "EXTRACT")
    taken, scale = _extracted(field, args[1])
    rep = decimal(19 + scale, scale)
    if field == "milliseconds" and args[1].rep != DATE:
        return Value(rep, lambda env: (taken(args[1].make(env)).cast("decimal(19,0)") / F.lit(1000)).cast(f"decimal({19 + scale},{scale})"))
    return Value(rep, lambda env: _scaled(taken(args[1].make(env)), scale))


def _date_part(node: Expression, args: Sequence[Value]) -> Value:
    """date_part: the same field as float8."""
    exact = _extract(node, args)
    return Value(FLOAT8, lambda env: exact.make(env).cast("string").cast("double"))


_TRUNCATED = {
    "microseconds": 1, "milliseconds": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY,
}  # fmt: skip


def _truncate(node: Expression, args: Sequence[Value]) -> Value:
    """date_trunc(field, timestamp)."""
    field, source = _unit(args[0], "date_trunc"), args[1]
    if field in _TRUNCATED:
        unit = _TRUNCATED[field]

        def make(env: Env) -> Column:
            micros = micros_of(source.make(env), TIMESTAMP)
            return to_timestamp(micros - F.pmod(micros, F.lit(unit).cast("bigint")))

        return Value(TIMESTAMP, make)
    if field in ("week", "month", "quarter", "year"):
        return Value(TIMESTAMP, lambda env: F.trunc(source.make(env).cast("date"), field).cast("timestamp_ntz"))
    if field in ("decade", "century", "millennium"):
        raise refuse(f"date_trunc to {field}")
    message = f'unit "{field}" not recognized for type timestamp without time zone'
    return Value(TIMESTAMP, lambda env: F.when(F.isnotnull(source.make(env)), raising("22023", message).cast("timestamp_ntz")))


def _make_date(node: Expression, args: Sequence[Value]) -> Value:
    def make(env: Env) -> Column:
        year, month, day = (each.make(env) for each in args)
        valid = (year != 0) & (month >= 1) & (month <= 12) & (day >= 1)
        first = F.make_date(
            F.when(valid, F.when(year < 0, year + 1).otherwise(year)).otherwise(F.lit(2000)),
            F.when(valid, month).otherwise(F.lit(1)),
            F.lit(1),
        )
        good = valid & (day <= F.dayofmonth(F.last_day(first)))
        shown = F.format_string("headgate:22008:date field value out of range: %d-%02d-%02d", year, month, day)
        nothing = F.isnull(year) | F.isnull(month) | F.isnull(day)
        return F.when(nothing, F.lit(None).cast("date")).when(good, F.date_add(first, day - 1)).otherwise(F.raise_error(shown).cast("date"))

    return Value(DATE, make)


_INTERVAL = re.compile(r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:(-?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?\Z")


def interval_parts(shown: str) -> tuple[int, int, int]:
    """(months, days, microseconds) of an interval's normal text (IntervalStyle postgres)."""
    found = _INTERVAL.match(shown)
    if found is None:
        raise refuse(f"the interval {shown}")
    years, months, days, sign, hours, minutes, seconds, fraction = found.groups()
    micros = ((int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)) * 1_000_000 + int((fraction or "0").ljust(6, "0"))
    return int(years or 0) * 12 + int(months or 0), int(days or 0), -micros if sign == "-" else micros


def _interval_of(node: Expression, place: int) -> tuple[int, int, int]:
    assert isinstance(node, (OpExpr, FuncExpr))
    constant = node.args[place]
    if not isinstance(constant, Const) or constant.value is None or constant.type.oid != registry.INTERVAL:
        raise refuse("arithmetic with an interval", "the interval must be a constant")
    return interval_parts(constant.value)


def _plus_interval(sign: int, rep: Rep) -> Builder:
    """timestamp (or date) ± a constant interval: months, then days, then microseconds (manual, 9.9)."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        assert isinstance(node, (OpExpr, FuncExpr))
        place = 1 if node.args[1].type.oid == registry.INTERVAL else 0
        months, days, micros = (sign * each for each in _interval_of(node, place))
        source = args[1 - place]

        def make(env: Env) -> Column:
            moment = source.make(env).cast("timestamp_ntz") if rep == DATE else source.make(env)
            whole = F.unix_micros(moment.cast("timestamp"))
            clock = F.pmod(whole, F.lit(_DAY))
            day = F.date_add(F.add_months(moment.cast("date"), F.lit(months)), F.lit(days))
            return to_timestamp(F.unix_date(day).cast("bigint") * F.lit(_DAY) + clock + F.lit(micros).cast("bigint"))

        return Value(TIMESTAMP, make)

    return builder


def _is_finite(node: Expression, args: Sequence[Value]) -> Value:
    test = infinite_date if args[0].rep == DATE else infinite_timestamp
    return Value(BOOL, lambda env: ~test(args[0].make(env)))


BUILDERS: dict[str, Builder] = {
    "date_pli": _date_plus(1),
    "date_mii": _date_plus(-1),
    "integer_pl_date/23,1082": _date_plus(1),
    "date_mi": _date_minus_date,
    "extract_date": _extract,
    "extract_timestamp": _extract,
    "timestamp_part": _date_part,
    "date_part/25,1082": _date_part,
    "timestamp_trunc": _truncate,
    "make_date": _make_date,
    "timestamp_pl_interval": _plus_interval(1, TIMESTAMP),
    "timestamp_mi_interval": _plus_interval(-1, TIMESTAMP),
    "date_pl_interval": _plus_interval(1, DATE),
    "date_mi_interval": _plus_interval(-1, DATE),
    "date_finite": _is_finite,
    "timestamp_finite": _is_finite,
}
