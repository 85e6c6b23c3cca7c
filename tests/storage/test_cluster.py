"""A node configures Spark by the number of its executors."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headgate.storage.spark.application import cluster


def test_shuffle_has_as_many_partitions_as_the_executors_can_use(spark: SparkSession) -> None:
    session = spark.newSession()
    cluster.spread(session)
    exchanged = session.range(100).selectExpr("id % 7 AS k").groupBy("k").count()
    assert exchanged.rdd.getNumPartitions() == cluster.PARTITIONS * spark.sparkContext.defaultParallelism
