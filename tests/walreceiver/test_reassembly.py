"""Streamed, prepared and foreign transactions are returned whole, at the position where they end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import PostgresError
from headgate.pgoutput import decode
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import write, write_frame
from headgate.walreceiver import reassembly
from headgate.walreceiver.reassembly import Reassembly
from headgate.walreceiver.segment import Segment
from headgate.walreceiver.spool import Spool

WHOLE = 1 << 40
TABLE = m.Relation(7, "public", "t", "d", (m.RelationColumn(True, "a", 23, -1),))
FOREIGN = m.Origin(1, "elsewhere")


def insert(value: int, xid: int | None = None) -> m.Insert:
    return m.Insert(7, (m.TupleValue(m.ValueKind.TEXT, str(value).encode()),), xid)


def transaction(xid: int, lsn: int, *changes: m.Message) -> list[m.Message]:
    return [m.Begin(lsn, 0, xid), *changes, m.Commit(lsn, lsn + 5, 0)]


def chunk(xid: int, *changes: m.Message, first: bool = False) -> list[m.Message]:
    return [m.StreamStart(xid, first), *changes, m.StreamStop()]


@pytest.fixture
def stream(tmp_path: Path) -> Callable[..., tuple[Spool, Reassembly]]:
    def feed(*messages: m.Message, only_local: bool = False) -> tuple[Spool, Reassembly]:
        spool = Spool(tmp_path / "segments")
        whole = Reassembly(spool, only_local=only_local)
        frames = [write_frame(m.XLogData(0, 0, 0, write(message))) for message in messages]
        for frame in frames:
            whole.take([frame])
        return spool, whole

    return feed


def values(segment: Segment) -> list[tuple[int, list[str]]]:
    """Return (xid, values of the inserted rows) of each transaction."""
    decoded = decode.decode(*segment.read(), relations={7: TABLE})
    rows: dict[int, list[tuple[int, str]]] = {int(xid): [] for xid in segment.transactions.xid}
    for changes in decoded.changes:
        for txn, seq, value in zip(changes.txn.tolist(), changes.seq.tolist(), changes.new[0].values.to_pylist(), strict=True):
            rows[int(decoded.transactions.xid[txn])].append((seq, value))
    return [(xid, [value for _, value in sorted(inserted)]) for xid, inserted in rows.items()]


def test_streamed_transaction_is_returned_at_its_commit_without_rolled_back_changes(stream) -> None:
    described = dataclasses.replace(TABLE, xid=9)
    spool, _ = stream(
        *chunk(9, described, insert(1, 9), insert(2, 10), first=True),
        *transaction(11, 100, TABLE, insert(50)),
        *chunk(9, insert(3, 12), insert(4, 9)),
        m.StreamAbort(9, 10),
        m.StreamAbort(9, 12),
        m.StreamCommit(9, 200, 205, 0),
    )
    assert values(spool.take(1, WHOLE)) == [(11, ["50"]), (9, ["1", "4"])]


def test_aborted_streamed_transaction_leaves_nothing(stream) -> None:
    spool, whole = stream(*chunk(9, insert(1, 9), first=True), m.StreamAbort(9, 9), *transaction(11, 100, insert(2)))
    assert values(spool.take(1, WHOLE)) == [(11, ["2"])]
    assert not whole.inside


def test_large_streamed_transaction_is_spilled_to_a_file(stream, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(reassembly, "IN_MEMORY", 100)
    monkeypatch.setattr(reassembly, "PIECE", 200)
    rows = [insert(value, 9 if value % 2 else 10) for value in range(50)]
    _, whole = stream(*chunk(9, *rows, first=True))
    assert [path.name for path in (tmp_path / "segments").iterdir()] == ["9.stream"]
    whole.close()
    spool, _ = stream(*chunk(9, *rows, first=True), m.StreamAbort(9, 10), m.StreamCommit(9, 200, 205, 0))
    assert values(spool.take(1, WHOLE)) == [(9, [str(value) for value in range(50) if value % 2])]
    assert not list((tmp_path / "segments").glob("*.stream"))


def test_many_streamed_transactions_use_limited_memory_and_files(stream, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(reassembly, "ALL_IN_MEMORY", 5000)
    begun = [message for xid in range(1, 400) for message in chunk(xid, insert(xid, xid), first=True)]
    more = [message for xid in range(1, 400) for message in chunk(xid, insert(-xid, xid))]
    spool, whole = stream(*begun, *more, m.StreamCommit(7, 200, 205, 0), m.StreamCommit(399, 210, 215, 0))
    assert sum(stream.size for stream in whole._streams.values()) <= 5000
    assert len(list((tmp_path / "segments").glob("*.stream"))) > 200
    assert values(spool.take(1, WHOLE)) == [(7, ["7", "-7"]), (399, ["399", "-399"])]
    monkeypatch.setattr(reassembly, "MOST_IN_PROGRESS", 397)
    with pytest.raises(PostgresError, match="too many streamed transactions"):
        whole.take([write_frame(m.XLogData(0, 0, 0, write(m.StreamStart(1000, True))))])
    whole.close()
    assert not list((tmp_path / "segments").glob("*.stream"))


def test_prepared_transaction_and_its_end_are_returned_separately_at_their_positions(stream) -> None:
    spool, _ = stream(
        *transaction(8, 50, TABLE, insert(0)),
        m.BeginPrepare(100, 105, 0, 9, "gid"),
        insert(1),
        m.Prepare(100, 105, 0, 9, "gid"),
        *transaction(10, 150, insert(2)),
        m.CommitPrepared(200, 205, 0, 9, "gid"),
        *chunk(11, insert(3, 11), first=True),
        m.StreamPrepare(300, 305, 0, 11, "other"),
        m.RollbackPrepared(305, 400, 0, 0, 11, "other"),
    )
    segments = []
    for _ in range(6):
        segment = spool.take(1, WHOLE)
        segments.append((type(segment.mark).__name__, values(segment), int(segment.end)))
        spool.release_oldest()
    assert segments == [
        ("NoneType", [(8, ["0"])], 55),
        ("Prepare", [(9, ["1"])], 105),
        ("NoneType", [(10, ["2"])], 155),
        ("CommitPrepared", [], 205),
        ("Prepare", [(11, ["3"])], 305),
        ("RollbackPrepared", [], 400),
    ]
    assert spool.take(0, WHOLE) is None
    assert spool.outstanding == 0


def test_origin_none_skips_foreign_transactions_and_advances_past_them(stream) -> None:
    spool, whole = stream(
        *transaction(8, 50, FOREIGN, TABLE, insert(0)),
        *chunk(9, FOREIGN, insert(1, 9), first=True),
        m.StreamCommit(9, 100, 105, 0),
        *transaction(10, 150, insert(2)),
        *transaction(11, 200, FOREIGN, insert(3)),
        only_local=True,
    )
    segment = spool.take(1, WHOLE)
    assert values(segment) == [(10, ["2"])]
    assert [type(message) for _, _, message in segment.others] == [m.Relation], (
        "relations that a skipped transaction described are still known"
    )
    assert (whole.passed, whole.inside) == (205, False)


@pytest.mark.parametrize("only_local", [False, True])
def test_abort_of_a_transaction_that_was_never_streamed_is_ignored_anywhere(stream, only_local: bool) -> None:
    abort = m.StreamAbort(9, 8)
    begin, row, commit = transaction(5, 100, insert(1))
    spool, whole = stream(abort, begin, abort, row, abort, commit, abort, begin, abort, FOREIGN, row, commit, only_local=only_local)
    segment = spool.take(0, WHOLE)
    assert segment is not None
    assert values(segment) == ([(5, ["1"])] if only_local else [(5, ["1", "1"])])
    assert not whole.inside
