"""A temporary store of rows: few are kept in memory, many in a file (like tuplestore.c).

`RowStore` stores batches in order and returns any part of them again, forward or backward, one block at a time. It is used by cursors that
scroll backward (SCROLL) or outlive their transaction (WITH HOLD). FETCH uses it, because it moves its cursor at once, however slowly its
rows are read. INSERT, UPDATE and DELETE use it for their RETURNING rows, and for the keys that they check at the end. The file has no name,
so that it disappears when the node dies; `temp_file_limit` limits it.
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
"""Number of bytes that are held in memory before they are spilled to the file."""
BLOCK_ROWS = 16_384
_TAIL_BATCHES = 256
"""Number of small batches, such as the single rows of FETCH without a count, that are merged: each batch has an overhead of 1,000 bytes."""


@dataclass(frozen=True)
class _Block:
    """`rows` rows from number `first` on, as `size` bytes of the file at `offset`."""

    first: int
    rows: int
    offset: int
    size: int
    schema: pa.Schema


class RowStore:
    """A temporary store of rows (see the module). `most_kilobytes`: temp_file_limit, -1 for no limit."""

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
        """Append rows. Raise 53400 above temp_file_limit, OSError if the disk is full."""
        self._tail.append(batch)
        self.rows += batch.num_rows
        self.nbytes += batch.nbytes
        self._held_bytes += batch.nbytes
        if len(self._tail) >= _TAIL_BATCHES:
            self._join_tail()
        if self._held_bytes > MEMORY_BYTES:
            self._spill()

    def extend(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self.append(batch)

    def part(self, first: int, many: int, *, backward: bool = False) -> RowPart:
        """Return rows `first` (from 0) to ``first + many``, the last one first if `backward`."""
        return RowPart(self, first, max(many, 0), backward=backward)

    def _join_tail(self) -> None:
        have_same_schema = all(batch.schema.equals(self._tail[0].schema) for batch in self._tail)
        joined = [pa.concat_batches(self._tail)] if self._tail and have_same_schema and self._tail[0].num_columns else self._tail
        self._held += joined
        self._tail = []

    def _spill(self) -> None:
        self._join_tail()
        if self._file is None:
            self._file = self._open_file()
        first = self._spilled_rows
        for batch in self._held:
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                piece = batch.slice(start, BLOCK_ROWS)
                serialized = piece.serialize()
                if 0 <= self._most << 10 < self._end + serialized.size:
                    raise PostgresError("53400", f"temporary file size exceeds temp_file_limit ({self._most}kB)")
                _write(self._file, serialized, self._end)
                self._blocks.append(_Block(first, piece.num_rows, self._end, serialized.size, piece.schema))
                first += piece.num_rows
                self._end += serialized.size
        self._held, self._held_bytes = [], 0

    @property
    def _spilled_rows(self) -> int:
        return self._blocks[-1].first + self._blocks[-1].rows if self._blocks else 0

    def places(self) -> list[tuple[int, int, _Block | pa.RecordBatch]]:
        """Return (first row, number of rows, place) of all stored rows."""
        places: list[tuple[int, int, _Block | pa.RecordBatch]] = [(block.first, block.rows, block) for block in self._blocks]
        first = self._spilled_rows
        for batch in (*self._held, *self._tail):
            places.append((first, batch.num_rows, batch))
            first += batch.num_rows
        return places

    def load(self, place: _Block | pa.RecordBatch) -> pa.RecordBatch:
        if isinstance(place, pa.RecordBatch):
            return place
        assert self._file is not None
        return pa.ipc.read_record_batch(pa.py_buffer(os.pread(self._file, place.size, place.offset)), place.schema)

    def _open_file(self) -> int:
        """Open a file without a name that is closed with this object: a part may still be read after its cursor is closed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(dir=self._directory)
        Path(name).unlink()
        weakref.finalize(self, os.close, file)
        return file


def _write(file: int, data: pa.Buffer, offset: int) -> None:
    view = memoryview(data)
    while view:  # a disk that fills up accepts a part before it rejects the rest
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count


class RowPart:
    """Some rows of a store, read when they are iterated over. Rows that are appended meanwhile are not included."""

    def __init__(self, store: RowStore, first: int, many: int, *, backward: bool) -> None:
        self._store, self._first, self._backward = store, first, backward
        self.rows = min(many, max(store.rows - first, 0))

    @property
    def is_large(self) -> bool:
        """Whether the store exceeds its memory limit."""
        return self._store.nbytes > MEMORY_BYTES

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches in the requested order."""
        end = self._first + self.rows
        places = [(first, rows, place) for first, rows, place in self._store.places() if first < end and first + rows > self._first]
        for first, rows, place in reversed(places) if self._backward else places:
            start = max(self._first - first, 0)
            batch = self._store.load(place).slice(start, min(rows, end - first) - start)
            yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1), pa.int64())) if self._backward and batch.num_columns else batch


def tables(batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of batches (same schema, with columns) as tables within the limits of rows and bytes, or of one row of any size."""
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
