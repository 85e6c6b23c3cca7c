"""Results of Spark as Arrow batches, in bounded memory.

A result that its plan says is small is collected at once; any other is written by the tasks as Parquet files under
``DIR/pgsql_tmp`` and read back one batch at a time, in order; the files go when the iteration ends, however it ends.
Called by `commands` and the publisher for whatever leaves Spark row by row.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from headgate.errors import PostgresError

SMALL_ROWS = 20_000
SMALL_BYTES = 2 << 20
"""As files, which may be a fiftieth of the rows in memory."""
BATCH_ROWS = 16_384


def batches(frame: DataFrame, directory: Path, *, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of a frame in its order. `directory`: where the files of a large result may go (DIR/pgsql_tmp)."""
    names = frame.columns
    if not names:
        yield from _without_columns(frame.count(), batch_rows)
        return
    named = frame.toDF(*[f"c{i}" for i in range(len(names))])
    for field in named.schema.fields:
        if isinstance(field.dataType, NullType):
            named = named.withColumn(field.name, F.col(field.name).cast("string"))
    source = _collected(named, batch_rows) if is_small(named) else _spooled(named, directory, batch_rows)
    for batch in source:
        yield pa.RecordBatch.from_arrays(batch.columns, names=names)


def is_small(frame: DataFrame) -> bool:
    """Whether the plan promises few rows or few bytes."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    most = plan.maxRows()
    if most.isDefined() and int(most.get()) <= SMALL_ROWS:
        return True
    return int(str(plan.stats().sizeInBytes())) <= SMALL_BYTES


def _without_columns(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, batch_rows):
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(batch_rows, rows - start), pa.struct([])))


def _collected(frame: DataFrame, batch_rows: int) -> Iterator[pa.RecordBatch]:
    yield from frame.toArrow().to_batches(max_chunksize=batch_rows)


def _spooled(frame: DataFrame, directory: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    place = directory / f"result-{uuid.uuid4()}"
    try:
        # not as_uri(): Hadoop takes %20 as it stands, and the files would lie where nobody looks for them
        frame.write.option("compression", "snappy").parquet(f"file:{place}")
        if not (place / "_SUCCESS").exists():
            raise PostgresError("XX000", f'Spark has not written a result into "{place}"')
        for part in sorted(place.glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                yield from file.iter_batches(batch_size=batch_rows)
            part.unlink()
    finally:
        shutil.rmtree(place, ignore_errors=True)
