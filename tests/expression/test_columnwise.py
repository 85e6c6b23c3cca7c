"""Conditions that the driver evaluates column by column have PostgreSQL's result on every row. Other conditions are left to Spark.

A few generated conditions run in ``make test``, 20,000 others in ``make test-all``.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import psycopg
import pyarrow as pa
import pytest
from tests.expression.agreement import _JUDGE
from tests.expression.comparison import raised, scope_of, type_of
from tests.expression.generated import GRAMMAR
from tests.expression.grammar import hidden, plain

from headgate.errors import PostgresError
from headgate.expression import columnwise
from headgate.expression.binding import binder
from headgate.expression.binding.context import BindContext
from headgate.sql.parser import parse_expression
from headgate.types.text import text

ROUND, ROWS = 120, 12

COLUMNWISE = (
    "a > 3 AND b <> 4", "NOT (c = 'x' OR b IS NULL)", "c LIKE 'x%'", "c LIKE '%x%'", "c NOT LIKE '%x'", "lower(c) = 'x'", "a % 2 = 0",
    "b IN (1, 2, 3)", "b NOT IN (1, 2)", "b BETWEEN 1 AND 3", "a = ANY ('{1,2,3}')", "n > 1.5", "n = 2", "d >= '2020-01-02'", "f > 0.5",
    "t < '2020-01-01 10:00'", "g", "g IS NOT TRUE", "a IS DISTINCT FROM b", "coalesce(b, 9) > 3", "v = 'x'", "length(c) > 1", "c || 'y' = 'xy'",
    "a + b > 5", "b / a > 0 OR a = 0", "true", "NULL", "n IN (1, 2.5)", "z > '2020-01-01 00:00+02'", "v LIKE 'x%'", "a > 2.5",
)  # fmt: skip
COLUMNS = (
    ("a", "int4"), ("b", "int8"), ("c", "text"), ("n", "numeric(10,2)"), ("d", "date"), ("f", "float8"), ("t", "timestamp"), ("g", "bool"),
    ("v", "varchar(5)"), ("z", "timestamptz"),
)  # fmt: skip
ROW = [
    ("1", "2", "x", "1.50", "2020-01-02", "0.5", "2020-01-01 09:00", "t", "x", "2019-12-31 22:00+00"),
    ("4", "4", "xy", "2.00", "2019-01-02", "1.5", "2020-01-01 11:00", "f", "xy", "2019-12-31 23:00+00"),
    ("7", None, None, None, None, None, None, None, None, None),
    ("3", "3", "ax", "2.50", "2021-01-02", "-1", "1999-01-01", None, "", "2021-12-31 22:00+00"),
]


def arrays(columns: tuple[tuple[str, str], ...], rows: list[tuple[str | None, ...]]) -> dict[str, pa.Array]:
    """Return the rows by column, in storage types."""
    columns_by_name = {}
    for number, (name, kind) in enumerate(columns):
        columns_by_name[name] = text.read_text(pa.array([row[number] for row in rows], pa.string()), *type_of(kind))
    return columns_by_name


@pytest.fixture(scope="module")
def judge(oracle: psycopg.Connection) -> psycopg.Connection:
    """A connection with a function that evaluates expressions row by row."""
    oracle.execute(_JUDGE)
    return oracle


def expected_results(
    judge: psycopg.Connection, columns: tuple[tuple[str, str], ...], rows: list[tuple[str | None, ...]], expressions: list[str]
) -> list[list[str | None]]:
    """Return PostgreSQL's results."""
    definitions = ", ".join(f'"{name}" {kind}' for name, kind in columns)
    judge.execute(f"DROP TABLE IF EXISTS generated; CREATE TEMP TABLE generated (place int PRIMARY KEY, {definitions})".encode())
    marks = ", ".join(["%s"] * (len(columns) + 1))
    with judge.cursor() as cursor:
        cursor.executemany(f"INSERT INTO generated VALUES ({marks})".encode(), [(number, *row) for number, row in enumerate(rows)])
    query = "SELECT pg_temp.judged(e) FROM unnest(%s::text[]) WITH ORDINALITY u(e, o) ORDER BY o"
    return [row[0] for row in judge.execute(query, (expressions,)).fetchall()]


def actual_results(expression: str, columns: tuple[tuple[str, str], ...], rows: list[tuple[str | None, ...]]) -> list[bool]:
    """Return the results of `columnwise`."""
    bound = binder.bind_condition(parse_expression(expression), scope_of(columns), "WHERE", context=BindContext())
    return list(columnwise.condition(bound, arrays(columns, rows), len(rows)).to_pylist())


@pytest.mark.parametrize("condition", COLUMNWISE)
def test_common_filter_is_evaluated_without_spark(judge: psycopg.Connection, condition: str) -> None:
    (answers,) = expected_results(judge, COLUMNS, ROW, [condition])
    assert actual_results(condition, COLUMNS, ROW) == [answer == "true" for answer in answers]


@pytest.mark.parametrize("condition", ["10 / b > 1", "a + 2147483647 > 0", "f = 'NaN'", "b <> 0 AND 10 / b > 2"])
def test_condition_that_raises_or_may_raise_is_left_to_spark(condition: str) -> None:
    rows = [*ROW, ("1", "0", "x", "1", "2020-01-01", "NaN", "2020-01-01", "t", "x", "2020-01-01")]
    with pytest.raises(columnwise.NotColumnwise):
        actual_results(condition, COLUMNS, rows)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "seed"), [(1, 1), (167, 2)])
def test_generated_conditions_have_postgresqls_result_or_are_left_to_spark(judge: psycopg.Connection, rounds: int, seed: int) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(rounds):
        random = Random(f"{seed}/{number}")
        rows = [GRAMMAR.row(random) for _ in range(ROWS)]
        conditions = [GRAMMAR.expression(random, 1 + index % 3, "boolean") for index in range(ROUND)]
        for condition, answers in zip(
            conditions, expected_results(judge, GRAMMAR.columns, rows, [hidden(generated) for generated in conditions]), strict=True
        ):
            try:
                results = actual_results(plain(condition), GRAMMAR.columns, rows)
            except (columnwise.NotColumnwise, PostgresError) as error:
                outcomes[type(error).__name__] += 1
                continue
            outcomes["evaluated"] += 1
            assert not any(map(raised, answers)), plain(condition)
            assert results == [answer == "true" for answer in answers], plain(condition)
    assert outcomes["evaluated"] > rounds * ROUND / 20
