"""Generated expressions over generated rows: the compiled expression gives PostgreSQL's value or its SQLSTATE on every row.

HYPOTHESIS_PROFILE=long runs many more. Expressions are judged in batches, since a Spark query has a price; a difference is printed
as the `Probe` that can be pasted into a test.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import psycopg
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.expression.comparison import Comparison, Probe, Verdict
from tests.expression.generated import COLUMNS, make, rows

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
COUNT = int(os.environ.get("EXPRESSIONS", "4000" if LONG else "120"))
ROUND = 120


def generate(count: int, number: int) -> list[Probe]:
    """`count` probes by the seed `number`."""
    made: list[Probe] = []

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
    @given(st.lists(rows(), min_size=3, max_size=5))
    def collect(values: list[tuple[str | None, ...]]) -> None:
        expression = make(Random(f"{number}/{len(made)}"), None, len(made) % 3 + 1)
        made.append(Probe(expression, COLUMNS, tuple(values)))

    collect()
    return made[:count]


def test_generated_expressions_mean_what_postgresql_means(spark: SparkSession, oracle: psycopg.Connection) -> None:
    comparison = Comparison(spark, oracle, thorough=LONG)
    wrong: list[Verdict] = []
    outcomes: Counter[str] = Counter()
    start = int(os.environ.get("SEED", "1"))
    for number in range(start, start + max(1, COUNT // ROUND)):
        verdicts = comparison.run(generate(ROUND, number))
        outcomes.update(each.outcome for each in verdicts)
        wrong.extend(each for each in verdicts if each.outcome == "differ")
    print(dict(outcomes))
    assert [str(each) for each in wrong] == []
    assert outcomes["agree"] > 0.7 * sum(outcomes.values())
