"""Rows that are kept for later: few in memory, many in a file (tuplestore.c).

`RowStore` takes batches in order and gives any part of them again, forward or backward, one block at a time. Used by cursors that go back
(SCROLL), that outlive their transaction (WITH HOLD), by FETCH, which moves its cursor at once however slowly its rows are read, and by
INSERT, UPDATE and DELETE for what they return and for the keys that they look at when all is written. The file has no name, so that nothing
is left of it when the node dies; `temp_file_limit` bounds it.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.errors import PostgresError

MEMORY_BYTES = 16 << 20
"""What is held in memory before it goes to the file."""
BLOCK_ROWS = 16_384
_TAIL_BATCHES = 256
"""So many single rows, which is what FETCH without a count gives, become one batch: a batch takes a thousand bytes whatever is in it."""


@dataclass(frozen=True)
class _Block:
    """Rows `first` and following, as `size` bytes of the file at `offset`."""

    first: int
    rows: int
    offset: int
    size: int
    schema: pa.Schema


class RowStore:
    """See the module. `most_kilobytes`: temp_file_limit, -1 for none."""

    def __init__(self, directory: Path, most_kilobytes: int) -> None:
        self.rows = 0
        self.nbytes = 0
        self._directory, self._most = directory, most_kilobytes
        self._file: int | None = None
        self._end = 0
        self._blocks: list[_Block] = []
        self._held: list[pa.RecordBatch] = []
        self._tail: list[pa.RecordBatch] = []
        self._held_bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Takes the next rows. 53400 beyond temp_file_limit, OSError where the disk is full."""
        self._tail.append(batch)
        self.rows += batch.num_rows
        self.nbytes += batch.nbytes
        self._held_bytes += batch.nbytes
        if len(self._tail) >= _TAIL_BATCHES:
            self._join_tail()
        if self._held_bytes > MEMORY_BYTES:
            self._spill()

    def extend(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes the next rows, batch by batch."""
        for batch in batches:
            self.append(batch)

    def part(self, first: int, many: int, *, backward: bool = False) -> RowPart:
        """Rows `first` (from 0) to ``first + many``, the last one first if `backward`."""
        return RowPart(self, first, max(many, 0), backward=backward)

    def _join_tail(self) -> None:
        alike = all(each.schema.equals(self._tail[0].schema) for each in self._tail)
        joined = [pa.concat_batches(self._tail)] if self._tail and alike and self._tail[0].num_columns else self._tail
        self._held += joined
        self._tail = []

    def _spill(self) -> None:
        self._join_tail()
        if self._file is None:
            self._file = self._opened()
        first = self._spilled
        for batch in self._held:
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                piece = batch.slice(start, BLOCK_ROWS)
                written = piece.serialize()
                if 0 <= self._most << 10 < self._end + written.size:
                    raise PostgresError("53400", f"temporary file size exceeds temp_file_limit ({self._most}kB)")
                _write(self._file, written, self._end)
                self._blocks.append(_Block(first, piece.num_rows, self._end, written.size, piece.schema))
                first += piece.num_rows
                self._end += written.size
        self._held, self._held_bytes = [], 0

    @property
    def _spilled(self) -> int:
        return self._blocks[-1].first + self._blocks[-1].rows if self._blocks else 0

    def places(self) -> list[tuple[int, int, _Block | pa.RecordBatch]]:
        """(first row, rows, where they are) of all that is stored."""
        found: list[tuple[int, int, _Block | pa.RecordBatch]] = [(each.first, each.rows, each) for each in self._blocks]
        first = self._spilled
        for batch in (*self._held, *self._tail):
            found.append((first, batch.num_rows, batch))
            first += batch.num_rows
        return found

    def load(self, place: _Block | pa.RecordBatch) -> pa.RecordBatch:
        """The rows of one place."""
        if isinstance(place, pa.RecordBatch):
            return place
        assert self._file is not None
        return pa.ipc.read_record_batch(pa.py_buffer(os.pread(self._file, place.size, place.offset)), place.schema)

    def _opened(self) -> int:
        """A file without a name, which goes with this object: parts of it may be read when its cursor is closed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(dir=self._directory)
        Path(name).unlink()
        weakref.finalize(self, os.close, file)
        return file


def _write(file: int, data: pa.Buffer, offset: int) -> None:
    view = memoryview(data)
    while view:  # a full disk takes a part before it refuses the rest
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


class RowPart:
    """Some rows of a store, read when they are iterated over. What is appended meanwhile is not among them."""

    def __init__(self, store: RowStore, first: int, many: int, *, backward: bool) -> None:
        self._store, self._first, self._backward = store, first, backward
        self.rows = min(many, max(store.rows - first, 0))

    @property
    def is_large(self) -> bool:
        """Whether the store holds more than memory is for."""
        return self._store.nbytes > MEMORY_BYTES

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches in the order that was asked for."""
        end = self._first + self.rows
        wanted = [(first, rows, place) for first, rows, place in self._store.places() if first < end and first + rows > self._first]
        for first, rows, place in reversed(wanted) if self._backward else wanted:
            start = max(self._first - first, 0)
            batch = self._store.load(place).slice(start, min(rows, end - first) - start)
            yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1), pa.int64())) if self._backward and batch.num_columns else batch


def tables(batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
    """The rows of batches (alike, with columns), at once no more than so many rows and bytes, or one row of any size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch, most_rows, most_bytes):
            if waiting and (rows + piece.num_rows > most_rows or size + piece.nbytes > most_bytes):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _pieces(batch: pa.RecordBatch, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    many = max(min(most_rows, batch.num_rows * most_bytes // max(batch.nbytes, 1)), 1)
    return (batch.slice(start, many) for start in range(0, batch.num_rows, many))


NO_ROWS = RowPart(RowStore(Path(), 0), 0, 0, backward=False)
