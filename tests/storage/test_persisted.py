"""Rows that Spark would compute differently a second time are persisted."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headgate.storage.spark.persisted import computed_once


def test_lost_rows_are_not_computed_again(spark: SparkSession) -> None:
    frame = spark.range(0, 1000, 1, 4).select("id", F.struct(F.rand().alias("r")).alias("s")).repartition(3)

    with computed_once(frame) as checkpointed:
        first = checkpointed.toArrow()
        assert first.num_rows == 1000
        assert checkpointed.where("id % 2 = 0").select("id", "s.r").count() == 500
        assert checkpointed.toArrow().equals(first)

        checkpointed._jdf.queryExecution().analyzed().rdd().unpersist(True)  # as when an executor is lost with its blocks
        with pytest.raises(Exception, match="Checkpoint block"):
            checkpointed.toArrow()
