"""The rows of cursors: any part of them comes again, forward and backward, from memory and from the file."""

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
    """Rows that tell their numbers."""
    numbers = [str(each) for each in range(first, first + rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers), pa.array([None if int(each) % 3 else each for each in numbers])], names=["0", "1"]
    )


def read(store: RowStore, first: int, many: int, *, backward: bool = False) -> list[int]:
    """The numbers of the rows of a part."""
    rows = [each for part in store.part(first, many, backward=backward) for each in part.to_pylist()]
    assert all(each["1"] == (None if int(each["0"]) % 3 else each["0"]) for each in rows)
    return [int(each["0"]) for each in rows]


@pytest.mark.parametrize("memory", [0, 300, 1 << 30])
def test_any_part_comes_in_order_and_backward(tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY_BYTES", memory)
    monkeypatch.setattr(row_store, "BLOCK_ROWS", 7)
    monkeypatch.setattr(row_store, "_TAIL_BATCHES", 5)

    @given(st.lists(st.integers(0, 20), max_size=30), st.integers(0, 100), st.integers(0, 100))
    def run(sizes: list[int], first: int, many: int) -> None:
        store = RowStore(tmp_path, -1)
        for size in sizes:
            store.append(batch(store.rows, size))
        wanted = list(range(sum(sizes)))[first : first + many]
        assert read(store, first, many) == wanted
        assert read(store, first, many, backward=True) == wanted[::-1]
        assert store.part(first, many).rows == len(wanted)

    run()
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_a_part_stays_what_it_was_when_more_rows_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY_BYTES", 0)
    store = RowStore(tmp_path, -1)
    store.append(batch(0, 10))
    part = store.part(5, 100)
    store.append(batch(10, 10))
    assert [int(each) for found in part for each in found.column(0).to_pylist()] == [5, 6, 7, 8, 9]


def test_rows_without_columns_are_counted(tmp_path: Path) -> None:
    store = RowStore(tmp_path, -1)
    for _ in range(600):
        store.append(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))
    assert sum(each.num_rows for each in store.part(100, 400)) == store.part(100, 400).rows == 400


def test_the_file_ends_at_temp_file_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "MEMORY_BYTES", 1000)
    store = RowStore(tmp_path, 10)
    store.append(batch(0, 1))
    with pytest.raises(PostgresError, match=r"temporary file size exceeds temp_file_limit \(10kB\)"):
        store.append(batch(1, 5000))


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 40), st.integers(1, 2000))
def test_rows_are_put_together_up_to_so_many_and_so_large(sizes: list[int], rows: int, size: int) -> None:
    batches, first = [], 0
    for many in sizes:
        batches.append(batch(first, many).select(["0"]))
        first += many

    tables = list(row_store.tables(iter(batches), rows, size))

    assert [int(each) for table in tables for each in table["0"].to_pylist()] == list(range(first))
    assert all(0 < table.num_rows <= rows for table in tables)
    assert all(table.nbytes <= max(size, 100) for table in tables)  # one row, whatever its size


def test_rows_of_which_each_is_large_come_one_by_one() -> None:
    large = pa.RecordBatch.from_arrays([pa.array(["x" * 1000] * 5)], names=["0"])
    assert [table.num_rows for table in row_store.tables([large], 100, 1500)] == [1, 1, 1, 1, 1]
