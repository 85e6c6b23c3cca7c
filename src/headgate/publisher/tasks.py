"""Encodes a large write of a relation in Spark tasks, with the same kernels that `rendering` calls in the driver.

    driver    lists the row groups of the write's files (`feed.Cut`), without reading a row
    task      reads its row groups, judges the changes (`gate`), renders and encodes them, and returns pgoutput frames as a few blobs
    driver    reads the blobs in the order of the row groups, as soon as they are available, and passes them to the socket

Called by `stream` for a write of more than `small_batch_rows` changes. Invariants: a task depends only on `EncodeTask`, so that Spark may
retry it. The driver holds a few blobs at a time, and the temporary files hold those of one job, whatever the size of the write. If a row
filter cannot be evaluated exactly for a row group without Spark's own expressions, the declared outcome is `frames` NULL: the driver judges
and encodes that row group. Several streams of one database share decoded changes, so they do not use tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.pgoutput.encode import Frames
from headgate.publisher import gate, rendering
from headgate.publisher.decoded import decoded
from headgate.publisher.published import Published
from headgate.publisher.rendering import Rendered, Renderer, ValueForm
from headgate.storage import feed
from headgate.storage.spark import failure, result_spool
from headgate.storage.transaction.log import TableWrite
from headgate.types import buffers, registry

REFUSED = "tasks could not encode changes"
"""The message of a task's error in place of PostgreSQL's, which shows values."""
CUTS_PER_TASK = 8
"""The most row groups that a task encodes. A job has a task per core, so that its temporary files stay small."""
_BLOBS = pa.schema(
    [
        ("cut", pa.int32()),
        ("changes", pa.int64()),
        ("sent", pa.int64()),
        ("frames", pa.large_binary()),
        ("offsets", pa.large_binary()),
        ("lsn", pa.large_binary()),
    ]
)


@dataclass(frozen=True)
class EncodeTask:
    """A kernel that takes numbers of cuts and yields rows of `_BLOBS`, one or several per cut, in order."""

    files: feed.WriteFiles
    cuts: tuple[feed.Cut, ...]
    write: TableWrite
    plan: Published
    form: ValueForm
    send_time: int
    types: registry.TypeRegistry

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        registry.use(self.types)
        with failure.carried(REFUSED):
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self._encoded(number)

    def _encoded(self, number: int) -> Iterator[pa.RecordBatch]:
        """Return the frames of a cut, or one row without frames if its filter cannot be evaluated exactly here."""
        rows = []
        for piece in self.files.pieces(self.cuts[number]):
            changes = decoded(piece, [self.write])
            letters = gate.exact_verdicts(changes, self.plan)
            if letters is None:
                return iter([_row(number, 0, 0, None)])
            places = np.flatnonzero(letters)
            published_changes = changes.take(places, letters[places])
            rendered = Rendered(rendering.frames(published_changes, self.plan, self.form, self.send_time), published_changes.lsn)
            rows.append(_row(number, len(changes), len(places), rendered))
        return iter(rows)


def _row(number: int, changes: int, sent: int, rendered: Rendered | None) -> pa.RecordBatch:
    counts = [pa.array([number], pa.int32()), pa.array([changes], pa.int64()), pa.array([sent], pa.int64())]
    blobs: list[npt.NDArray[Any] | None] = [None] * 3 if rendered is None else [rendered.frames.data, rendered.frames.offsets, rendered.lsn]
    columns = [pa.nulls(1, pa.large_binary()) if blob is None else buffers.single(np.ascontiguousarray(blob)) for blob in blobs]
    return pa.RecordBatch.from_arrays([*counts, *columns], schema=_BLOBS)


def takes(renderer: Renderer, write: TableWrite) -> bool:
    """Return whether tasks encode a write, provided that its filter can be evaluated exactly."""
    return write.changes > renderer.reader.storage.small_batch_rows and not renderer.reader.shared.several(renderer.reader.database)


def encode(renderer: Renderer, plan: Published, write: TableWrite, send_time: int) -> Iterator[Rendered]:
    """Yield the published changes of a write, encoded by tasks, in ascending order of `lsn`."""
    files = feed.WriteFiles.of(renderer.reader.storage.tables, plan.relation, write)
    cuts = tuple(files.cuts())
    if not plan.unfiltered:
        first = next((piece for cut in cuts[:1] for piece in files.pieces(cut)), None)
        if first is None or not gate.is_exact(decoded(first, [write]), plan):
            yield from renderer.large(plan, write, send_time)
            return
    types, spark = registry.known(), renderer.reader.storage.spark
    cores = spark.sparkContext.defaultParallelism
    table_name = f"{plan.relation.schema}.{plan.relation.name}"
    description = f"encode {table_name} {write.lsn}: {write.changes:,} changes"
    for start in range(0, len(cuts), cores * CUTS_PER_TASK):
        job_cuts = cuts[start : start + cores * CUTS_PER_TASK]
        task = EncodeTask(files, job_cuts, write, plan, renderer.form, send_time, types)
        numbers = spark.range(0, len(job_cuts), 1, min(cores, len(job_cuts)))
        for batch in result_spool.encoded(numbers, task, _BLOBS, renderer.reader.storage.exchange, description):
            yield from _received(renderer, plan, task, batch)


def _received(renderer: Renderer, plan: Published, task: EncodeTask, batch: pa.RecordBatch) -> Iterator[Rendered]:
    numbers, changes, sent = (batch.column(name).to_pylist() for name in ("cut", "changes", "sent"))
    blobs = [batch.column(name) for name in ("frames", "offsets", "lsn")]
    for index, number in enumerate(numbers):
        if not blobs[0][index].is_valid:
            for piece in task.files.pieces(task.cuts[number]):
                yield renderer.judged_piece(plan, decoded(piece, [task.write]), task.send_time)
            continue
        renderer.judged.count(plan.publications, changes[index], sent[index])
        data, offsets, lsn = (column[index].as_buffer() for column in blobs)
        if sent[index]:
            # numbers are copied, because a blob may begin at an unaligned address
            frames = Frames(np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int64).copy())
            yield Rendered(frames, np.frombuffer(lsn, np.int64).copy())
