"""Operators and functions of ranges and multiranges give PostgreSQL's values for each pair of values."""

from __future__ import annotations

import itertools

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.expression.comparison import Comparison, Probe

RANGES = {
    "int4": (None, "empty", "[1,5)", "[5,9)", "[3,6)", "(,3)", "[7,)", "(,)", "[1,1]"),
    "num": (None, "empty", "[1,5)", "[1.0,5.00]", "(5,9)", "(1,5)", "[5,5]", "(,3)", "(,)"),
    "tstz": (None, "empty", "[2024-01-01 00:00+00,2024-02-01 00:00+01)", "(2024-01-15 00:00+00,infinity]", "[-infinity,2024-01-20 00:00+00)"),
    "date": (None, "empty", "[2024-01-01,2024-02-01)", "[2024-02-01,infinity]", "(-infinity,2024-01-10)"),
}  # fmt: skip
MULTIRANGES = {
    "int4": (None, "{}", "{[1,3),[5,9)}", "{[2,6)}", "{(,2),[4,5)}", "{[9,)}", "{(,)}"),
    "num": (None, "{}", "{[1,3.0),(3,9]}", "{[2,6.50)}", "{(,2),[4,4]}", "{(6.5,)}"),
}  # fmt: skip
ELEMENTS = {
    "int4": ("integer", (None, "1", "4", "5")),
    "num": ("numeric", (None, "1.00", "3", "5", "NaN")),
    "tstz": ("timestamptz", (None, "2024-01-15 00:00+00", "infinity")),
    "date": ("date", (None, "2024-01-31", "infinity")),
}
RELATIONS = ("&&", "@>", "<@", "<<", ">>", "&<", "&>", "-|-", "=", "<")
COMBINATIONS = ("+", "-", "*")
PARTS = ("lower", "upper", "isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf")


def _pairs(left: tuple[str | None, ...], right: tuple[str | None, ...]) -> tuple[tuple[str | None, ...], ...]:
    return tuple(itertools.product(left, right))


def _of_two(
    kinds: tuple[str, str], values: tuple[tuple[str | None, ...], tuple[str | None, ...]], operators: tuple[str, ...]
) -> list[Probe]:
    columns = (("a", kinds[0]), ("b", kinds[1]))
    return [Probe(f"a {operator} b", columns, _pairs(*values)) for operator in operators]


def _of_one(kind: str, values: tuple[str | None, ...], functions: tuple[str, ...]) -> list[Probe]:
    return [Probe(f"{function}(a)", (("a", kind),), tuple((value,) for value in values)) for function in functions]


def _of_elements(kind: str, values: tuple[str | None, ...], name: str) -> list[Probe]:
    element, elements = ELEMENTS[name]
    columns = (("a", kind), ("b", element))
    return [Probe(expression, columns, _pairs(values, elements)) for expression in ("a @> b", "b <@ a")]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "num" else []) for name in RANGES])
def test_functions_of_ranges_give_postgresqls_values(name: str, spark: SparkSession, oracle: psycopg.Connection) -> None:
    kind, values = f"{name}range", RANGES[name]
    element, bounds = ELEMENTS[name]
    probes = [
        *_of_two((kind, kind), (values, values), (*RELATIONS, *COMBINATIONS)),
        *_of_elements(kind, values, name),
        *_of_one(kind, values, (*PARTS, "multirange", f"{name}multirange")),
        Probe("range_merge(a, b)", (("a", kind), ("b", kind)), _pairs(values, values)),
        Probe(f"{kind}(a, b)", (("a", element), ("b", element)), _pairs(bounds, bounds)),
        Probe(
            f"{kind}(a, b, c)",
            (("a", element), ("b", element), ("c", "text")),
            tuple(itertools.product(bounds, bounds, ("[]", "()", "(]", "x", None))),
        ),
    ]
    assert [str(verdict) for verdict in Comparison(spark, oracle).run(probes) if verdict.outcome != "agree"] == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "num" else []) for name in MULTIRANGES])
def test_functions_of_multiranges_give_postgresqls_values(name: str, spark: SparkSession, oracle: psycopg.Connection) -> None:
    kind, values = f"{name}multirange", MULTIRANGES[name]
    range_type, ranges = f"{name}range", RANGES[name]
    probes = [
        *_of_two((kind, kind), (values, values), (*RELATIONS, *COMBINATIONS)),
        *_of_two((kind, range_type), (values, ranges), RELATIONS[:8]),
        *_of_two((range_type, kind), (ranges, values), RELATIONS[:8]),
        *_of_elements(kind, values, name),
        *_of_one(kind, values, (*PARTS, "range_merge")),
        Probe(f"{kind}(a, b)", (("a", range_type), ("b", range_type)), _pairs(ranges, ranges)),
        Probe(f"{kind}()", (), ((),)),
    ]
    assert [str(verdict) for verdict in Comparison(spark, oracle).run(probes) if verdict.outcome != "agree"] == []


@pytest.mark.parametrize(
    "expression",
    [
        "'[1,5)'::int4range @> 'x'::text",
        "'[1,5)'::int4range && '[1,5)'::numrange",
        "'{[1,5)}'::int4multirange && '[1,5)'::numrange",
        "range_merge('[1,5)'::int4range, '[1,5)'::numrange)",
        "int4multirange(NULL::int4range, '[1,2)')",
        "int4range(5, 1)",
        "lower(1)",
    ],
)
def test_expression_that_postgresql_rejects_is_rejected(expression: str, spark: SparkSession, oracle: psycopg.Connection) -> None:
    [verdict] = Comparison(spark, oracle).run([Probe(expression, (), ((),))])
    assert verdict.outcome in ("agree", "rejected"), str(verdict)
