"""When Java's heap is short: of what statements hold, not of what stays when they have ended."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headgate.storage.heap import Heap

PIECE = 16 << 20


def fill(spark: SparkSession, heap: Heap, share: float) -> list[Any]:
    """Arrays that Java keeps until this list goes: a share of the old generation more."""
    gateway: Any = spark.sparkContext._gateway
    assert heap._old is not None
    count = int(share * heap._old.getUsage().getMax() / PIECE)
    held = [gateway.new_array(gateway.jvm.long, PIECE // 8) for _ in range(count)]
    gateway.jvm.System.gc()
    return held


def release(spark: SparkSession, held: list[Any]) -> None:
    gateway: Any = spark.sparkContext._gateway
    while held:
        gateway.detach(held.pop())
    gateway.jvm.System.gc()


def test_what_stays_when_statements_have_ended_made_every_statement_fail(spark: SparkSession) -> None:
    heap = Heap(spark)
    assert not heap.is_short()
    held = fill(spark, heap, 0.55)
    try:
        assert heap.is_short()
        assert heap.is_short(), "short until it is not, without a pause"
        heap.keep()
        assert not heap.is_short()
        held += fill(spark, heap, 0.25)
        assert heap.is_short()
    finally:
        release(spark, held)
    assert not heap.is_short()
    assert heap._kept < 0.3


def test_a_heap_in_use_with_room_was_collected_ten_times_a_second(spark: SparkSession) -> None:
    heap = Heap(spark)
    held = fill(spark, heap, 0.5)
    try:
        heap.keep()
        collections = spark.sparkContext._gateway.jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        before = sum(each.getCollectionCount() for each in collections)
        for _ in range(20):
            assert not heap.is_short()
        assert sum(each.getCollectionCount() for each in collections) - before <= 2
    finally:
        release(spark, held)
