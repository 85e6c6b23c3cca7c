"""Values at the edges of their types have PostgreSQL's results, from the compiled Column and from the driver."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.expression.comparison import Comparison, Probe
from tests.expression.test_columnwise import actual_results, expected_results, judge

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
    return [str(verdict) for verdict in Comparison(spark, oracle).run(probes) if verdict.outcome != "agree"]


def test_sign_changes_keep_all_38_digits(spark: SparkSession, oracle: psycopg.Connection) -> None:
    expressions = ("- n", "abs(n)", "abs(n) > 5", "sqrt(abs(n)) IS NOT NULL", "- abs(- n)", "(- n) + n", "n < - n", "coalesce(- n, abs(n))")
    probes = [Probe(expression, (column,), tuple((value,) for value in values)) for column, values in WIDE for expression in expressions]
    assert differences(spark, oracle, probes) == []


def test_smallest_decimal_with_scale_38_is_not_zero(spark: SparkSession, oracle: psycopg.Connection) -> None:
    expressions = (
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
    probes = [Probe(expression, (column,), tuple((value,) for value in values)) for column, values in WIDE for expression in expressions]
    assert differences(spark, oracle, probes) == []


def test_array_does_not_grow_beyond_the_least_and_the_greatest_subscript(spark: SparkSession, oracle: psycopg.Connection) -> None:
    expressions = (
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
    assert differences(spark, oracle, [fill, *(Probe(expression, (("a", "int4[]"),), rows) for expression in expressions)]) == []


def test_interval_accepts_days_that_fit_an_integer_after_rounding(spark: SparkSession, oracle: psycopg.Connection) -> None:
    numbers = (("2147483647.5",), ("2147483648",), ("-2147483648",), ("-2147483648.5",), ("1073741823.9",), ("NaN",), ("Infinity",))
    expressions = (
        "interval '1 day' * f",
        "interval '1 mon' * f",
        "interval '-1 day' * f",
        "interval '2 days' / (1 / f)",
        "f * interval '1 day 1 mon'",
    )
    assert differences(spark, oracle, [Probe(expression, (("f", "float8"),), numbers) for expression in expressions]) == []


def test_numeric_with_more_digits_than_python_prints_can_be_computed(spark: SparkSession, oracle: psycopg.Connection) -> None:
    rows = (("9" * 4400,), ("-" + "8" * 9000 + ".5",), ("1e-5000",))
    expressions = (
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
    assert differences(spark, oracle, [Probe(expression, (("n", "numeric"),), rows) for expression in expressions]) == []
    probes = [
        Probe(expression, (("j", "jsonb"),), documents)
        for expression in ("j::text", "j -> 'a'", "j = '1'", "(j -> 'a')::numeric", "j || '[1]'")
    ]
    assert differences(spark, oracle, probes) == []


def test_numeric_is_rounded_at_any_scale(spark: SparkSession, oracle: psycopg.Connection) -> None:
    places = [("9" * 4400, scale) for scale in ("-2001", "-4399", "-4400", "-5000", "-2147483648")]
    rows = (*places, ("1.5", "3000"), ("1.5e-2500", "2147483647"))
    probes = [Probe(f"{function}(n, i)", (("n", "numeric"), ("i", "int4")), rows) for function in ("round", "trunc")]
    assert differences(spark, oracle, probes) == []


def test_infinite_power_of_a_number_slightly_above_one_is_infinite(spark: SparkSession, oracle: psycopg.Connection) -> None:
    rows = (("1." + "0" * 34 + "1",), ("0." + "9" * 40,), ("-1",), ("1",), ("-1." + "0" * 34 + "1",))
    assert (
        differences(spark, oracle, [Probe(f"power(n, '{exponent}')", (("n", "numeric"),), rows) for exponent in ("Infinity", "-Infinity")])
        == []
    )


@pytest.mark.parametrize(
    ("column", "condition", "values"),
    [
        (("m", "timestamp"), "m = ANY (ARRAY[timestamp '-infinity', '2024-02-29 23:59:59.999999', '1970-01-01'])", ["-infinity", "1970-01-01", None]),
        (("m", "timestamp"), "m NOT IN ('infinity', '1970-01-01')", ["infinity", "-infinity", "1970-01-01", None]),
        (("z", "timestamptz"), "z IN ('infinity', '-infinity', '294246-12-31 00:00+00')", ["infinity", "294246-12-31 00:00+00", "2024-01-01"]),
        (("d", "date"), "d IN ('-infinity', '4714-11-24 BC', '5874897-12-31')", ["-infinity", "infinity", "4714-11-24 BC", "5874897-12-31"]),
    ],
)  # fmt: skip
def test_infinity_in_a_list_is_found_by_the_driver(
    judge: psycopg.Connection,
    column: tuple[str, str],
    condition: str,
    values: list[str | None],
) -> None:
    rows: list[tuple[str | None, ...]] = [(value,) for value in values]
    (answers,) = expected_results(judge, (column,), rows, [condition])
    assert actual_results(condition, (column,), rows) == [answer == "true" for answer in answers]


@pytest.mark.parametrize(
    ("columns", "condition", "row"),
    [
        ((("o", "oid"), ("s", "int2")), "o >= s", ("1", "-1")),
        ((("o", "oid"), ("s", "int2")), "o = s::oid", ("4294967295", "-1")),
        ((("f", "float8"),), "f < 1e400", ("1",)),
        ((("f", "float8"),), "f > 1e-400", ("1",)),
    ],
)
def test_condition_that_the_driver_would_evaluate_differently_is_left_to_spark(
    columns: tuple[tuple[str, str], ...], condition: str, row: tuple[str | None, ...]
) -> None:
    with pytest.raises(columnwise.NotColumnwise):
        actual_results(condition, columns, [row])
