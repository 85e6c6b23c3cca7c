"""The heap is short if running statements hold it, and not because of memory that stays in use after they have ended."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.finalizer import ThreadSafeFinalizer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.conftest import until

from headgate.storage.spark.application.heap import NAMED, OWN, PAUSE, Heap

PIECE = 16 << 20


def fill(spark: SparkSession, share: float) -> list[Any]:
    """Return empty lists whose capacity Java keeps, so that a share of the old generation is alive that Spark does not account for.

    The share is filled up to, not added, because other live memory changes while a suite runs (Delta releases tables).
    """
    heap = Heap(spark)
    assert heap._old is not None
    lists: list[Any] = []
    while (missing := share - heap._unmanaged()) > 0:
        pieces = int(missing * heap._old.usage().most / PIECE) + 1
        lists += [spark.sparkContext._gateway.jvm.java.util.ArrayList(PIECE // 4) for _ in range(pieces)]
    return lists


def release(spark: SparkSession, lists: list[Any]) -> None:
    """Release the memory of the lists in Java, and collect.

    Java gets to know of a reference that Python drops only up to a second later.
    """
    for array_list in lists:
        array_list.trimToSize()
    spark.sparkContext._gateway.jvm.System.gc()


@pytest.mark.slow
def test_memory_that_stays_after_statements_end_does_not_make_the_heap_short(spark: SparkSession) -> None:
    heap = Heap(spark)
    assert not heap.is_short()
    lists = fill(spark, 0.52)
    try:
        until(heap.is_short, "the heap is not short after the next collection, which may be delayed by an earlier one")
        assert heap.is_short(), "the heap stays short without a pause"
        heap.keep()
        assert not heap.is_short()
        lists += fill(spark, heap._least_unmanaged + OWN + 0.05)
        until(heap.is_short, "the heap is not short after more lists")
    finally:
        release(spark, lists)
    until(lambda: not heap.is_short(), "the heap stays short")
    assert heap._least_unmanaged < 0.3


@pytest.mark.slow
def test_heap_with_room_is_not_collected_repeatedly(spark: SparkSession) -> None:
    heap = Heap(spark)
    lists = fill(spark, 0.5)
    try:
        heap.keep()
        collections = spark.sparkContext._gateway.jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        collections_before = sum(collection.getCollectionCount() for collection in collections)
        for _ in range(20):
            assert not heap.is_short()
        assert sum(collection.getCollectionCount() for collection in collections) - collections_before <= 2
    finally:
        release(spark, lists)


@pytest.mark.slow
def test_memory_that_spark_has_released_since_a_collection_is_not_counted_as_foreign(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._gateway.jvm
    manager, heap = jvm.org.apache.spark.SparkEnv.get().memoryManager(), Heap(spark)
    lists = fill(spark, 0.52)
    accounted = int(0.3 * heap._old.usage().most)  # as if that were pages of a sort
    mode = jvm.org.apache.spark.memory.MemoryMode.ON_HEAP
    assert manager.acquireStorageMemory(jvm.org.apache.spark.storage.TestBlockId("pages"), accounted, mode)
    try:
        jvm.System.gc()
        assert not heap.is_short(), "the remaining bytes are not more than may be alive"
        jvm.System.gc()
    finally:
        for array_list in lists:
            array_list.trimToSize()
        manager.releaseStorageMemory(accounted, mode)
    assert not heap.is_short()


@pytest.mark.slow
def test_java_references_of_batches_are_released_while_python_collects_nothing(spark: SparkSession) -> None:
    heap, named = Heap(spark), ThreadSafeFinalizer.finalizers
    heap.free_unused()
    in_use = len(named)
    gc.disable()
    try:
        for _ in range(NAMED):
            assert spark.range(1).where("id > 0").columns == ["id"]
        count_before = len(named)
        assert count_before > in_use + NAMED, "the objects are in cycles, so only the collector frees them"
        # the first check may have taken long, and the second one waits ten times as long
        until(lambda: heap.free_unused() or len(named) < count_before - NAMED // 2)
    finally:
        gc.enable()


def test_python_collects_for_a_limited_share_of_the_time(spark: SparkSession) -> None:
    heap, ended = Heap(spark), list[float]()
    frames = [spark.range(1) for _ in range(NAMED + 1)]
    gc.callbacks.append(lambda phase, info: ended.append(time.monotonic()) if phase == "stop" and info["generation"] == 2 else None)
    gc.disable()
    try:
        began = time.monotonic()
        heap.free_unused()
        took = ended[0] - began
        frames += [spark.range(1) for _ in range(NAMED + 1)]
        until(lambda: heap.free_unused() or len(ended) == 2)
        assert ended[1] - ended[0] > (PAUSE - 1) * took
    finally:
        gc.callbacks.pop()
        gc.enable()


@pytest.mark.slow
def test_leftover_tasks_of_a_cancelled_statement_are_not_attributed_to_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    """A task ends with its worker, which can be after the statement."""
    gate, gate_path = tmp_path / "gate", str(tmp_path / "gate")
    os.mkfifo(gate)

    def waits(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            with open(gate_path) as opened:  # noqa: PTH123 - runs in a worker, until the test opens the other end
                opened.read()
            yield batch

    def compute() -> None:
        spark.sparkContext.setJobGroup("endless", "endless", interruptOnCancel=False)
        try:
            spark.range(0, 1, 1, 1).mapInArrow(waits, "id bigint").toArrow()
        except (PySparkException, Py4JError):
            ended.set()

    heap, ended = Heap(spark), threading.Event()
    until(lambda: not heap.has_leftovers(), "a task of another test has not ended")
    statement = threading.Thread(target=compute)
    statement.start()
    running = lambda: spark.sparkContext.statusTracker().getJobIdsForGroup("endless")  # noqa: E731
    until(lambda: bool(running()), "the job does not start")
    with gate.open("w"):  # the task waits
        until(lambda: not heap.has_leftovers(), "a task of a running statement counts as a leftover")
        spark.sparkContext.cancelJobGroup("endless")
        assert ended.wait(20)
        until(heap.has_leftovers, "the task of the cancelled statement is not a leftover")
    statement.join()
    until(lambda: not heap.has_leftovers(), "the task of the cancelled statement does not end")
