"""Rows that Spark keeps because they would be others if it made them again."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.storage.spark.persisted import computed_once


def test_rows_that_are_lost_are_not_made_again(spark: SparkSession) -> None:
    made = spark.range(0, 1000, 1, 4).select("id", F.struct(F.rand().alias("r")).alias("s")).repartition(3)

    with computed_once(made) as kept:
        first = kept.toArrow()
        assert first.num_rows == 1000
        assert kept.where("id % 2 = 0").select("id", "s.r").count() == 500
        assert kept.toArrow().equals(first)

        kept._jdf.queryExecution().analyzed().rdd().unpersist(True)  # as an executor that goes takes them with it
        with pytest.raises(Exception, match="Checkpoint block"):
            kept.toArrow()
