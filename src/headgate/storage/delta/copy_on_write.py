"""Deletion of rows from a table without deletion vectors: the remaining rows of a file are written as new files, and the file is removed.

For readers of Delta Lake that do not support deletion vectors (`deletion_vectors = off`, of the node or of one table). Called by `write` as
the alternative in `mark_deleted`, and by `transaction` when deletion vectors are disabled for a table. Invariant: the newest version
of such a table has no file with a vector. The new files have `tags`, so that the log's positions count the changed rows of a write and not
the kept ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.storage.delta import deletion_vector, file_action, parquet
from headgate.storage.delta.delta_table import FILE, ROW, DeltaTable
from headgate.storage.delta.file_action import KEPT, Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.spark.column_name import quoted

FILE_BYTES = 64 << 20
"""Size in bytes, in Arrow form, of the rows of a file, which are held in memory at a time."""


def left(table: DeltaTable, state: TableState, deleted: Mapping[str, deletion_vector.Rows], *, data_change: bool = True) -> list[Action]:
    """Write the rows of each file (by path) that are not deleted to new files, piece by piece, without Spark. Return the `add` actions."""
    added: list[Action] = []
    try:
        for path, rows in deleted.items():
            for piece in _pieces(table, state, path, rows):
                added.append(_tag_kept(parquet.write(table.path, piece, {}, len(added)), data_change=data_change))
    except BaseException:
        data_location.forsake(table.path / action["add"]["path"] for action in added)
        raise
    return added


def _pieces(table: DeltaTable, state: TableState, path: str, deleted: deletion_vector.Rows) -> Iterator[pa.Table]:
    """Yield the rows of a file that are not deleted, under its column names. A column that was added later is omitted (it is NULL)."""
    names = [state.physical.get(name, name) for name in state.schema.fieldNames()]
    waiting, size = list[pa.RecordBatch](), 0
    for batch in parquet.live_rows(table.path / unquote(path), names, deleted):
        waiting.append(batch)
        size += batch.nbytes
        if size >= FILE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _tag_kept(action: Action, *, data_change: bool) -> Action:
    return {"add": {**action["add"], "tags": dict.fromkeys([KEPT], "true"), "dataChange": data_change}}


def left_by_spark(table: DeltaTable, state: TableState, places: DataFrame, files: Iterable[str]) -> list[Action]:
    """Delete rows (columns FILE, ROW) of files (URIs) in one Spark job that writes their remaining rows. Return the actions."""
    touched = table.touched(state, files)
    # a state with only these files, so that Delta reads them by their list
    frame = table.frame(replace(state, files=touched, staged=state.staged + 1), positions=True)
    rows = frame.join(places, [FILE, ROW], "left_anti").select(*[F.col(quoted(name)) for name in state.schema.names])
    added = [action for action in table.write(state, rows) if file_action.records(action["add"])]
    return [
        *[file_action.removal(add, data_change=True) for add in touched.values()],
        *[_tag_kept(action, data_change=True) for action in added],
    ]


def without_vectors(table: DeltaTable, state: TableState) -> list[Action]:
    """Replace all files with deletion vectors. Return the actions, which change no rows."""
    with_vector = {path: add for path, add in state.files.items() if add.get("deletionVector")}
    deleted = {path: deletion_vector.read(table.path, add["deletionVector"]) for path, add in with_vector.items()}
    removed = [file_action.removal(add, data_change=False) for add in with_vector.values()]
    return removed + left(table, state, deleted, data_change=False)
