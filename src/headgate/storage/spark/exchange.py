"""Rows on their way from the driver to tasks: in the plan itself where they are few, else as files that executors read.

Called by `changes` for batches that Spark merges. What stands in a plan is kept by the driver's Java and sent with each task; on a cluster,
where tasks may be many and each may be sent again, many rows are written once to where all see them (`Engine.exchange`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headgate.storage import data_location
from headgate.storage.data_location import DataPath
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
    folder = place / f"rows-{uuid.uuid4()}"
    try:
        data_location.make_folder(folder)
        pieces = [rows.slice(start, FILE_ROWS) for start in range(0, rows.num_rows, FILE_ROWS)]
        data_location.together(place, lambda piece: _write(folder, piece), pieces)
        yield spark.read.schema(local_frame(spark, rows.slice(0, 1)).schema).parquet(data_location.uri(folder))
    finally:
        data_location.remove_tree(folder)


def _write(folder: DataPath, rows: pa.Table) -> None:
    with data_location.written(folder / f"{uuid.uuid4()}.parquet", kept=False) as file:
        pq.write_table(rows, file, coerce_timestamps="us")
