"""Rows that are passed from the driver to tasks: in the plan itself if they are few, otherwise in files that executors read.

Called by `changes` for batches that Spark merges, by the apply worker for parts of segments that tasks decode, and by WITH for the
RETURNING rows of its INSERT, UPDATE or DELETE. The driver's Java keeps the rows of a plan and sends them with each task. There may be many
tasks, and each may be sent again, so larger data is written once to a folder that all can access (`Engine.exchange`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark.local_relation import local_frame

FEW_BYTES = 4 << 20
"""Limit in bytes of the rows in a plan for a cluster's tasks."""
FILE_ROWS = 50_000
"""Number of rows in a file. A task reads one or more files."""


@contextlib.contextmanager
def handed_over(spark: SparkSession, rows: pa.Table, place: DataPath | None) -> Iterator[DataFrame]:
    """Yield a frame of these rows. `place`: the folder for executors' files, removed at the end; None if tasks run in the driver."""
    if place is None or rows.nbytes <= FEW_BYTES:
        yield local_frame(spark, rows)
        return
    with folder(place, "rows") as target:
        pieces = [rows.slice(start, FILE_ROWS) for start in range(0, rows.num_rows, FILE_ROWS)]
        data_location.together(place, lambda piece: _write_rows(target, piece), pieces)
        yield spark.read.schema(local_frame(spark, rows.slice(0, 1)).schema).parquet(data_location.uri(target))


def kept(spark: SparkSession, pieces: Iterable[pa.Table], place: DataPath) -> tuple[DataFrame, Callable[[], None]]:
    """Return a frame of the rows of tables (same schema, at least one), which are not held in memory, and a function to discard it."""
    with contextlib.ExitStack() as stack:
        target, schema = stack.enter_context(folder(place, "rows")), None
        for piece in pieces:
            _write_rows(target, piece)
            schema = schema or local_frame(spark, piece.slice(0, 1)).schema
        assert schema is not None
        frame = spark.read.schema(schema).parquet(data_location.uri(target))
        forget = stack.pop_all().close
    return frame, forget


@contextlib.contextmanager
def folder(place: DataPath, prefix: str) -> Iterator[DataPath]:
    """Yield a new folder for files that are passed to tasks. It is removed at the end."""
    target = place / f"{prefix}-{uuid.uuid4()}"
    try:
        data_location.make_folder(target)
        yield target
    finally:
        data_location.remove_tree(target)


def _write_rows(place: DataPath, rows: pa.Table) -> None:
    with data_location.written(place / f"{uuid.uuid4()}.parquet", is_cached=False) as file:
        pq.write_table(rows, file, coerce_timestamps="us")
