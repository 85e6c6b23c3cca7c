"""Only the latest complete copies of the catalog are kept next to the tables."""

from __future__ import annotations

from pathlib import Path

from headgate.backup import beside
from headgate.lsn import Lsn


def test_unfinished_copy_does_not_replace_a_complete_one(tmp_path: Path) -> None:
    folder, base = tmp_path / "folder", tmp_path / "base"
    folder.mkdir()
    (folder / "catalog.duckdb").write_text("x")
    places = [beside.put(base, folder, Lsn(1))]
    for end in (2, 4):
        unfinished = beside.put(base, folder, Lsn(end))
        (unfinished / beside.COMPLETE).unlink()
        places += [unfinished, beside.put(base, folder, Lsn(end + 1))]
    assert [path.exists() for path in places] == [False, False, True, True, True]
    beside.put(base, folder, Lsn(6))
    assert [path.exists() for path in places] == [False, False, False, False, True]
