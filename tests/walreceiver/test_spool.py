"""The spool reports a full disk and returns a backlog in segments of limited size."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import pytest

from headgate.errors import PostgresError
from headgate.walreceiver.spool import GATHER_SECONDS, Spool

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


def test_backlog_is_returned_in_one_segment_of_enough_changes(tmp_path: Path) -> None:
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


def test_segment_is_returned_if_the_stream_brings_no_more_changes(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "segments")
    spool.add(CHANGED)
    began = time.monotonic()
    segment = spool.take(10, 1 << 30, enough=4)
    assert segment is not None
    assert segment.changes == 1
    assert time.monotonic() - began < GATHER_SECONDS
    spool.close()
