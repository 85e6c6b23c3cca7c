"""The spool reports a full disk and returns a backlog in segments of limited size."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import pytest

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.walreceiver import spool as spools
from headgate.walreceiver.spool import Spool

BEGIN = b"B" + struct.pack("!qqi", 100, 0, 1)
COMMIT = b"C" + struct.pack("!bqqq", 0, 100, 110, 0)
INSERT = b"I" + struct.pack("!iBh", 17, ord("N"), 0)
FRAMES = [b"w" + struct.pack("!qqq", 100, 100, 0) + message for message in (BEGIN, COMMIT)]
CHANGED = [FRAMES[0], FRAMES[0][:25] + INSERT, FRAMES[1]]


def test_spool_is_closed_and_removed_after_its_disk_is_full(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "segments", in_memory=0)
    spool.directory.mkdir()
    (spool.directory / "0.segment").symlink_to("/dev/full")
    for _ in range(2):
        with pytest.raises(PostgresError, match=r'could not write to file ".*0\.segment": No space left on device') as refused:
            spool.add(FRAMES)
        assert refused.value.sqlstate == "53100"
        (spool.directory / "0.segment").unlink(missing_ok=True)
    spool.close()
    assert not spool.directory.exists()


def test_segment_in_files_holds_nothing_for_each_frame(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "segments", in_memory=1000, file_size=5000)
    begin, insert, commit = CHANGED
    for frames in ([begin], *[[insert] * 50] * 9, [commit]):
        spool.add(frames)
    segment = spool.take(10, 1 << 30)
    assert segment is not None
    assert [(piece.frames, piece.data, piece.held_lengths) for piece in segment.pieces] == [(count, None, None) for count in (201, 200, 51)]
    data, _, lengths = segment.read()
    assert data.tobytes() == begin + insert * 450 + commit
    assert lengths.tolist() == [len(begin), *[len(insert)] * 450, len(commit)]
    head, tail = segment.pieces[0].cut(100)
    assert (head.read().tobytes(), tail.read().tobytes()) == (begin + insert * 99, insert * 101)
    assert (head.lengths.tolist(), tail.lengths.tolist()) == ([len(begin), *[len(insert)] * 99], [len(insert)] * 101)
    spool.close()


def test_backlog_is_returned_in_one_segment_of_enough_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSE_SECONDS", "GATHER_SECONDS"):
        monkeypatch.setattr(spools, name, 60)
    spool = Spool(tmp_path / "segments")
    for _ in range(3):
        spool.add(CHANGED)

    def bring() -> None:
        for _ in range(7):
            spool.add(CHANGED)

    bringing = threading.Thread(target=bring)
    bringing.start()
    segment = spool.take(10, 1 << 30, enough=10)
    bringing.join()
    assert segment is not None
    assert segment.changes == 10
    spool.close()


def transaction(number: int) -> list[bytes]:
    """Return the frames of a transaction of one change. It takes 100 bytes of the publisher's log and ends at 100 * `number`."""
    end = 100 * number
    begin, commit = b"B" + struct.pack("!qqi", end - 10, 0, 1), b"C" + struct.pack("!bqqq", 0, end - 10, end, 0)
    return [b"w" + struct.pack("!qqq", end - 100, end - 100, 0) + message for message in (begin, INSERT, commit)]


@pytest.mark.parametrize(
    ("arrived", "backlog"), [pytest.param(1, 30, id="its begin has arrived"), pytest.param(25, 30, id="the rest would be a small segment")]
)
def test_backlog_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrived: int, backlog: int) -> None:
    for name in ("BACKLOG_PAUSE_SECONDS", "GATHER_SECONDS"):
        monkeypatch.setattr(spools, name, 60)
    spool = Spool(tmp_path / "segments")
    spool.backlog_end = Lsn(100 * backlog)
    for number in range(1, arrived + 1):
        spool.add(transaction(number))

    def bring() -> None:
        for number in range(arrived + 1, backlog + 1):
            spool.add(transaction(number))

    bringing = threading.Thread(target=bring)
    bringing.start()
    segment = spool.take(10, 1 << 30, enough=20)
    bringing.join()

    assert segment is not None
    assert segment.changes >= 20
    assert backlog - segment.changes in (0, *range(20, backlog))
    spool.close()


def test_backlog_ends_with_a_keepalive_at_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "BACKLOG_PAUSE_SECONDS", 60)
    monkeypatch.setattr(spools, "GATHER_SECONDS", 60)
    spool = Spool(tmp_path / "segments")
    spool.backlog_end = Lsn(3000)
    for number in range(1, 26):
        spool.add(transaction(number))
    began = time.monotonic()
    reaching = threading.Thread(target=spool.reach, args=(spool.backlog_end,))
    reaching.start()

    segment = spool.take(10, 1 << 30, enough=20)

    reaching.join()
    assert time.monotonic() - began < 30
    assert segment is not None
    assert segment.changes == 25
    spool.close()


@pytest.mark.parametrize(
    ("arrived", "backlog"), [pytest.param(1, 5, id="it is small"), pytest.param(25, 100, id="the rest is enough for another segment")]
)
def test_backlog_is_not_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrived: int, backlog: int) -> None:
    for name in ("PAUSE_SECONDS", "BACKLOG_PAUSE_SECONDS", "GATHER_SECONDS"):
        monkeypatch.setattr(spools, name, 60)
    spool = Spool(tmp_path / "segments")
    spool.backlog_end = Lsn(100 * backlog)
    for number in range(1, arrived + 1):
        spool.add(transaction(number))
    began = time.monotonic()

    segment = spool.take(10, 1 << 30, enough=20)

    assert time.monotonic() - began < 30
    assert segment is not None
    assert segment.changes == arrived
    spool.close()


def test_segment_is_returned_if_the_stream_brings_no_more_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "GATHER_SECONDS", 60)
    spool = Spool(tmp_path / "segments")
    spool.add(CHANGED)
    began = time.monotonic()
    segment = spool.take(10, 1 << 30, enough=4)
    assert segment is not None
    assert segment.changes == 1
    assert time.monotonic() - began < 30
    spool.close()
