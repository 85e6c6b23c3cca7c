"""What is on its way from the driver to tasks: in the plan itself where it is little, else as files that executors read.

Called by `changes` for rows of batches that Spark merges, by the apply worker for parts of segments that tasks decode, by WITH for what
its INSERT, UPDATE or DELETE returns. What stands in a plan is kept by the driver's Java and sent with each task; where tasks may be many
and each may be sent again, it is written once to where all see it (`Engine.exchange`).
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
"""What a plan may hold of a cluster's tasks."""
FILE_ROWS = 50_000
"""Rows of a file: a task reads one or more."""


@contextlib.contextmanager
def handed_over(spark: SparkSession, rows: pa.Table, place: DataPath | None) -> Iterator[DataFrame]:
    """Inside, a frame of these rows; `place`: where files for executors go, None: tasks run beside the driver. The files go at the end."""
    if place is None or rows.nbytes <= FEW_BYTES:
        yield local_frame(spark, rows)
        return
    with folder(place, "rows") as made:
        pieces = [rows.slice(start, FILE_ROWS) for start in range(0, rows.num_rows, FILE_ROWS)]
        data_location.together(place, lambda piece: _write_rows(made, piece), pieces)
        yield spark.read.schema(local_frame(spark, rows.slice(0, 1)).schema).parquet(data_location.uri(made))


def kept(spark: SparkSession, pieces: Iterable[pa.Table], place: DataPath) -> tuple[DataFrame, Callable[[], None]]:
    """A frame of the rows of some tables, alike and at least one, none of which is held; and what is to be called when it is of no use."""
    with contextlib.ExitStack() as stack:
        made, schema = stack.enter_context(folder(place, "rows")), None
        for piece in pieces:
            _write_rows(made, piece)
            schema = schema or local_frame(spark, piece.slice(0, 1)).schema
        assert schema is not None
        frame = spark.read.schema(schema).parquet(data_location.uri(made))
        forget = stack.pop_all().close
    return frame, forget


@contextlib.contextmanager
def folder(place: DataPath, what: str) -> Iterator[DataPath]:
    """Inside, a folder for files that are on their way; it goes at the end."""
    made = place / f"{what}-{uuid.uuid4()}"
    try:
        data_location.make_folder(made)
        yield made
    finally:
        data_location.remove_tree(made)


def _write_rows(place: DataPath, rows: pa.Table) -> None:
    with data_location.written(place / f"{uuid.uuid4()}.parquet", kept=False) as file:
        pq.write_table(rows, file, coerce_timestamps="us")
