"""The change rows of a transaction's small writes are kept in bounded memory, and each write has its own rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.storage.delta import kept_files, parquet
from headgate.storage.transaction import staging
from headgate.storage.transaction.staging import HeldChanges
from headgate.types import buffers


def row(number: int, *, columns: int = 2) -> pa.Table:
    return pa.table({f"c{place}": [number] for place in range(columns)})


def test_rows_of_many_writes_are_kept_in_little_memory() -> None:
    changes = HeldChanges()
    for seq in range(2_000):
        assert changes.room > 0
        changes.add(seq, row(seq, columns=30), None)
    assert [changes.rows(seq) for seq in (0, 77, 1_999)] == [row(seq, columns=30) for seq in (0, 77, 1_999)]
    piles = {id(held.piece.pile): held.piece.pile for held in changes._held.values()}
    assert sum(map(buffers.memory, piles.values())) < staging.ALL_BYTES, "as tables of one row they take 90 MB"


@pytest.mark.parametrize("single_bytes", [0, 20_000, staging.SINGLE_BYTES])
def test_each_write_keeps_its_rows_when_later_writes_are_rolled_back(monkeypatch: pytest.MonkeyPatch, single_bytes: int) -> None:
    monkeypatch.setattr(staging, "SINGLE_BYTES", single_bytes)
    changes = HeldChanges()
    room = changes.room
    for seq in range(40):
        changes.add(seq, row(seq, columns=1 + seq // 15), None)
    changes.forget_from(25)
    for seq in range(25, 35):
        changes.add(seq, row(-seq), None)
    expected = [row(seq, columns=1 + seq // 15) for seq in range(25)] + [row(-seq) for seq in range(25, 35)]
    assert [changes.rows(seq) for seq in range(35)] == expected
    assert changes.rows(35) is None
    changes.forget_from(0)
    assert changes.room == room


def test_kept_files_are_few_however_short_they_are(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "LIMIT", 100_000)
    kept = kept_files.KeptFiles()
    for number in range(100):
        kept.rows(tmp_path / parquet.write(tmp_path, row(number, columns=3), {})["add"]["path"])
    assert 5 < len(kept._files) < 20, "each takes about five kilobytes of memory"
