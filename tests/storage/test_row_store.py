"""The rows of cursors can be read again in any part, forward and backward, from memory and from the file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import PostgresError
from headgate.storage import row_store
from headgate.storage.row_store import RowStore


def batch(first: int, rows: int) -> pa.RecordBatch:
    """Return rows that contain their numbers."""
    numbers = [str(number) for number in range(first, first + rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array([None if int(number) % 3 else number for number in numbers])], names=["0", "1"]
    )


def read(store: RowStore, first: int, count: int, *, backward: bool = False) -> list[int]:
    """Return the numbers of the rows of a part."""
    rows = [value for part in store.part(first, count, backward=backward) for value in part.to_pylist()]
    assert all(row["1"] == (None if int(row["0"]) % 3 else row["0"]) for row in rows)
    return [int(row["0"]) for row in rows]


@pytest.mark.parametrize("memory", [0, 300, 1 << 30])
def test_any_part_is_returned_forward_and_backward(tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY_BYTES", memory)
    monkeypatch.setattr(row_store, "BLOCK_ROWS", 7)
    monkeypatch.setattr(row_store, "_TAIL_BATCHES", 5)

    @given(st.lists(st.integers(0, 20), max_size=30), st.integers(0, 100), st.integers(0, 100))
    def run(sizes: list[int], first: int, count: int) -> None:
        store = RowStore(tmp_path, -1)
        for size in sizes:
            store.append(batch(store.rows, size))
        expected = list(range(sum(sizes)))[first : first + count]
        assert read(store, first, count) == expected
        assert read(store, first, count, backward=True) == expected[::-1]
        assert store.part(first, count).rows == len(expected)

    run()
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_part_does_not_change_when_rows_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY_BYTES", 0)
    store = RowStore(tmp_path, -1)
    store.append(batch(0, 10))
    part = store.part(5, 100)
    store.append(batch(10, 10))
    assert [int(value) for piece in part for value in piece.column(0).to_pylist()] == [5, 6, 7, 8, 9]


def test_rows_without_columns_are_counted(tmp_path: Path) -> None:
    store = RowStore(tmp_path, -1)
    for _ in range(600):
        store.append(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))
    assert sum(piece.num_rows for piece in store.part(100, 400)) == store.part(100, 400).rows == 400


def test_file_is_limited_by_temp_file_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY_BYTES", 1000)
    store = RowStore(tmp_path, 10)
    store.append(batch(0, 1))
    with pytest.raises(PostgresError, match=r"temporary file size exceeds temp_file_limit \(10kB\)"):
        store.append(batch(1, 5000))


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 40), st.integers(1, 2000))
def test_rows_are_combined_up_to_a_count_and_a_size(sizes: list[int], rows: int, size: int) -> None:
    batches, first = [], 0
    for count in sizes:
        batches.append(batch(first, count).select(["0"]))
        first += count

    tables = list(row_store.tables(iter(batches), rows, size))

    assert [int(value) for table in tables for value in table["0"].to_pylist()] == list(range(first))
    assert all(0 < table.num_rows <= rows for table in tables)
    assert all(table.nbytes <= max(size, 100) for table in tables)  # at least one row of any size


def test_large_rows_are_returned_one_by_one() -> None:
    large = pa.RecordBatch.from_arrays([pa.array(["x" * 1000] * 5)], names=["0"])
    assert [table.num_rows for table in row_store.tables([large], 100, 1500)] == [1, 1, 1, 1, 1]
