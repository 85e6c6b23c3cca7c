"""The Columns of long expressions grow with their text and have PostgreSQL's values."""

from __future__ import annotations

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.expression.comparison import Comparison, Probe, scope_of

from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.expression.spark import compiler
from headgate.sql.parser import parse_expression

COLUMNS = (("x", "int4"), ("d", "float8"), ("m", "numeric(10,2)"), ("u", "interval"), ("ts", "timestamp"), ("t", "text"))
ROWS = (
    ("1", "0.5", "1.25", "1 day", "2024-02-29", "abc"),
    ("2147483647", "1e308", "-99999999.99", "-1 mon", "infinity", ""),
    (None, "NaN", None, None, None, None),
    ("0", "-0", "0", "00:00:01", "1999-12-31 23:59:59", "A"),
)
TERMS = 6
PATTERNS = (
    "1{more: + 1}",
    "x{more: + x}",
    "x{more: - (x + 1)}",
    "x{more: / 2}",
    "d{more: + d}",
    "d{more: / d}",
    "m{more: * 1.01}",
    "ts{more: + u}",
    "x{more: + (1}{more:)}",
    "sind(x) = 0{more: OR sind(x) = 1}",
    "sind(x) = 0{more: AND cosd(x) < 2}",
    "CASE WHEN sind(x) = 7 THEN 1{more: WHEN sind(x) = 8 THEN 2} END",
    "sind(x) IN (0{more:, 7})",
    "md5(t) IN ('a'{more:, 'b'})",
    "abs(d{more: + abs(d}{more:)})",
    "ts{more: + '1 mon'::interval}",
    "date_trunc('century', ts{more: + '1 mon'::interval})",
)

UNDER_GUARDS = (
    "sind(1 / (d - 0.5)) = 0{more: OR sind(1 / (d + 2)) = 1}",
    "substr(t, x - 1) ~ ('b' || t){more: OR substr(t, x - 2) ~ t}",
)
"""Functions in Python whose arguments may raise: each guard contains the calls before it."""

LISTS = (
    "x IN (1, NULL)",
    "x NOT IN (1, NULL)",
    "x NOT IN (7, 8)",
    "x IN (NULL)",
    "x IN (1, 3000000000)",
    "x::int2 IN (0, 1)",
    "x::int8 NOT IN (0, 1)",
    "(1 / x) IN (1, 2)",
    "(1 / x) IN (1, NULL)",
    "t IN ('abc', 'A', NULL)",
    "t NOT IN ('abc', 'x')",
    "ts::date IN ('2024-02-29', 'infinity')",
    "t = ANY ('{abc,NULL}')",
    "x <> ALL ('{1,2}')",
    "m IN (1.25, 0, 7.125)",
    "x IN (" + ", ".join(map(str, range(1000))) + ")",
    "m IN (" + ", ".join(f"{number}.25" for number in range(1000)) + ")",
    "(" + " OR ".join(f"x = {number}" for number in range(300)) + ")",
)


def spelled(pattern: str, terms: int) -> str:
    head, *rest = pattern.split("{more:")
    return head + "".join(part.split("}")[0] * terms + part.split("}")[1] for part in rest)


def length(expression: str) -> int:
    bound = binder.bind_raw(parse_expression(expression), scope_of(COLUMNS), BindContext())
    return len(str(compiler.compile(bound, {name: F.col(name) for name, _ in COLUMNS})))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_column_grows_linearly_with_the_text_of_its_expression(spark: SparkSession, pattern: str) -> None:
    assert length(spelled(pattern, 16)) < 3 * length(spelled(pattern, 8)) + 5_000


@pytest.mark.slow
@pytest.mark.parametrize("pattern", UNDER_GUARDS)
def test_chain_of_functions_that_may_raise_at_most_doubles_with_a_term(spark: SparkSession, pattern: str) -> None:
    assert length(spelled(pattern, 5)) < 2.5 * length(spelled(pattern, 4))


@pytest.mark.slow
def test_long_expressions_have_postgresqls_values(spark: SparkSession, oracle: psycopg.Connection) -> None:
    for expression in (*[spelled(pattern, TERMS) for pattern in PATTERNS], *[spelled(pattern, 3) for pattern in UNDER_GUARDS], *LISTS):
        [verdict] = Comparison(spark, oracle).run([Probe(expression, COLUMNS, ROWS)])
        assert verdict.outcome == "agree", str(verdict)


def test_null_column_beside_a_long_operand_makes_a_strict_call_null(spark: SparkSession, oracle: psycopg.Connection) -> None:
    columns = (("t", "text"), ("v", "varchar(5)"), ("c", "char(4)"))
    rows = ((None, "ab ", "é"), (",", "ab ", "é"), ("a", None, "é"))
    probe = Probe("split_part(rtrim(split_part(c, ',', (-2)), v), t, 12)", columns, rows)
    [verdict] = Comparison(spark, oracle).run([probe])
    assert verdict.outcome == "agree", str(verdict)
