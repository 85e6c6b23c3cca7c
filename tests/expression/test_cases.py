"""Each of the specification's 304 expressions agrees with PostgreSQL on every value and error, or is rejected when it is bound.

Expressions that PostgreSQL accepts in a publication's WHERE (values that are not conditions are wrapped in IS NOT NULL) are counted
separately: 95 percent of them must agree. ``python -m tests.expression.test_cases 'host=… port=…'`` prints the rejected ones.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.expression.cases import CASES
from tests.expression.comparison import Comparison, Probe, Verdict, type_of

from headgate.errors import PostgresError

INFINITE = {"'infinity' timestamp / date"}
"""Values that can be read from text, but that the storage of dates rejects (0A000) when the expression is evaluated."""


def probes() -> list[Probe]:
    """Return the expressions over types that a column of a node can have."""
    probe_list = []
    for label, expression, columns, rows in CASES:
        try:
            for _, kind in columns:
                type_of(kind)
        except PostgresError:
            continue
        if label not in INFINITE and "(TZ NY)" not in label:
            probe_list.append(Probe(expression, columns, rows, label))
    return probe_list


def accepted(connection: psycopg.Connection, probe: Probe) -> bool:
    """Return whether PostgreSQL accepts the expression in a publication."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in probe.columns)
    for condition in (probe.expression, f"({probe.expression}) IS NOT NULL"):
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(f"CREATE TABLE t ({columns}); CREATE PUBLICATION p FOR TABLE t WHERE ({condition})".encode())
        except psycopg.Error:
            continue
        return True
    return False


def judged(spark: SparkSession, connection: psycopg.Connection) -> tuple[list[Verdict], Counter[str]]:
    """Return all verdicts, and the outcomes of the expressions that PostgreSQL accepts in a publication."""
    verdicts = Comparison(spark, connection).run(probes())
    return verdicts, Counter(verdict.outcome for verdict in verdicts if accepted(connection, verdict.probe))


@pytest.mark.slow
def test_every_expression_agrees_or_is_rejected(
    spark: SparkSession, oracle: psycopg.Connection, record_property: Callable[[str, object], None]
) -> None:
    verdicts, published = judged(spark, oracle)
    record_property("outcomes", str(Counter(verdict.outcome for verdict in verdicts)))
    record_property("published", str(published))
    assert [f"{verdict.probe.label}: {verdict}" for verdict in verdicts if verdict.outcome == "differ"] == []
    assert published["agree"] >= 0.95 * sum(published.values()), [
        f"{verdict.probe.label}: {verdict.why}" for verdict in verdicts if verdict.outcome == "refused"
    ]


if __name__ == "__main__":
    from headgate.storage.spark.application import spark_session as spark

    session = spark.start()
    with psycopg.connect(sys.argv[1], autocommit=True) as oracle_connection:
        oracle_connection.execute("SET timezone = 'UTC'")
        all_verdicts, counted = judged(session, oracle_connection)
    for verdict in all_verdicts:
        if verdict.outcome != "agree":
            print(verdict.outcome, "|", verdict.probe.label, "|", verdict.probe.expression, "|", verdict.why[:200] or verdict)
    print(Counter(verdict.outcome for verdict in all_verdicts), "in publications:", counted)
    session.stop()
