"""Rows of a persisted frame have consecutive positions (`storage.spark.persisted.places`)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.storage.spark.persisted import persisted, places


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("where", ["true", "id % 7 = 0", "id between 30 and 31", "false"])
def test_rows_have_consecutive_positions_in_any_partitions(spark: SparkSession, parts: int, where: str) -> None:
    with persisted(spark.range(0, 100, 1, parts).where(where)) as frame:
        position, rows = places(frame)
        numbered = frame.select("id", position.alias("place")).toArrow()

    assert numbered["id"].to_pylist() == sorted(numbered["id"].to_pylist())
    assert numbered["place"].to_pylist() == list(range(rows))


def test_numbering_keeps_the_partitions(spark: SparkSession) -> None:
    with persisted(spark.range(0, 1000, 1, 8)) as frame:
        numbered = frame.select("id", places(frame)[0].alias("place"))

        assert numbered.where(F.col("place") != F.col("id")).isEmpty()
        assert "Exchange" not in numbered._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
        assert numbered.rdd.getNumPartitions() == 8
