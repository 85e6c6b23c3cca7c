"""Streams of one database read the same changes once. The first stream reads and the others wait. An error is raised only in the reading stream."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.storage.tables import DATABASE, INT4, made, relation

from headgate.errors import PostgresError
from headgate.publisher.decoded import ChangeCache, DecodedChanges
from headgate.publisher.stream import Stream, StreamRequest
from headgate.storage.engine import Engine
from headgate.storage.spark import job_group
from headgate.storage.transaction.log import FIRST_LSN
from headgate.types import buffers


def changes(rows: int) -> DecodedChanges:
    """Return some changes. Their contents do not matter."""
    return DecodedChanges(pa.table({"op": ["I"] * rows}), np.arange(rows, dtype=np.int64))


def test_streams_that_request_the_same_changes_read_them_once() -> None:
    shared, begun, go = ChangeCache(), threading.Barrier(8), threading.Event()
    for _ in range(8):
        shared.enter(DATABASE)

    def read() -> DecodedChanges:
        go.wait()
        return changes(3)

    def stream() -> DecodedChanges | None:
        begun.wait()
        return shared.get(DATABASE, "a write", read)

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(stream) for _ in range(8)]
        go.set()
        assert len({id(answer.result()) for answer in answers}) == 1
    assert shared.read == 1


def test_terminated_stream_does_not_wait_for_the_read_of_another(spark: SparkSession) -> None:
    shared, reading, go = ChangeCache(), threading.Event(), threading.Event()
    for _ in range(2):
        shared.enter(DATABASE)

    def read() -> DecodedChanges:
        reading.set()
        go.wait()
        return changes(3)

    def terminated() -> None:
        raise PostgresError("57P01", "terminating connection due to administrator command")

    def stream() -> DecodedChanges | None:
        job_group.enter(spark.sparkContext, "a walsender", "", terminated)
        return shared.get(DATABASE, "a write", read)

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(shared.get, DATABASE, "a write", read)
        reading.wait()
        with pytest.raises(PostgresError, match="terminating"):
            pool.submit(stream).result()
        assert not reader.done()
        go.set()
        assert reader.result() is not None


def test_single_stream_caches_nothing() -> None:
    shared = ChangeCache()
    shared.enter(DATABASE)
    assert shared.get(DATABASE, "a write", lambda: changes(3)) is not shared.get(DATABASE, "a write", lambda: changes(3))


def test_least_recently_requested_changes_are_evicted() -> None:
    shared = ChangeCache(kept_bytes=3 * buffers.memory(changes(100).table) - 1)
    shared.enter(DATABASE)
    shared.enter(DATABASE)
    for key in (1, 2, 1, 3, 1, 2):
        shared.get(DATABASE, key, lambda: changes(100))
    assert shared.read == 4  # 1, 2, 3, and 2 again


def test_many_small_transactions_take_little_memory() -> None:
    shared = ChangeCache(kept_bytes=1_000_000)
    shared.enter(DATABASE)
    shared.enter(DATABASE)
    for key in range(1_000):
        shared.get(DATABASE, key, (lambda: changes(1)) if key % 2 else lambda: None)
    kept = [entry.value.table for entry in shared._entries.values() if entry.value is not None]
    assert 10 < len(kept) < 200
    assert sum(map(buffers.memory, kept)) < 1_000_000


def test_failing_reader_raises_and_the_next_stream_reads() -> None:
    shared = ChangeCache()
    shared.enter(DATABASE)
    shared.enter(DATABASE)

    def fail() -> DecodedChanges:
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        shared.get(DATABASE, "a write", fail)
    assert shared.get(DATABASE, "a write", lambda: changes(1)) is not None


def test_stream_from_a_position_before_the_kept_log_is_an_error(engine: Engine) -> None:
    made(engine, relation(21000, "t", id=INT4), (1,))
    made(engine, relation(21001, "u", id=INT4), (2,))
    request = StreamRequest(("p",))
    Stream(engine, DATABASE, "s", FIRST_LSN, request, ChangeCache()).close()
    end = engine.log.end
    assert engine.log.trim(end)
    with pytest.raises(PostgresError, match='cannot read from logical replication slot "s"'):
        Stream(engine, DATABASE, "s", FIRST_LSN, request, ChangeCache())
    Stream(engine, DATABASE, "s", end, request, ChangeCache()).close()
