"""The rows of a table at a version, read by the driver: of a small table for queries, of one of any size for COPY.

A query of Spark's over the rows of a small table is one task, without its reader of Delta, which makes two frames of the list of files, in
each query anew, and a task for each file or so; what comes after it is shuffled. Most statements on small tables cost a third when the rows
are a local relation in one piece (decision 0007). COPY takes `pieces`, since Spark would write all rows once more, row by row, to hand them
over. Called by `delta_table`, which decides what is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.storage.delta import array_column, deletion_vector, file_action, parquet
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

PIECE_ROWS = 16_384


def read(table: DataPath, state: TableState, most: int | None = None) -> Iterator[tuple[str, pa.Table, pa.Array]]:
    """Of each file its path in the log, its rows that are not deleted (the columns of the state's schema) and their places in it (int64).

    `most`: so many rows of a file that are not deleted are enough. XX001 where a file or its deletion vector is damaged.
    """
    row = schema(state)
    if most is None:
        data_location.fetch(file_action.files_of(table, ({"add": add} for add in state.files.values())))
    for name, add in state.files.items():
        deleted = deletion_vector.read(table, add.get("deletionVector"))
        with parquet.opened(table / unquote(name)) as file:
            held = file.read() if most is None else _head(file, most, deleted)
        places = np.arange(held.num_rows, dtype=np.int64)
        if len(deleted):  # of rows that were not read, too
            places = np.setdiff1d(places, deleted, assume_unique=True)
            held = held.take(pa.array(places))
        yield name, pa.table(columns(held, state, row), schema=row), pa.array(places)


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file of a table, while the file is open: what is read of it may decide what else is. `deleted`: places in it."""

    _file: pq.ParquetFile
    _number: int
    _state: TableState
    _row: pa.Schema
    _deleted: deletion_vector.Rows

    def pieces(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of its rows that are not deleted, in order, piece by piece; each time the same rows in the same pieces."""
        row = pa.schema([self._row.field(name) for name in names])
        held = set(self._file.schema_arrow.names)
        wanted = [self._state.physical[name] for name in names if self._state.physical[name] in held]
        batches = self._file.iter_batches(PIECE_ROWS, row_groups=[self._number], columns=wanted or None)
        for found in deletion_vector.without(batches, self._deleted):
            yield pa.RecordBatch.from_arrays(columns(found, self._state, row), schema=row)


def groups(table: DataPath, state: TableState) -> Iterator[RowGroup]:
    """All rows of a table of any size, by the row groups of its files, each of which is good until the next. XX001 as `read`."""
    row = schema(state)
    for path, add in state.files.items():
        deleted = deletion_vector.read(table, add.get("deletionVector"))
        first = 0
        with parquet.opened(table / unquote(path)) as file:
            for number in range(file.num_row_groups):
                last = first + file.metadata.row_group(number).num_rows
                gone = deleted[np.searchsorted(deleted, first) : np.searchsorted(deleted, last)] - first
                yield RowGroup(file, number, state, row, gone)
                first = last


def pieces(table: DataPath, state: TableState, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows of a table of any size, in the order of its files, piece by piece."""
    for group in groups(table, state):
        yield from group.pieces(names)


def columns(held: pa.Table | pa.RecordBatch, state: TableState, row: pa.Schema) -> list[Any]:
    """The columns of rows of a file under a table's names; NULLs for a column that the file is older than."""
    there = set(held.schema.names)
    return [
        array_column.of_file(held.column(stored), field.type)
        if (stored := state.physical.get(field.name, field.name)) in there
        else pa.nulls(held.num_rows, field.type)
        for field in row
    ]


def _head(file: pq.ParquetFile, most: int, deleted: deletion_vector.Rows) -> pa.Table:
    """The first rows of a file, `most` of which are not deleted."""
    parts, read = [], 0
    for batch in file.iter_batches(max(most, 1)):
        parts.append(batch)
        read += batch.num_rows
        if read - int(np.searchsorted(deleted, read)) >= most:
            break
    return pa.Table.from_batches(parts, file.schema_arrow)


def schema(state: TableState) -> pa.Schema:
    """The columns of what `read` gives."""
    found: pa.Schema = to_arrow_schema(state.schema)
    return found
