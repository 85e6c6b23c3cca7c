"""The specification's 304 expressions: each agrees with a real PostgreSQL on every value and error, or is refused when it is bound.

Those that PostgreSQL takes in a publication's WHERE (a value that is no condition wrapped in IS NOT NULL) are counted apart: 95 in
a hundred must agree. ``python -m tests.expression.test_cases 'host=… port=…'`` prints what is refused.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import psycopg
from pyspark.sql import SparkSession
from tests.expression.cases import CASES
from tests.expression.comparison import Comparison, Probe, Verdict, type_of

from headgate.errors import PostgresError

INFINITE = {"'infinity' timestamp / date"}
"""Read from text, refused by the storage of dates: a run-time 0A000, since only the value tells."""


def probes() -> list[Probe]:
    """The expressions over types that a column can have here."""
    made = []
    for label, expression, columns, rows in CASES:
        try:
            for _, kind in columns:
                type_of(kind)
        except PostgresError:
            continue
        if label not in INFINITE and "(TZ NY)" not in label:
            made.append(Probe(expression, columns, rows, label))
    return made


def accepted(connection: psycopg.Connection, probe: Probe) -> bool:
    """Whether PostgreSQL takes the expression in a publication."""
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
    """All verdicts, and how many of the publications' expressions agree."""
    verdicts = Comparison(spark, connection).run(probes())
    return verdicts, Counter(each.outcome for each in verdicts if accepted(connection, each.probe))


def test_every_expression_agrees_or_is_refused(
    spark: SparkSession, oracle: psycopg.Connection, record_property: Callable[[str, object], None]
) -> None:
    verdicts, published = judged(spark, oracle)
    record_property("outcomes", str(Counter(each.outcome for each in verdicts)))
    record_property("published", str(published))
    assert [f"{each.probe.label}: {each}" for each in verdicts if each.outcome == "differ"] == []
    assert published["agree"] >= 0.95 * sum(published.values()), [
        f"{each.probe.label}: {each.why}" for each in verdicts if each.outcome == "refused"
    ]


if __name__ == "__main__":
    from headgate.storage.spark.application import spark_session as spark

    session = spark.start()
    with psycopg.connect(sys.argv[1], autocommit=True) as made:
        made.execute("SET timezone = 'UTC'")
        found, counted = judged(session, made)
    for verdict in found:
        if verdict.outcome != "agree":
            print(verdict.outcome, "|", verdict.probe.label, "|", verdict.probe.expression, "|", verdict.why[:200] or verdict)
    print(Counter(each.outcome for each in found), "in publications:", counted)
    session.stop()
