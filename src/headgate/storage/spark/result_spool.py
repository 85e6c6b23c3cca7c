"""Results of Spark as Arrow batches, in bounded memory.

A result that is small according to its plan is collected at once. For any other, the tasks write files into a folder that they and the
driver can access (`Engine.exchange`). The driver reads them back one batch at a time, in order, each file as soon as it and all before it
exist, while a thread waits for the job. When the iteration ends, for any reason, the files are removed and a running job is cancelled. The
files of a killed node are removed when it starts (`clear`). Called by `commands` and the publisher for all rows that leave Spark.

    batches, spooled    rows of a frame: Spark writes them as Parquet
    encoded             batches that a kernel makes in Python workers: the workers write them as Arrow, and no byte of them passes Java
"""

from __future__ import annotations

import contextlib
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import InheritableThread, SparkContext, TaskContext
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
_FILE = re.compile(r"part-(\d+)\b.*\.(parquet|arrow)\Z")
Kernel = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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


def batches(frame: DataFrame, directory: DataPath) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame in its order. `directory`: the folder for the files of a large result."""
    names = frame.columns
    if not names:
        yield from _without_columns(frame.count())
        return
    renamed = frame.toDF(*[f"c{i}" for i in range(len(names))])
    for field in renamed.schema.fields:
        if isinstance(field.dataType, NullType):
            renamed = renamed.withColumn(field.name, F.col(field.name).cast("string"))
    source = _collect(renamed) if is_small(renamed) else _spool(renamed, directory)
    for batch in source:
        yield pa.RecordBatch.from_arrays(batch.columns, names=names)


def is_small(frame: DataFrame) -> bool:
    """Return whether the plan has few rows or few bytes."""
    most = query_plan.most_rows(frame)
    return (most is not None and most <= SMALL_ROWS) or query_plan.estimated_bytes(frame) <= SMALL_BYTES


def _without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, BATCH_ROWS):
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(BATCH_ROWS, rows - start), pa.struct([])))


def _collect(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    yield from frame.toArrow().to_batches(max_chunksize=BATCH_ROWS)


def _spool(frame: DataFrame, directory: DataPath) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a large frame in its order, through files."""
    # commit a file when its task has ended, not when all tasks have
    writer = frame.write.option("mapreduce.fileoutputcommitter.algorithm.version", "2").option("compression", "snappy")

    def write(folder: DataPath) -> Iterable[int]:
        # not as_uri(): Hadoop does not decode %20, and would write the files into another folder
        writer.parquet(data_location.uri(folder))
        names = data_location.names_if_any(folder)
        if "_SUCCESS" not in names:
            raise _missing(folder)
        return _parts(names)

    for part in _parts_of(_Job(frame.sparkSession.sparkContext, directory, write)):
        with data_location.opened(part) as file:
            rows = pq.ParquetFile(file)
            yield from rows.iter_batches(batch_size=_rows_at_once(rows.metadata))


def encoded(frame: DataFrame, kernel: Kernel, schema: pa.Schema, directory: DataPath, description: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches that tasks make of the rows of a frame, in its order. `description`: of the job, for Spark's page and event log."""

    def write(folder: DataPath) -> Iterable[int]:
        data_location.make_folder(folder)
        return [row.part for row in frame.mapInArrow(_WriteTask(kernel, schema, folder), "part int").collect()]

    for part in _parts_of(_Job(frame.sparkSession.sparkContext, directory, write, description)):
        if isinstance(part, Path):
            with pa.memory_map(str(part)) as mapped:
                yield from pa.ipc.open_stream(mapped)
        else:
            with data_location.opened(part) as file:
                yield from pa.ipc.open_stream(file)


@dataclass(frozen=True)
class _WriteTask:
    """Writes what a kernel makes of the rows of a task as one file, and yields the number of the task."""

    kernel: Kernel
    schema: pa.Schema
    folder: DataPath

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        target = self.folder / _arrow_file(number)
        # the driver reads a local file as soon as it has its name
        draft = target.with_name(f".{target.name}.{context.taskAttemptId()}") if isinstance(target, Path) else target
        with data_location.written(draft, is_cached=False) as file:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, self.schema) as writer:
                for batch in self.kernel(batches):
                    writer.write_batch(batch)
            if isinstance(target, Path):
                file.replace(target)
        yield pa.RecordBatch.from_pydict({"part": pa.array([number], pa.int32())})


def _arrow_file(number: int) -> str:
    return f"part-{number:05}.arrow"


def _missing(folder: DataPath) -> PostgresError:
    return PostgresError("XX000", f'Spark has not written a result into "{folder}"')


def _parts_of(job: _Job) -> Iterator[DataPath]:
    """Yield the files of a job, and remove each one when the next one is asked for. Remove all of them at the end."""
    try:
        for part in job.parts():
            yield part
            data_location.remove(part)
    finally:
        job.stop()
        data_location.remove_tree(job.folder)


def _rows_at_once(file: pq.FileMetaData) -> int:
    """Return how many rows of a file make a batch: fewer if they are wide."""
    size = sum(file.row_group(number).total_byte_size for number in range(file.num_row_groups))
    return int(max(min(BATCH_ROWS, BATCH_BYTES * file.num_rows // max(size, 1)), 1))


def _parts(names: Iterable[str]) -> dict[int, str]:
    """Return those of the names that are files of rows, by the numbers of the tasks that wrote them."""
    return {int(match[1]): name for name in names if (match := _FILE.match(name))}


class _Job:
    """The job that writes a result, in its own thread: one file for each task that has rows.

    `write` runs it. It fills the folder, and returns the numbers of its files that the driver has not yet removed, or of all.
    """

    def __init__(
        self, context: SparkContext, directory: DataPath, write: Callable[[DataPath], Iterable[int]], description: str | None = None
    ) -> None:
        self.folder = directory / f"result-{uuid.uuid4()}"
        self._context, self._write, self._description = context, write, description
        self._look = LOOK_SECONDS if data_location.is_local(directory) else FAR_SECONDS
        self._numbers: Iterable[int] = ()
        self._error: Exception | None = None
        # the thread inherits the job group of this thread
        self._thread = InheritableThread(target=self._run, name="result")
        self._thread.daemon = True
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.addJobTag(self.folder.name)
            shown = contextlib.nullcontext() if self._description is None else job_group.described(self._context, self._description)
            with shown:
                self._numbers = self._write(self.folder)
        except Exception as error:  # noqa: BLE001 (raised again by the reader)
            self._error = error

    def parts(self) -> Iterator[DataPath]:
        """Yield the files in the order of the rows. Raise the job's exception if it fails."""
        next_number = 0
        while self._thread.is_alive():
            self._thread.join(self._look)
            files = self._files()
            while self._thread.is_alive() and next_number in files:
                yield self.folder / files[next_number]
                next_number += 1
                if next_number not in files:
                    files = self._files()
        if self._error is not None:
            raise self._error
        files = self._files()
        for number in sorted(number for number in self._numbers if number >= next_number):
            if number not in files:
                raise _missing(self.folder)
            yield self.folder / files[number]

    def _files(self) -> dict[int, str]:
        return _parts(data_location.names_if_any(self.folder))

    def stop(self) -> None:
        """Cancel the job if it is running, and wait for its end."""
        while self._thread.is_alive():
            with contextlib.suppress(Exception):  # Java has terminated, and the job with it
                self._context.cancelJobsWithTag(self.folder.name)
            self._thread.join(LOOK_SECONDS)
