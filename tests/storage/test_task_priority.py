"""Spark's tasks have a lower priority than the threads and processes that a client waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headgate.storage.spark.application.task_priority import TaskPriority
from headgate.storage.spark.application.worker_daemon import NICE
from headgate.storage.spark.internals import gateway

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")


def _threads(spark: SparkSession, begin: str) -> list[int]:
    """Return the priorities of the threads of the JVM whose names begin so."""
    java = gateway.process(spark.sparkContext)
    assert java is not None
    tasks = [task for task in Path(f"/proc/{java.pid}/task").iterdir() if (task / "comm").read_text().startswith(begin)]
    return [os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks]


def test_task_threads_are_lowered_and_schedulers_are_not(spark: SparkSession) -> None:
    watch, own = TaskPriority(spark), os.getpriority(os.PRIO_PROCESS, 0)
    assert spark.range(1000, numPartitions=4).selectExpr("max(id)").collect() == [(999,)]

    watch.look()

    tasks, schedulers = _threads(spark, "Executor task l"), _threads(spark, "dispatcher-even")
    assert set(tasks) == {own + NICE}
    assert set(schedulers) == {own}


def test_python_workers_of_tasks_are_lowered(spark: SparkSession) -> None:
    def priority(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"nice": [os.getpriority(os.PRIO_PROCESS, 0)]})

    task_rows = spark.range(1, numPartitions=1).mapInArrow(priority, "nice bigint").collect()

    assert task_rows[0].nice >= os.getpriority(os.PRIO_PROCESS, 0) + NICE
