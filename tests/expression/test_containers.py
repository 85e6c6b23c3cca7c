"""Arrays, documents, addresses, bits and bytes have PostgreSQL's values, whether computed when planned or by Spark."""

from __future__ import annotations

import re
from random import Random

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.expression.comparison import Comparison, Probe
from tests.expression.containers import ARRAYS, BUILT, DOCUMENTS, SCALARS
from tests.expression.generated_containers import make

from headgate.errors import PostgresError
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import EMPTY
from headgate.expression.functions import network
from headgate.expression.spark import compiler
from headgate.expression.spark.array_element import as_item
from headgate.sql.parser import parse_expression
from headgate.types import registry

LITERAL = re.compile(
    r"(?<![A-Za-z])'((?:[^']|'')*)'::((?:timestamp|int|bigint|numeric|text|bool|float8|date|jsonb|json|inet|cidr|macaddr8|macaddr|bytea|varbit|uuid|money|pg_lsn|interval)(?:\[\])?)(?![(\w])"
)


ALL = ARRAYS + DOCUMENTS + BUILT + SCALARS


def over_columns(expression: str) -> Probe:
    """Return the expression with its typed literals as columns, so that no part of it can be computed during planning."""
    columns: list[tuple[str, str]] = []
    values: list[str | None] = []

    def column(match: re.Match[str]) -> str:
        columns.append((f"c{len(columns)}", match[2]))
        values.append(match[1].replace("''", "'"))
        return columns[-1][0]

    return Probe(LITERAL.sub(column, expression), tuple(columns), (tuple(values), (None,) * len(values)))


@pytest.mark.slow
@pytest.mark.parametrize("in_columns", [True, False])
def test_containers_have_postgresqls_values(in_columns: bool, spark: SparkSession, oracle: psycopg.Connection) -> None:
    comparison = Comparison(spark, oracle)
    constant_probes = [Probe(expression, (), ((),)) for expression in ALL]
    is_raised = {probe.expression: (comparison.expected(probe)[0] or "").startswith("!") for probe in constant_probes}
    without_errors = [probe for probe in constant_probes if not is_raised[probe.expression]]
    with_errors = [probe for probe in constant_probes if is_raised[probe.expression]]
    compared = [over_columns(case.expression) for case in without_errors] if in_columns else without_errors
    verdicts = comparison.run(compared + with_errors)
    assert [str(verdict) for verdict in verdicts if verdict.outcome not in ("agree", "rejected")] == []


UNPLANNED = object()


def planned(expression: str) -> object:
    """Return the text of an expression that is computed during planning, ``!SQLSTATE`` if it is rejected, or UNPLANNED if Spark computes
    it.
    """
    try:
        bound = binder.bind(parse_expression(expression), EMPTY, context=BindContext())
        value = compiler.plan(bound)
    except PostgresError as error:
        return f"!{error.sqlstate}"
    if value.is_null or value.constant is None:
        return None if value.is_null else UNPLANNED
    text_shown = as_item(value, bound.type).constant or ""
    if bound.type.oid in (registry.INET, registry.CIDR):
        return network.shown(text_shown)
    return {"t": "true", "f": "false"}[text_shown] if bound.type.oid == registry.BOOL else text_shown


@pytest.mark.parametrize(("count", "seed"), [(200, "1"), pytest.param(20_000, "2", marks=pytest.mark.slow)])
def test_generated_constants_are_computed_as_by_postgresql(spark: SparkSession, oracle: psycopg.Connection, count: int, seed: str) -> None:
    comparison, random, different = Comparison(spark, oracle), Random(seed), []
    for _ in range(count):
        expression = make(random)
        [expected] = comparison.expected(Probe(expression, (), ((),)))
        actual = planned(expression)
        if actual is not UNPLANNED and actual != expected:
            different.append(f"{expression}: PostgreSQL {expected!r}, ours {actual!r}")
    assert different == []
