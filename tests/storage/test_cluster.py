"""What a node sets by the executors that it has."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headgate.storage.spark.application import cluster


def test_rows_are_exchanged_in_as_many_partitions_as_executors_have_work_for(spark: SparkSession) -> None:
    session = spark.newSession()
    cluster.spread(session)
    exchanged = session.range(100).selectExpr("id % 7 AS k").groupBy("k").count()
    assert exchanged.rdd.getNumPartitions() == cluster.PARTITIONS * spark.sparkContext.defaultParallelism
