"""Functions that run on single values give PostgreSQL's text, or its SQLSTATE, for generated arguments.

They do not need Spark, so many arguments are cheap: ``make test-all`` tries a thousand of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headgate.errors import PostgresError
from headgate.expression.functions import array, floating_point, numeric, numeric_power
from headgate.expression.functions.datetime import extract, interval, time_of_day, timestamp, to_char, to_timestamp
from headgate.types import registry, typmod
from headgate.types.datetime.interval import Interval
from headgate.types.text import text

ROUNDS = [10, pytest.param(1000, marks=pytest.mark.slow)]
"""The number of arguments for each function."""
ZONES = ("America/New_York", "Europe/Rome", "Asia/Kathmandu")
NOT_STORED = "!0A000"
EVALUATE = """CREATE OR REPLACE FUNCTION pg_temp.evaluate(expression text) RETURNS text AS $$
DECLARE result text;
BEGIN
  EXECUTE 'SELECT (' || expression || ')::text' INTO result;
  RETURN result;
EXCEPTION WHEN OTHERS THEN
  RETURN '!' || SQLSTATE;
END $$ LANGUAGE plpgsql"""

DOUBLES = ("0", "-0", "1", "-1", "0.5", "1.5", "-2.5", "NaN", "Infinity", "-Infinity", "1e308", "1e-308", "1e-320", "0.1", "710", "-746",
           "45", "30", "60", "90", "180", "270", "360", "-30", "0.3333", "3", "10", "1e15")  # fmt: skip
NUMERICS = ("0", "0.00", "1", "-1", "1.10", "2", "-2.5", "NaN", "Infinity", "-Infinity", "12345678901234567890.123456789", "1e-20", "1e20",
            "0.9999999", "1.0000001", "7", "10", "0.333333333333333333333", "6000", "-6000.5", "1e-1000", "1.05", "1e100",
            "12345678901234567890123456789012345678901234.5678")  # fmt: skip
INTERVALS = ("00:00:00", "1 mon", "30 days", "-1 years -2 mons +3 days -04:05:06.7", "1 day", "24:00:00", "-00:00:00.000001",
             "40 days 30:00:00", "2562047788:00:54.775807", "-178956970 years -8 mons", "2147483647 days", "-2147483648 days",
             "-1 mons -30 days -25:00:00", "5 mons -3 days")  # fmt: skip
MOMENTS = ("2024-02-29 23:59:59.999999", "1970-01-01 00:00:00", "1969-12-31 23:59:59.5", "0044-03-15 12:00:00 BC", "4713-01-01 00:00:00 BC",
           "2024-03-31 02:30:00", "2024-11-03 01:30:00", "2024-03-10 02:30:00", "12345-06-07 08:09:10", "infinity", "-infinity",
           "1900-02-28 01:00:00", "2000-12-31 10:00:00")  # fmt: skip
TIMES = ("00:00:00", "24:00:00", "23:59:59.999999", "10:20:30.5", "00:00:00.000001")
ZONED = ("00:00:00+00", "24:00:00-15:59", "10:20:30.5+02", "12:00:00-05:30:15", "23:59:59.999999+15:59:59")
DATES = ("2024-02-29", "1970-01-01", "0044-03-15 BC", "9999-12-31", "infinity", "-infinity")
FORMATS = (
    "YYYY-MM-DD HH24:MI:SS", "Day, DD Month YYYY", "FMDay, FMDD FMMonth YYYY", "HH12:MI:SS.MS AM", "IYYY-IW-ID IDDD", "DDDth Q CC J WW W D",
    "Y,YYY YYY YY Y", "MON Mon mon DY Dy dy", "RM rm FMRM", "US MS FF1 FF3 FF6 SSSS", "a.d. A.D. BC p.m. P.M. am", '"text" \\"q" YYYY',
    "TZH TZM OF", "HHth SSTH FMDDth", "",
)  # fmt: skip
READ = (
    "05-01-2024 13", "2024-01-05", "20240105", "2024-1-5 3:4:5", "Jan 5 2024", "5 jan 24", "2024-060", "2024-W01-3", "2024-02-30",
    "12:34:56 PM", "0044-03-15 BC", "2,024-01-01", "24-01-05", "2024-01-05T10:20:30+02:30", "abc", "", "XII 2024", "-2024-01-05",
)  # fmt: skip
READ_BY = (
    "DD-MM-YYYY HH24", "YYYY-MM-DD", "YYYYMMDD", "YYYY-MM-DD HH24:MI:SS", "Mon DD YYYY", "DD mon YY", "YYYY-DDD", 'IYYY-"W"IW-ID',
    "HH12:MI:SS PM", "YYYY-MM-DD BC", "Y,YYY-MM-DD", "YY-MM-DD", 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM', "RM YYYY", "FXYYYY-MM-DD", "YYYY",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A type of argument: its values, some of them generated, and how a function expects them."""

    sql: str
    values: tuple[str, ...]
    plain: Callable[[str], Any] = str
    more: Callable[[Random], str] | None = None

    def pick(self, random: Random) -> str:
        """Return the text of a random value."""
        return self.more(random) if self.more is not None and random.random() < 0.5 else random.choice(self.values)


def _moment(oid: int, target: pa.DataType) -> Callable[[str], Any]:
    return lambda shown: text.read_scalar(shown, oid).cast(target).as_py()


def _numeric(random: Random) -> str:
    whole = random.choice(("", "-")) + str(random.randrange(10 ** random.randrange(1, 20)))
    return f"{whole}.{random.randrange(10 ** random.randrange(1, 15))}" if random.random() < 0.7 else whole


def _interval(random: Random) -> str:
    return Interval(random.randrange(-100, 100), random.randrange(-100, 100), random.randrange(-(10**12), 10**12)).print()


KINDS = {
    "f": Kind("float8", DOUBLES, float, lambda random: repr(random.choice((random.uniform(-10, 10), 10 ** random.uniform(-300, 300))))),
    "n": Kind("numeric", NUMERICS, lambda shown: text.normal_form(shown, registry.NUMERIC), _numeric),
    "v": Kind("interval", INTERVALS, str, _interval),
    "m": Kind("timestamp", MOMENTS, _moment(registry.TIMESTAMP, pa.int64())),
    "z": Kind("timestamptz", tuple(f"{moment}+00".replace(" BC+00", "+00 BC") for moment in MOMENTS[:-4]), _moment(registry.TIMESTAMPTZ, pa.int64())),
    "d": Kind("date", DATES, _moment(registry.DATE, pa.int32())),
    "t": Kind("time", TIMES),
    "w": Kind("timetz", ZONED),
    "i": Kind("int4", ("0", "1", "-1", "2", "12", "18", "31", "59", "60", "2024", "-44", "2147483647", "-2147483648"), int,
              lambda random: str(random.randrange(-100, 3000))),
    "s": Kind("int4", tuple(map(str, range(-5, 40))), int),
    "l": Kind("int8", ("0", "1", "-1", "20", "33000", "9223372036854775807", "-9223372036854775808"), int),
    "F": Kind("text", FORMATS),
    "R": Kind("text", READ),
    "B": Kind("text", READ_BY),
}  # fmt: skip


def _shown(value: Any, result: str) -> str | None:
    """Return a plain result as PostgreSQL prints it."""
    if value is None:
        return None
    oid, stored = {
        "f": (registry.FLOAT8, None), "m": (registry.TIMESTAMP, pa.timestamp("us")), "z": (registry.TIMESTAMPTZ, pa.timestamp("us", "UTC")),
        "d": (registry.DATE, pa.date32()),
    }.get(result, (0, None))  # fmt: skip
    return text.write_scalar(pa.scalar(value, stored) if stored is not None else value, oid) if oid else str(value)


Case = tuple[str, str, str, Callable[..., Any]]


def _cases() -> Iterator[Case]:
    """Return (SQL, kinds of the arguments, kind of the result, function) of each function."""
    for name, function in {
        "exp": floating_point.exponential, "ln": partial(floating_point.logarithm, math.log), "log": partial(floating_point.logarithm, math.log10), "cbrt": math.cbrt, "degrees": floating_point.degrees,
        "radians": floating_point.radians, "sin": partial(floating_point.periodic, math.sin), "cos": partial(floating_point.periodic, math.cos), "tan": partial(floating_point.periodic, math.tan), "cot": floating_point.cotangent,
        "asin": partial(floating_point.within_one, math.asin), "acos": partial(floating_point.within_one, math.acos), "atan": math.atan, "sinh": floating_point.hyperbolic_sine,
        "cosh": floating_point.hyperbolic_cosine, "tanh": math.tanh, "asinh": math.asinh, "acosh": floating_point.area_cosine,
        "atanh": floating_point.area_tangent, "sind": floating_point.sine_degrees, "cosd": floating_point.cosine_degrees, "tand": floating_point.tangent_degrees,
        "cotd": floating_point.cotangent_degrees, "asind": floating_point.arc_sine_degrees, "acosd": floating_point.arc_cosine_degrees,
        "atand": floating_point.arc_tangent_degrees,
    }.items():  # fmt: skip
        yield f"{name}({{}})", "f", "f", function
    yield from FUNCTIONS
    for digits in range(6):
        modifier = typmod.interval(None, digits)
        yield f"{{}}::interval({digits})", "v", "", lambda value, modifier=modifier: interval.modified(modifier, value)
        yield f"{{}}::time({digits})", "t", "", lambda value, digits=digits: time_of_day.rounded(digits, value)
        yield f"{{}}::timetz({digits})", "w", "", lambda value, digits=digits: time_of_day.zoned_rounded(digits, value)
    for kind, units, exact, double in (
        ("v", extract.INTERVAL_UNITS, extract.exact_interval, extract.double_interval),
        ("w", extract.TIMETZ_UNITS, extract.exact_timetz, extract.double_timetz),
        ("t", extract.TIME_UNITS, extract.exact_time, extract.double_time),
    ):
        for unit in sorted(units):
            yield f"extract({unit} from {{}})", kind, "", lambda value, unit=unit, exact=exact: exact(unit, value)
            yield f"date_part('{unit}', {{}})", kind, "f", lambda value, unit=unit, double=double: double(unit, value)
    for unit in sorted(interval.TRUNCATED):
        yield f"date_trunc('{unit}', {{}})", "v", "", lambda value, unit=unit: interval.truncated(unit, value)


FUNCTIONS: tuple[Case, ...] = (
    ("power({}, {})", "ff", "f", floating_point.power),
    ("atan2({}, {})", "ff", "f", math.atan2),
    ("atan2d({}, {})", "ff", "f", floating_point.arc_tangent_2_degrees),
    ("width_bucket({}, {}, {}, {})", "fffs", "", floating_point.bucket),
    ("exp({})", "n", "", numeric_power.exponential),
    ("ln({})", "n", "", numeric_power.logarithm),
    ("log({}, {})", "nn", "", numeric_power.logarithm_to),
    ("power({}, {})", "nn", "", numeric_power.power),
    ("power({}, {}::numeric)", "ns", "", lambda base, exponent: numeric_power.power(base, str(exponent))),
    ("sqrt({})", "n", "", numeric.square_root),
    ("factorial({})", "l", "", numeric_power.factorial),
    ("gcd({}, {})", "nn", "", partial(numeric_power.of_integers, math.gcd)),
    ("lcm({}, {})", "nn", "", partial(numeric_power.of_integers, math.lcm)),
    ("scale({})", "n", "", numeric_power.display_scale),
    ("min_scale({})", "n", "", numeric_power.least_scale),
    ("trim_scale({})", "n", "", numeric_power.trimmed),
    ("width_bucket({}, {}, {}, {})", "nnns", "", numeric_power.bucket),
    ("{} / {}", "nn", "", numeric.divide),
    ("{} * {}", "nn", "", numeric.multiply),
    ("{} + {}", "nn", "", numeric.add),
    ("{} - {}", "nn", "", numeric.subtract),
    ("{} % {}", "nn", "", numeric.modulo),
    ("- {}", "n", "", numeric.negate),
    ("div({}, {})", "nn", "", numeric.truncated_quotient),
    ("round({}, {})", "ns", "", numeric.round_to),
    ("trunc({}, {})", "ns", "", numeric.truncate_to),
    ("gcd({}, {})", "ii", "", partial(floating_point.in_range, math.gcd, 31, "integer")),
    ("lcm({}, {})", "ii", "", partial(floating_point.in_range, math.lcm, 31, "integer")),
    ("gcd({}, {})", "ll", "", partial(floating_point.in_range, math.gcd, 63, "bigint")),
    ("lcm({}, {})", "ll", "", partial(floating_point.in_range, math.lcm, 63, "bigint")),
    ("{} + {}", "vv", "", partial(interval.added, 1)),
    ("{} - {}", "vv", "", partial(interval.added, -1)),
    ("- {}", "v", "", interval.negated),
    ("{} * {}", "vf", "", interval.times),
    ("{} / {}", "vf", "", interval.over),
    ("justify_hours({})", "v", "", interval.justify_hours),
    ("justify_days({})", "v", "", interval.justify_days),
    ("justify_interval({})", "v", "", interval.justify_interval),
    ("make_interval({}, {}, {}, {}, {}, {}, {})", "isisssf", "", interval.made),
    ("{} + {}", "mv", "m", partial(timestamp.moved, 1)),
    ("{} - {}", "mv", "m", partial(timestamp.moved, -1)),
    ("{} - {}", "mm", "", timestamp.minus_moment),
    ("{} + {}", "dv", "m", partial(timestamp.date_moved, 1)),
    ("age({}, {})", "mm", "", timestamp.age),
    ("date_bin({}, {}, {})", "vmm", "m", timestamp.binned),
    ("make_timestamp({}, {}, {}, {}, {}, {})", "isssif", "m", timestamp.made_timestamp),
    ("make_date({}, {}, {})", "iss", "d", timestamp.made_date),
    ("make_time({}, {}, {})", "ssf", "", timestamp.made_time),
    ("to_timestamp({})", "f", "z", timestamp.of_epoch),
    ("{} AT TIME ZONE {}", "mv", "z", lambda moment, span: timestamp.moved_by_offset(-1, span, moment)),
    ("{} AT TIME ZONE {}", "wv", "", lambda clock, span: time_of_day.at_offset(span, clock)),
    ("{} + {}", "tv", "", partial(time_of_day.moved, 1)),
    ("{} - {}", "tv", "", partial(time_of_day.moved, -1)),
    ("{} + {}", "wv", "", partial(time_of_day.zoned_moved, 1)),
    ("{} - {}", "tt", "", time_of_day.difference),
    ("{}::time", "v", "", time_of_day.of_span),
    ("{}::time", "m", "", time_of_day.of_timestamp),
    ("{} + {}", "dt", "m", time_of_day.on_date),
    ("{} + {}", "dw", "z", time_of_day.zoned_on_date),
    ("to_char({}, {})", "mF", "", to_char.timestamp_text),
    ("to_char({}, {})", "vF", "", to_char.interval_text),
    ("to_date({}, {})", "RB", "d", to_timestamp.to_date),
    ("to_timestamp({}, {})", "RB", "z", lambda shown, form: to_timestamp.to_timestamp("UTC", shown, form)),
)


def _in_zone(timezone: str) -> tuple[Case, ...]:
    return (
        ("({} + {}) AT TIME ZONE 'UTC'", "zv", "m", partial(timestamp.moved_in_zone, 1, timezone)),
        ("({} - {}) AT TIME ZONE 'UTC'", "zv", "m", partial(timestamp.moved_in_zone, -1, timezone)),
        ("age({}, {})", "zz", "", lambda one, other: timestamp.age_in_zone(timezone, one, other)),
        ("make_timestamptz({}, {}, {}, {}, {}, {}) AT TIME ZONE 'UTC'", "isssif", "m", lambda *parts: timestamp.made_in_zone(timezone, *parts)),
        ("to_timestamp({}, {}) AT TIME ZONE 'UTC'", "RB", "m", lambda shown, form: to_timestamp.to_timestamp(timezone, shown, form)),
    )  # fmt: skip


def _differences(oracle: psycopg.Connection, cases: tuple[Case, ...], random: Random, rounds: int) -> list[str]:
    tried: list[tuple[str, str, Callable[[], Any]]] = []
    for form, kinds, result, function in cases:
        for _ in range(rounds):
            values = [KINDS[kind].pick(random) for kind in kinds]
            sql = form.format(
                *("'" + value.replace("'", "''") + f"'::{KINDS[kind].sql}" for value, kind in zip(values, kinds, strict=True))
            )
            plain = [KINDS[kind].plain(value) for value, kind in zip(values, kinds, strict=True)]
            tried.append((sql, result, lambda function=function, plain=plain: function(*plain)))
    query = "SELECT pg_temp.evaluate(e) FROM unnest(%s::text[]) WITH ORDINALITY u(e, place) ORDER BY place"
    oracle.execute(EVALUATE)
    expected = [row[0] for row in oracle.execute(query, ([sql for sql, _, _ in tried],)).fetchall()]
    wrong = []
    for (sql, result, run), wanted in zip(tried, expected, strict=True):
        try:
            got = _shown(run(), result)
        except PostgresError as error:
            got = f"!{error.sqlstate}"
        if got not in (wanted, NOT_STORED):
            wrong.append(f"{sql}: expected {wanted}, got {got}")
    return wrong


@pytest.mark.parametrize("rounds", ROUNDS)
def test_functions_of_single_values_give_postgresqls_results(oracle: psycopg.Connection, rounds: int) -> None:
    assert _differences(oracle, tuple(_cases()), Random(1), rounds) == []


@pytest.mark.parametrize("rounds", ROUNDS)
def test_elements_of_arrays_are_quoted_as_by_postgresql(oracle: psycopg.Connection, rounds: int) -> None:
    choice = Random(2).choice
    pieces = ("a", "é", "N", "null", "NULL", "", '"', "\\", "{", "}", ",", ";", " ", "\u00a0", *"\t\n\r\v\f")
    texts = [None if number % 9 == 0 else "".join(choice(pieces) for _ in range(number % 4)) for number in range(20 * rounds)]
    columns = texts[: len(texts) // 2], texts[len(texts) // 2 :]
    query = "SELECT ARRAY[a, b]::text FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS u(a, b, place) ORDER BY place"
    expected = [row[0] for row in oracle.execute(query, columns).fetchall()]
    assert array.written_rows(*(pa.array(column, pa.string()) for column in columns)).to_pylist() == expected


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("timezone", ZONES)
def test_functions_of_instants_use_the_sessions_time_zone(oracle: psycopg.Connection, timezone: str, rounds: int) -> None:
    oracle.execute(f"SET timezone = '{timezone}'")
    try:
        assert _differences(oracle, _in_zone(timezone), Random(timezone), rounds) == []
    finally:
        oracle.execute("SET timezone = 'UTC'")
