"""The rows of a small table at a version, read by the driver: a query of Spark's over them is one task, without its reader of Delta.

Delta's reader makes two frames of the list of files, in each query anew, and a task for each file or so; what comes after it is shuffled.
Most statements on small tables cost a third when the rows are a local relation in one piece (decision 0007). Called by `delta`, which
decides what is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.storage import parquet, vector
from headgate.storage.table_state import TableState


def read(table: Path, state: TableState, most: int | None = None) -> Iterator[tuple[str, pa.Table, pa.Array]]:
    """Of each file its path in the log, its rows that are not deleted (the columns of the state's schema) and their places in it (int64).

    `most`: so many rows of a file that are not deleted are enough. XX001 where a file or its deletion vector is damaged.
    """
    row = to_arrow_schema(state.schema)
    for name, add in state.files.items():
        deleted = vector.read(table, add.get("deletionVector"))
        with parquet.opened(table / unquote(name)) as file:
            held = file.read() if most is None else _head(file, most, deleted)
        places = np.arange(held.num_rows, dtype=np.int64)
        if len(deleted):  # of rows that were not read, too
            places = np.setdiff1d(places, deleted, assume_unique=True)
            held = held.take(pa.array(places))
        columns = [
            held[stored].cast(field.type)
            if (stored := state.physical[field.name]) in held.column_names
            else pa.nulls(len(places), field.type)
            for field in row
        ]
        yield name, pa.table(columns, schema=row), pa.array(places)


def _head(file: pq.ParquetFile, most: int, deleted: vector.Rows) -> pa.Table:
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
