"""Rows deleted from a table without deletion vectors: the rows that are left of a file are written as new files, and the file goes.

For readers of Delta Lake that know no deletion vectors (`deletion_vectors = off`, of the node or of one table). Called by `write` as the
other way of `mark_deleted`, and by `transaction` when a table loses its vectors. What must hold: the newest version of such a table has
no file with a vector. The files are named with `tags`, so that the log's positions count what a write has changed and not what it has kept.
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
"""Rows of this size (in Arrow's form) make a file, and are held at a time."""


def left(table: DeltaTable, state: TableState, deleted: Mapping[str, deletion_vector.Rows], *, data_change: bool = True) -> list[Action]:
    """The `add` actions of new files with the rows of each file (by path) that are not deleted, piece by piece, without Spark."""
    made: list[Action] = []
    try:
        for path, rows in deleted.items():
            for piece in _pieces(table, state, path, rows):
                made.append(_kept(parquet.write(table.path, piece, {}, len(made)), data_change=data_change))
    except BaseException:
        data_location.forsake(table.path / action["add"]["path"] for action in made)
        raise
    return made


def _pieces(table: DeltaTable, state: TableState, path: str, deleted: deletion_vector.Rows) -> Iterator[pa.Table]:
    """The rows of a file that are not deleted, by the columns' names in it; a column that was added later is left out (it is NULL)."""
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


def _kept(action: Action, *, data_change: bool) -> Action:
    return {"add": {**action["add"], "tags": dict.fromkeys([KEPT], "true"), "dataChange": data_change}}


def left_by_spark(table: DeltaTable, state: TableState, places: DataFrame, files: Iterable[str]) -> list[Action]:
    """The actions that delete rows (columns FILE, ROW) of these files (URIs): one Spark job writes what is left of them."""
    touched = table.touched(state, files)
    # a state of these files alone, which is read by their list
    frame = table.frame(replace(state, files=touched, staged=state.staged + 1), positions=True)
    rows = frame.join(places, [FILE, ROW], "left_anti").select(*[F.col(quoted(name)) for name in state.schema.names])
    added = [action for action in table.write(state, rows) if file_action.records(action["add"])]
    return [
        *[file_action.removal(add, data_change=True) for add in touched.values()],
        *[_kept(action, data_change=True) for action in added],
    ]


def without_vectors(table: DeltaTable, state: TableState) -> list[Action]:
    """The actions, which change no row, that take the place of all files with deletion vectors."""
    marked = {path: add for path, add in state.files.items() if add.get("deletionVector")}
    deleted = {path: deletion_vector.read(table.path, add["deletionVector"]) for path, add in marked.items()}
    removed = [file_action.removal(add, data_change=False) for add in marked.values()]
    return removed + left(table, state, deleted, data_change=False)
