"""Values at the edges of their types, each named after what went wrong with it: the compiled Column and the driver have PostgreSQL's answer."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.expression.comparison import Comparison, Probe
from tests.expression.test_columnwise import expected, found, judge

from headgate.expression import columnwise

__all__ = ["judge"]
NINES, UNEVEN = "9" * 38, "12345678901234567890123456789012345678"
WIDE = (
    (("n", "numeric(38,0)"), [NINES, f"-{NINES}", UNEVEN, f"-{UNEVEN}", "0", None]),
    (("n", "numeric(38,10)"), [f"{UNEVEN[:28]}.{UNEVEN[28:]}", f"-{UNEVEN[:28]}.{UNEVEN[28:]}", "-0.0000000001", f"-{NINES[:28]}.{NINES[28:]}"]),
    (("n", "numeric(38,38)"), ["1e-38", "-1e-38", f"-0.{UNEVEN}", f"0.{NINES}", "0"]),
)  # fmt: skip
TOP, BOTTOM = "[2147483646:2147483646]={7}", "[-2147483648:-2147483648]={7}"


def differences(spark: SparkSession, oracle: psycopg.Connection, probes: Sequence[Probe]) -> list[str]:
    return [str(each) for each in Comparison(spark, oracle).run(probes) if each.outcome != "agree"]


def test_a_sign_is_changed_without_rounding_38_digits_to_34(spark: SparkSession, oracle: psycopg.Connection) -> None:
    asked = ("- n", "abs(n)", "abs(n) > 5", "sqrt(abs(n)) IS NOT NULL", "- abs(- n)", "(- n) + n", "n < - n", "coalesce(- n, abs(n))")
    probes = [Probe(each, (column,), tuple((value,) for value in values)) for column, values in WIDE for each in asked]
    assert differences(spark, oracle, probes) == []


def test_the_last_of_38_digits_behind_the_point_is_not_nothing(spark: SparkSession, oracle: psycopg.Connection) -> None:
    asked = (
        "sign(n)",
        "abs(n)",
        "n > 0",
        "n = 0",
        "round(n, 38)",
        "trunc(n)",
        "ceil(n)",
        "floor(n)",
        "n % 0.3",
        "n::int",
        "n * 1",
        "n + 1",
        "log(abs(n))",
    )
    probes = [Probe(each, (column,), tuple((value,) for value in values)) for column, values in WIDE for each in asked]
    assert differences(spark, oracle, probes) == []


def test_an_array_does_not_grow_beyond_the_least_and_the_greatest_subscript(spark: SparkSession, oracle: psycopg.Connection) -> None:
    asked = (
        "a || 1",
        "1 || a",
        "array_append(a, 1)",
        "array_prepend(1, a)",
        "a || a",
        "array_cat(a, '{1,2}')",
        "array_cat('{1}', a)",
        "ARRAY[a, a]",
    )
    rows = ((TOP,), (BOTTOM,), ("[2147483645:2147483646]={1,2}",), ("{}",), (None,))
    fill = Probe("array_fill(1, ARRAY[2], ARRAY[i])", (("i", "int4"),), (("2147483646",), ("2147483645",), ("-2147483648",)))
    assert differences(spark, oracle, [fill, *(Probe(each, (("a", "int4[]"),), rows) for each in asked)]) == []


def test_an_interval_takes_every_number_of_days_that_is_an_integer_once_its_fraction_went_down(
    spark: SparkSession, oracle: psycopg.Connection
) -> None:
    numbers = (("2147483647.5",), ("2147483648",), ("-2147483648",), ("-2147483648.5",), ("1073741823.9",), ("NaN",), ("Infinity",))
    asked = (
        "interval '1 day' * f",
        "interval '1 mon' * f",
        "interval '-1 day' * f",
        "interval '2 days' / (1 / f)",
        "f * interval '1 day 1 mon'",
    )
    assert differences(spark, oracle, [Probe(each, (("f", "float8"),), numbers) for each in asked]) == []


def test_a_numeric_of_more_digits_than_python_writes_is_a_number_like_any_other(spark: SparkSession, oracle: psycopg.Connection) -> None:
    rows = (("9" * 4400,), ("-" + "8" * 9000 + ".5",), ("1e-5000",))
    asked = (
        "div(n, 1)",
        "div(n, 7)",
        "n % 7",
        "- n",
        "round(n)",
        "n::text",
        "n * n = power(n, 2)",
        "n > 0",
        "gcd(n, 6)",
        "sqrt(abs(n)) > 1",
    )
    documents = (("9" * 4400,), ('{"a": ' + "7" * 5000 + "}",))
    assert differences(spark, oracle, [Probe(each, (("n", "numeric"),), rows) for each in asked]) == []
    probes = [Probe(each, (("j", "jsonb"),), documents) for each in ("j::text", "j -> 'a'", "j = '1'", "(j -> 'a')::numeric", "j || '[1]'")]
    assert differences(spark, oracle, probes) == []


def test_a_numeric_is_rounded_at_any_place_that_it_has(spark: SparkSession, oracle: psycopg.Connection) -> None:
    places = [("9" * 4400, place) for place in ("-2001", "-4399", "-4400", "-5000", "-2147483648")]
    rows = (*places, ("1.5", "3000"), ("1.5e-2500", "2147483647"))
    probes = [Probe(f"{each}(n, i)", (("n", "numeric"), ("i", "int4")), rows) for each in ("round", "trunc")]
    assert differences(spark, oracle, probes) == []


def test_infinitely_many_powers_of_what_is_hardly_more_than_one_are_infinite(spark: SparkSession, oracle: psycopg.Connection) -> None:
    rows = (("1." + "0" * 34 + "1",), ("0." + "9" * 40,), ("-1",), ("1",), ("-1." + "0" * 34 + "1",))
    assert differences(spark, oracle, [Probe(f"power(n, '{each}')", (("n", "numeric"),), rows) for each in ("Infinity", "-Infinity")]) == []


@pytest.mark.parametrize(
    ("column", "condition", "values"),
    [
        (("m", "timestamp"), "m = ANY (ARRAY[timestamp '-infinity', '2024-02-29 23:59:59.999999', '1970-01-01'])", ["-infinity", "1970-01-01", None]),
        (("m", "timestamp"), "m NOT IN ('infinity', '1970-01-01')", ["infinity", "-infinity", "1970-01-01", None]),
        (("z", "timestamptz"), "z IN ('infinity', '-infinity', '294246-12-31 00:00+00')", ["infinity", "294246-12-31 00:00+00", "2024-01-01"]),
        (("d", "date"), "d IN ('-infinity', '4714-11-24 BC', '5874897-12-31')", ["-infinity", "infinity", "4714-11-24 BC", "5874897-12-31"]),
    ],
)  # fmt: skip
def test_infinity_in_a_list_is_looked_up_in_the_driver(
    judge: psycopg.Connection,
    column: tuple[str, str],
    condition: str,
    values: list[str | None],
) -> None:
    rows: list[tuple[str | None, ...]] = [(value,) for value in values]
    (answers,) = expected(judge, (column,), rows, [condition])
    assert found(condition, (column,), rows) == [answer == "true" for answer in answers]


@pytest.mark.parametrize(
    ("columns", "condition", "row"),
    [
        ((("o", "oid"), ("s", "int2")), "o >= s", ("1", "-1")),
        ((("o", "oid"), ("s", "int2")), "o = s::oid", ("4294967295", "-1")),
        ((("f", "float8"),), "f < 1e400", ("1",)),
        ((("f", "float8"),), "f > 1e-400", ("1",)),
    ],
)
def test_what_the_driver_would_answer_otherwise_than_postgresql_is_left_to_spark(
    columns: tuple[tuple[str, str], ...], condition: str, row: tuple[str | None, ...]
) -> None:
    with pytest.raises(columnwise.NotColumnwise):
        found(condition, columns, [row])
