"""The spool on a disk without room."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from headgate.errors import PostgresError
from headgate.walreceiver.spool import Spool

BEGIN = b"B" + struct.pack("!qqi", 100, 0, 1)
COMMIT = b"C" + struct.pack("!bqqq", 0, 100, 110, 0)
FRAMES = [b"w" + struct.pack("!qqq", 100, 100, 0) + message for message in (BEGIN, COMMIT)]


def test_a_spool_whose_disk_is_full_was_not_closed_and_could_write_behind_what_was_torn(tmp_path: Path) -> None:
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
