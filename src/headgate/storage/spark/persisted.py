"""Frames whose rows Spark persists once they are computed, for work that reads them more than once.

Called by statements that write many rows, by `changes` and by the apply worker. Invariant: every persisted frame is unpersisted,
however the work on it ends. Otherwise its rows stay until the session ends, together with the plan that computed them.

Rows are persisted on disk only. In memory, a task cannot spill them while it reads them: a partition as large as Spark's share of the heap
left no memory for the task's own sorts and hash tables, and it failed. For a million rows, the disk with its cache is as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.storage.spark.internals import query_plan

_PART_BITS = 33
"""`monotonically_increasing_id` has the partition number above this bit, and the row's position in it below."""


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist the frame's rows within the context, once they have been computed."""
    frame = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def computed_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist rows that differ each time they are computed (random(), the first row that a join finds). Computes them at once.

    If an executor with rows of `persisted` is lost, Spark computes them again; here that is an error.
    """
    checkpointed = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    try:
        yield checkpointed
    finally:
        query_plan.unpersist_checkpoint(checkpointed)


def places(frame: DataFrame) -> tuple[Column, int]:
    """Return the position of each row (bigint, counted from 0, in the frame's order), and the number of rows.

    The frame must be persisted, so that its partitions stay as counted. Each partition numbers its own rows; a window over all rows would
    run in one task.
    """
    counts_by_partition = frame.groupBy(F.spark_partition_id().alias("part")).count().toArrow()
    parts, counts = counts_by_partition["part"].to_numpy(), counts_by_partition["count"].to_numpy()
    rows = np.zeros(int(parts.max(initial=0)) + 1, np.int64)
    rows[parts] = counts
    before = np.cumsum(rows) - rows
    number = F.monotonically_increasing_id()
    offsets = F.split(F.lit(" ".join(map(str, before))), " ").cast("array<bigint>")  # folded to one constant of any length
    offset = F.get(offsets, F.shiftright(number, _PART_BITS).cast("int"))
    return offset + number.bitwiseAND((1 << _PART_BITS) - 1), int(rows.sum())
