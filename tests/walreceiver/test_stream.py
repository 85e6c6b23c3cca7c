"""The receiver and the spool return whole transactions of a real publisher, spill large ones, and confirm only what is applied."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import conftest

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.walreceiver.connection import PublisherConnection
from headgate.walreceiver.progress import StreamProgress
from headgate.walreceiver.receiver import Limits, Receiver, StreamEndError
from headgate.walreceiver.segment import Segment
from headgate.walreceiver.spool import Spool
from headgate.walreceiver.waker import Waker

until = functools.partial(conftest.until, seconds=20)

WHOLE = 1 << 40
KNOWN: dict[int, m.Relation] = {}


class Stream:
    """A receiver on its own slot."""

    def __init__(self, conninfo: str, slot: str, directory: Path, limits: Limits, **spool: int) -> None:
        self.waker = Waker()
        self.connection = PublisherConnection.open(conninfo, "sub", waker=self.waker)
        self.progress = StreamProgress()
        self.spool = Spool(directory, **spool)
        self.connection.start_streaming(slot, Lsn(0), ["p"])
        KNOWN.clear()
        self.limits = limits
        self.receiver = Receiver(self.connection, self.spool, self.progress, self.waker, lambda: self.limits)
        self.receiver.start("walreceiver")

    def take(self, limit: int = WHOLE) -> Segment:
        segment = self.spool.take(20, limit)
        assert segment is not None
        KNOWN.update({message.relation: message for _, _, message in segment.others if isinstance(message, m.Relation)})
        return segment

    def apply(self, segment: Segment) -> None:
        self.progress.record_applied(Lsn(segment.transactions.end_lsn[-1]))
        self.spool.release_oldest()
        self.waker.wake()

    def close(self) -> None:
        self.receiver.stop()
        self.connection.close()
        self.spool.close()


Open = Callable[..., Stream]


@pytest.fixture
def database(postgres) -> str:
    name = postgres.new_database()
    postgres.psql(name, "CREATE TABLE t(a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t; CREATE TABLE other(a int)")
    return name


@pytest.fixture
def stream(postgres, database, tmp_path) -> Iterator[Open]:
    opened: list[Stream] = []
    slot = f"stream_{database}"
    postgres.psql(database, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")

    def start(limits: Limits | None = None, **spool: int) -> Stream:
        opened.append(Stream(postgres.conninfo(database), slot, tmp_path / "segments", limits or Limits(), **spool))
        return opened[-1]

    yield start
    for open_stream in opened:
        open_stream.close()
    postgres.drop_slot(database, slot)


def rows(segment: Segment, relations: dict[int, m.Relation] | None = None) -> int:
    return sum(len(changes) for changes in decode.decode(*segment.read(), relations=relations or KNOWN).changes)


def confirmed(postgres, database: str) -> Lsn:
    return Lsn.parse(postgres.psql(database, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"))


def test_changes_that_arrive_while_the_applier_is_busy_are_one_segment(stream, postgres, database) -> None:
    opened = stream()
    postgres.psql(database, "INSERT INTO t VALUES (1, 'one')")
    first = opened.take()
    assert (len(first.transactions), rows(first)) == (1, 1)
    for number in range(2, 7):
        postgres.psql(database, f"INSERT INTO t VALUES ({number}, 'x'), ({number * 10}, 'y')")
    until(
        lambda: (
            opened.progress.written >= Lsn.parse(postgres.psql(database, "SELECT pg_current_wal_lsn()")) - 100_000
            and opened.spool.outstanding > 800
        )
    )
    opened.apply(first)
    second = opened.take()
    assert rows(second) == 2 * len(second.transactions)


def test_nothing_is_confirmed_before_it_is_applied(stream, postgres, database) -> None:
    opened = stream(Limits(status_interval=1))
    lsn_before = confirmed(postgres, database)
    postgres.psql(database, "INSERT INTO t VALUES (1, 'one')")
    segment = opened.take()
    end = Lsn(segment.transactions.end_lsn[0])
    postgres.psql(database, "INSERT INTO other VALUES (1)")
    until(lambda: opened.progress.written >= end)
    assert lsn_before <= confirmed(postgres, database) < end
    opened.apply(segment)
    until(lambda: confirmed(postgres, database) >= end)


def test_idle_stream_advances_the_slot(stream, postgres, database) -> None:
    opened = stream()
    postgres.psql(database, "INSERT INTO other SELECT generate_series(1, 1000)")
    end = Lsn.parse(postgres.psql(database, "SELECT pg_current_wal_lsn()"))
    until(lambda: confirmed(postgres, database) >= end)
    assert not opened.progress.outstanding


def test_transaction_larger_than_memory_is_kept_in_files_that_are_removed(stream, postgres, database, tmp_path) -> None:
    opened = stream(in_memory=1 << 16, file_size=1 << 18)
    postgres.psql(database, "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i")
    postgres.psql(database, "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(20001, 30000) i; INSERT INTO t VALUES (0, '')")
    counts = []
    while sum(counts) < 30001:
        segment = opened.take(1 << 20)
        if segment.size > 1 << 17:
            relations = dict(KNOWN)
            counted = 0
            for part in segment.parts(1 << 17):
                assert sum(piece.size for piece in part.pieces) <= 1 << 17
                decoded = decode.decode(*part.read(), relations=relations, first_seq=part.first_seq)
                counted += sum(len(changes) for changes in decoded.changes)
                relations = decoded.relations
            assert counted == rows(segment)
        counts.append(rows(segment))
        opened.apply(segment)
    assert sum(counts) == 30001
    assert len(list((tmp_path / "segments").glob("*"))) <= 2


def test_segment_is_divided_between_transactions(stream, postgres, database) -> None:
    opened = stream()
    postgres.psql(database, "".join(f"INSERT INTO t VALUES ({number}, 'x');" for number in range(10)))
    until(lambda: opened.progress.outstanding)
    segments = []
    while sum(len(segment.transactions) for segment in segments) < 10:
        segments.append(opened.take(1))
        opened.apply(segments[-1])
    assert [len(segment.transactions) for segment in segments] == [1] * 10


def test_segment_can_be_split(stream, postgres, database) -> None:
    opened = stream()
    statements = "".join(f"INSERT INTO t VALUES ({number}, 'x');" for number in range(10))
    postgres.psql(database, f"BEGIN;{statements}COMMIT;" + statements.replace("(", "(10 + "))
    until(lambda: opened.spool.outstanding > 1500)
    whole = opened.take()
    first, second = whole.split(1)
    relations = decode.decode(*first.read()).relations
    assert rows(first) == 10
    assert (len(second.transactions), rows(second, relations)) == (len(whole.transactions) - 1, rows(whole) - 10)


def test_back_pressure_stops_reading_until_segments_are_released(stream, postgres, database) -> None:
    opened = stream(Limits(disk_limit=1 << 20))
    postgres.psql(database, "INSERT INTO t SELECT i, '' FROM generate_series(1, 10) i")
    first = opened.take()
    for part in range(20):
        postgres.psql(
            database, f"INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series({part * 2000 + 100}, {part * 2000 + 2099}) i"
        )
    until(lambda: opened.spool.outstanding > 1 << 20)
    assert opened.spool.outstanding < 12 << 20
    opened.apply(first)
    count = 0
    while count < 40000:
        segment = opened.take(1 << 20)
        count += rows(segment)
        opened.apply(segment)
    assert count == 40000


def test_interrupted_stream_returns_complete_transactions_and_then_the_error(stream, postgres, database) -> None:
    opened = stream()
    postgres.psql(database, "INSERT INTO t VALUES (1, 'one')")
    until(lambda: opened.progress.outstanding)
    postgres.psql(
        database, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = current_database()"
    )
    opened.apply(opened.take())
    with pytest.raises(PostgresError) as caught:
        opened.take()
    assert "terminating connection due to administrator command" in caught.value.message or isinstance(caught.value, StreamEndError)


def test_silent_publisher_is_a_timeout(stream, postgres, database) -> None:
    opened = stream()
    pid = int(postgres.psql(database, "SELECT active_pid FROM pg_replication_slots WHERE database = current_database()"))
    os.kill(pid, signal.SIGSTOP)
    opened.limits = Limits(status_interval=1, timeout=0.6)
    opened.waker.wake()
    try:
        with pytest.raises(PostgresError, match="terminating logical replication worker due to timeout"):
            opened.spool.take(20, WHOLE)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_receiver_can_be_stopped_while_the_publisher_sends(stream, postgres, database) -> None:
    row_count = 300_000
    postgres.psql(database, f"INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, {row_count}) i")
    opened = stream()
    until(lambda: opened.spool.outstanding > 0)
    opened.receiver.stop()
    assert opened.spool.outstanding < row_count * 100
