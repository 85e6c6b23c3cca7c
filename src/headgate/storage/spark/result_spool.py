"""Results of Spark as Arrow batches, in bounded memory.

A result that is small according to its plan is collected at once. For any other, the tasks write Parquet files into a folder that they and
the driver can access (`Engine.exchange`). The driver reads them back one batch at a time, in order, each file as soon as it and all before
it exist, while a thread waits for the job. When the iteration ends, for any reason, the files are removed and a running job is cancelled.
The files of a killed node are removed when it starts (`clear`). Called by `commands` and the publisher for all rows that leave Spark.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import InheritableThread
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from headgate.errors import PostgresError
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.spark import job_group
from headgate.storage.spark.internals import query_plan

SMALL_ROWS = 20_000
SMALL_BYTES = 2 << 20
"""Limit in bytes as files, which may be a fiftieth of the rows' size in memory."""
BATCH_ROWS = 16_384
BATCH_BYTES = 16 << 20
"""Limit in bytes, as stored in the file, of a batch that is read from a file."""
LOOK_SECONDS, FAR_SECONDS = 0.02, 0.5
"""Interval in seconds of the checks for another file: on local disk, in an object store."""
_FILE = re.compile(r"part-(\d+)-.*\.parquet\Z")


def clear(directory: DataPath) -> None:
    """Remove the content of a folder of temporary files that are not in use (RemovePgTempFiles in PostgreSQL)."""
    if not isinstance(directory, Path):
        data_location.remove_tree(directory)
        return
    for entry in directory.iterdir() if directory.is_dir() else ():  # the folder itself may be a link to another disk
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def batches(frame: DataFrame, directory: DataPath, *, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame in its order. `directory`: the folder for the files of a large result."""
    names = frame.columns
    if not names:
        yield from _without_columns(frame.count(), batch_rows)
        return
    renamed = frame.toDF(*[f"c{i}" for i in range(len(names))])
    for field in renamed.schema.fields:
        if isinstance(field.dataType, NullType):
            renamed = renamed.withColumn(field.name, F.col(field.name).cast("string"))
    source = _collected(renamed, batch_rows) if is_small(renamed) else spooled(renamed, directory, batch_rows)
    for batch in source:
        yield pa.RecordBatch.from_arrays(batch.columns, names=names)


def is_small(frame: DataFrame) -> bool:
    """Whether the plan has few rows or few bytes."""
    most = query_plan.most_rows(frame)
    return (most is not None and most <= SMALL_ROWS) or query_plan.estimated_bytes(frame) <= SMALL_BYTES


def _without_columns(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, batch_rows):
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(batch_rows, rows - start), pa.struct([])))


def _collected(frame: DataFrame, batch_rows: int) -> Iterator[pa.RecordBatch]:
    yield from frame.toArrow().to_batches(max_chunksize=batch_rows)


def spooled(
    frame: DataFrame, directory: DataPath, batch_rows: int = BATCH_ROWS, *, description: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a large frame in its order, through files. `description`: that of the job, for Spark's page and event log."""
    folder = directory / f"result-{uuid.uuid4()}"
    job = _Job(frame, folder, description)
    try:
        for part in job.parts():
            with data_location.opened(part) as file:
                rows = pq.ParquetFile(file)
                yield from rows.iter_batches(batch_size=_rows_at_once(rows.metadata, batch_rows))
            data_location.remove(part)
    finally:
        job.stop()
        data_location.remove_tree(folder)


def _rows_at_once(file: pq.FileMetaData, most: int) -> int:
    """Return how many rows of a file make a batch: fewer if they are wide."""
    size = sum(file.row_group(number).total_byte_size for number in range(file.num_row_groups))
    return int(max(min(most, BATCH_BYTES * file.num_rows // max(size, 1)), 1))


def _parts(names: Iterable[str]) -> dict[int, str]:
    """Return those of the names that are files of rows, by the numbers of the tasks that wrote them."""
    return {int(match[1]): name for name in names if (match := _FILE.match(name))}


class _Job:
    """The job that writes a frame's rows, in its own thread: one file for each task that has rows."""

    def __init__(self, frame: DataFrame, place: DataPath, description: str | None) -> None:
        self._context = frame.sparkSession.sparkContext
        self._description = description
        self._frame, self._place = frame, place
        self._look = LOOK_SECONDS if data_location.is_local(place) else FAR_SECONDS
        self._error: Exception | None = None
        # the thread inherits the job group of this thread
        self._thread = InheritableThread(target=self._run, session=frame.sparkSession, name="result")
        self._thread.daemon = True
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.addJobTag(self._place.name)
            # commit a file when its task has ended, not when all tasks have
            writer = self._frame.write.option("mapreduce.fileoutputcommitter.algorithm.version", "2").option("compression", "snappy")
            # not as_uri(): Hadoop does not decode %20, and would write the files into another folder
            shown = contextlib.nullcontext() if self._description is None else job_group.described(self._context, self._description)
            with shown:
                writer.parquet(data_location.uri(self._place))
        except Exception as error:  # noqa: BLE001 (raised again by the reader)
            self._error = error

    def parts(self) -> Iterator[DataPath]:
        """Yield the files in the order of the rows. Raise the job's exception if it fails."""
        next_number = 0
        while self._thread.is_alive():
            self._thread.join(self._look)
            files = self._files()
            while self._thread.is_alive() and next_number in files:
                yield self._place / files[next_number]
                next_number += 1
                if next_number not in files:
                    files = self._files()
        if self._error is not None:
            raise self._error
        names = data_location.names_if_any(self._place)
        if "_SUCCESS" not in names:
            raise PostgresError("XX000", f'Spark has not written a result into "{self._place}"')
        files = _parts(names)
        yield from (self._place / files[number] for number in sorted(files) if number >= next_number)

    def _files(self) -> dict[int, str]:
        return _parts(data_location.names_if_any(self._place))

    def stop(self) -> None:
        """Cancel the job if it is running, and wait for its end."""
        while self._thread.is_alive():
            with contextlib.suppress(Exception):  # Java has terminated, and the job with it
                self._context.cancelJobsWithTag(self._place.name)
            self._thread.join(LOOK_SECONDS)
