"""Generated expressions over generated rows: the compiled expression gives PostgreSQL's value or its SQLSTATE on every row.

A few run here, always the same; ``python -m tests.expression.agreement`` runs as many as one likes.
"""

from __future__ import annotations

import psycopg
from pyspark.sql import SparkSession
from tests.expression.agreement import Agreement


def test_generated_expressions_mean_what_postgresql_means(spark: SparkSession, oracle: psycopg.Connection) -> None:
    report = Agreement(spark, oracle).run(100, 7, rows=12)
    assert report.differences == []
    assert report.outcomes["agree"] > 0.8 * sum(report.outcomes.values())
