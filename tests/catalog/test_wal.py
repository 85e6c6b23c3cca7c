"""A catalog whose log was torn by a power failure opens with all acknowledged commits. A damaged one is rejected."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.catalog.catalog import Catalog
from headgate.errors import PostgresError

COMMITS = 30
WRITER = f"""
import os, sys
from headgate.catalog.catalog import Catalog
catalog = Catalog.open(sys.argv[1])
for number in range({COMMITS}):
    catalog.change(lambda cursor: cursor.execute("INSERT INTO hg.counter VALUES (?, ?)", [f"commit {{number}}", number]))
os._exit(1)
"""


@pytest.fixture
def killed(catalog_file: Path, tmp_path: Path) -> Path:
    """The catalog of a killed process, with its write-ahead log."""
    path = tmp_path / "catalog.duckdb"
    shutil.copy(catalog_file, path)
    subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False)
    return path


def commits(path: Path) -> int:
    catalog = Catalog.open(path)
    count_row = catalog.cursor().execute("SELECT count(*) FROM hg.counter WHERE name LIKE 'commit %'").fetchone()
    catalog.close()
    assert count_row is not None
    return int(count_row[0])


@pytest.mark.parametrize("zeros", [40, 400, 900])
def test_log_that_ends_in_zeros_is_read_up_to_them(killed: Path, zeros: int) -> None:
    log = killed.with_name(killed.name + ".wal")
    content = log.read_bytes()
    log.write_bytes(content[:-zeros] + bytes(zeros))
    assert COMMITS - 1 - zeros // 50 <= commits(killed) < COMMITS
    assert log.with_name(log.name + ".damaged").exists()


def test_log_that_is_damaged_in_the_middle_is_rejected(killed: Path) -> None:
    log = killed.with_name(killed.name + ".wal")
    content = bytearray(log.read_bytes())
    content[content.index(b"commit 15")] ^= 1
    log.write_bytes(content)
    with pytest.raises(PostgresError, match="could not read catalog") as refused:
        Catalog.open(killed)
    assert (refused.value.sqlstate, refused.value.hint) == ("XX001", "Restore the data directory from a backup.")
    assert log.read_bytes() == bytes(content)


def test_commit_is_no_error_if_the_name_of_its_log_cannot_be_synced(catalog_file: Path, tmp_path: Path) -> None:
    shutil.copy(catalog_file, path := tmp_path / "catalog.duckdb")
    catalog = Catalog.open(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", lambda *_: os.close(-1))
        catalog.change(lambda cursor: cursor.execute("INSERT INTO hg.counter VALUES ('commit 0', 0)"))
    catalog.close()
    assert commits(path) == 1
