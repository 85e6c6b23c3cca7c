"""Measure `pyspark_headgate` in a Spark session of its own: how many changes a query reads in a second, and how long a restart takes.

Called by `source`, with the log of `gate.log`. The queries write to Spark's format "noop", so that only the source is measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from bench.replication import Side

TASKS = (1, 2, 4)
SLOT = "bench_spark_source"


@contextmanager
def session() -> Iterator[SparkSession]:
    """Start the Spark session of a user, with two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).config("spark.log.level", "ERROR").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def read_seconds(spark: SparkSession, side: Side, publication: str, bounds: tuple[str, str], tasks: int) -> float:
    """Return the seconds of a query that reads the changes between two LSNs in this number of tasks."""
    began = time.perf_counter()
    options = _options(side, publication) | {"from": bounds[0], "to": bounds[1], "tasks": str(tasks)}
    spark.read.format("headgate").options(**options).load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def restart_seconds(spark: SparkSession, side: Side, publication: str, restarts: int) -> list[float]:
    """Return the seconds of each restart of a streaming query: from its start until it has written ten new changes and ended."""
    seconds = []
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as checkpoint:
        for number in range(restarts + 1):
            began = time.perf_counter()
            stream = spark.readStream.format("headgate").options(**_options(side, publication), slot=SLOT, start="now").load()
            writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
            writer.start().awaitTermination()
            seconds.append(time.perf_counter() - began)
            side.execute(f"INSERT INTO changes (id) SELECT -g FROM generate_series({10 * number + 1}::bigint, {10 * number + 10}) g")
    return seconds[1:]


def _options(side: Side, publication: str) -> dict[str, str]:
    return {"url": side.conninfo, "publication": publication, "table": "public.changes"}
