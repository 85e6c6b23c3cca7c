"""The rows of a table at a version, read by the driver: of a small table for queries, of one of any size for COPY.

Spark's query over the local rows of a small table is one task. Delta's reader is not used: it makes two frames from the list of files in
each query, and about one task per file, whose rows are then shuffled. Most statements on small tables cost a third if the rows are a local
relation in one piece (decision 0007). COPY uses `pieces`, because Spark would write all rows again, row by row, to return them. Called by
`delta_table`, which decides which tables are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.storage.delta import array_column, deletion_vector, file_action, parquet
from headgate.storage.delta.kept_files import KeptFiles
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark.internals import arrow_schema

PIECE_ROWS = 16_384
_KEPT = KeptFiles()


def read(table: DataPath, state: TableState, most: int | None = None) -> Iterator[tuple[str, pa.Table, pa.Array]]:
    """Yield for each file its path in the Delta log, its live rows (the columns of the state's schema) and their row numbers (int64).

    `most`: this many live rows of a file are enough. Raise XX001 if a file or its deletion vector is damaged.
    """
    row = schema(state)
    if most is None:
        data_location.fetch(file_action.files_of(table, ({"add": add} for add in state.files.values())))
    for name, add in state.files.items():
        deleted = deletion_vector.read(table, add.get("deletionVector"))
        if most is None:
            rows = content(table / unquote(name))
        else:
            with parquet.opened(table / unquote(name)) as file:
                rows = _head(file, most, deleted)
        numbers = np.arange(rows.num_rows, dtype=np.int64)
        if len(deleted):  # may include rows that were not read
            numbers = np.setdiff1d(numbers, deleted, assume_unique=True)
            rows = rows.take(pa.array(numbers))
        yield name, pa.table(columns(rows, state, row), schema=row), pa.array(numbers)


def content(path: DataPath) -> pa.Table:
    """Return all rows of a data file, which a process keeps if they are few. Raise XX001 if it is damaged."""
    return _KEPT.rows(path)


def keep(path: DataPath, rows: pa.Table) -> None:
    """Keep the rows of a data file that was just written, so that `content` does not read it."""
    _KEPT.add(path, rows)


@dataclass(frozen=True)
class RowGroup:
    """A row group of a table's file, valid while the file is open, so that the caller can choose columns.

    `name` is the file's path in the Delta log, `first` the number of the group's first row in the file, `_deleted` rows within the group.
    """

    name: str
    first: int
    _path: DataPath
    _file: pq.ParquetFile
    _number: int
    _state: TableState
    _row: pa.Schema
    _deleted: deletion_vector.Rows

    def may_hold(self, name: str, least: int | None, most: int | None) -> bool:
        """Return whether a column of whole numbers can have a value from `least` to `most` (None: no bound), by its statistics."""
        stored = self._state.physical[name]
        place = self._file.schema_arrow.get_field_index(stored)
        group = self._file.metadata.row_group(self._number)
        column = group.column(place) if 0 <= place < group.num_columns else None
        if column is None or column.path_in_schema != stored or column.statistics is None or not column.statistics.has_min_max:
            return True
        return bool((least is None or least <= column.statistics.max) and (most is None or column.statistics.min <= most))

    def numbers(self) -> np.ndarray:
        """Return the number in the file of each of its live rows, in order."""
        count = self._file.metadata.row_group(self._number).num_rows
        return self.first + np.delete(np.arange(count, dtype=np.int64), self._deleted)

    def pieces(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns of its live rows, in order. Each call yields the same rows in the same batches.

        Raise XX001 if the file is damaged.
        """
        row = pa.schema([self._row.field(name) for name in names])
        existing = set(self._file.schema_arrow.names)
        columns_to_read = [self._state.physical[name] for name in names if self._state.physical[name] in existing]
        with parquet.reading(self._path):  # `groups` has opened the file, but does not see the errors of its caller
            batches = self._file.iter_batches(PIECE_ROWS, row_groups=[self._number], columns=columns_to_read or None)
            for batch in deletion_vector.without(batches, self._deleted):
                yield pa.RecordBatch.from_arrays(columns(batch, self._state, row), schema=row)


def groups(table: DataPath, state: TableState) -> Iterator[RowGroup]:
    """Yield all rows of a table of any size by the row groups of its files. Each is valid until the next. Raise XX001 as `read` does."""
    row = schema(state)
    for path, add in state.files.items():
        deleted = deletion_vector.read(table, add.get("deletionVector"))
        first = 0
        place = table / unquote(path)
        with parquet.opened(place) as file:
            for number in range(file.num_row_groups):
                last = first + file.metadata.row_group(number).num_rows
                deleted_here = deleted[np.searchsorted(deleted, first) : np.searchsorted(deleted, last)] - first
                yield RowGroup(path, first, place, file, number, state, row, deleted_here)
                first = last


def pieces(table: DataPath, state: TableState, names: Sequence[str], first: int = 0, behind: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns of all rows of a table of any size, in the order of its files.

    `first`, `behind`: only the row groups that begin at row `first` of a file or later, and before row `behind`.
    """
    for group in groups(table, state):
        if first <= group.first and (behind is None or group.first < behind):
            yield from group.pieces(names)


def columns(held: pa.Table | pa.RecordBatch, state: TableState, row: pa.Schema) -> list[pa.Array | pa.ChunkedArray]:
    """Return the columns of a file's rows under the table's names. A column that is newer than the file is NULL."""
    existing = set(held.schema.names)
    return [
        array_column.of_file(held.column(stored), field.type)
        if (stored := state.physical.get(field.name, field.name)) in existing
        else pa.nulls(held.num_rows, field.type)
        for field in row
    ]


def _head(file: pq.ParquetFile, most: int, deleted: deletion_vector.Rows) -> pa.Table:
    """Return the first rows of a file, with at least `most` live rows if it has them."""
    parts, read = [], 0
    for batch in file.iter_batches(max(most, 1)):
        parts.append(batch)
        read += batch.num_rows
        if read - int(np.searchsorted(deleted, read)) >= most:
            break
    return pa.Table.from_batches(parts, file.schema_arrow)


def schema(state: TableState) -> pa.Schema:
    """Return the schema of the rows from `read`."""
    return arrow_schema.of_row(state.schema)
