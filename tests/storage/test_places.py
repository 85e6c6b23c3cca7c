"""The places of rows in a frame that Spark keeps (`storage.spark.persisted.places`)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.storage.spark.persisted import persisted, places


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("where", ["true", "id % 7 = 0", "id between 30 and 31", "false"])
def test_each_row_has_the_next_place_whatever_the_parts(spark: SparkSession, parts: int, where: str) -> None:
    with persisted(spark.range(0, 100, 1, parts).where(where)) as kept:
        place, rows = places(kept)
        found = kept.select("id", place.alias("place")).toArrow()

    assert found["id"].to_pylist() == sorted(found["id"].to_pylist())
    assert found["place"].to_pylist() == list(range(rows))


def test_rows_that_were_numbered_passed_through_one_task(spark: SparkSession) -> None:
    with persisted(spark.range(0, 1000, 1, 8)) as kept:
        numbered = kept.select("id", places(kept)[0].alias("place"))

        assert numbered.where(F.col("place") != F.col("id")).isEmpty()
        assert "Exchange" not in numbered._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
        assert numbered.rdd.getNumPartitions() == 8
