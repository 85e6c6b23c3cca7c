"""A frame whose rows Spark keeps once it has made them, for as long as it is asked for more than once.

Called by statements that write many rows, by `changes` and by the apply worker. What must hold: whoever has Spark keep something lets it
go, however the work on it ends; what is forgotten stays for good, and with it the plan by which it was made.

Rows are kept on disk alone. In memory they are what a task may not spill while it reads them: a part as large as Spark's share of the heap
left none to the task's own sorts and hash tables, and it failed. A million rows take no longer by the disk's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_PART_BITS = 33
"""`monotonically_increasing_id` has the number of the part above, the place in it below."""


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Inside, the frame keeps its rows, once they have been made."""
    frame = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def computed_once(frame: DataFrame) -> Iterator[DataFrame]:
    """As `persisted`, of rows that are others each time that they are made (random(), whichever row a join finds first).

    What Spark keeps for `persisted` it makes again where an executor is lost that held it; here that is an error. Made at once.
    """
    made = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    try:
        yield made
    finally:
        made._jdf.queryExecution().analyzed().rdd().unpersist(False)


def places(kept: DataFrame) -> tuple[Column, int]:
    """The place of each row (bigint, counted from 0, in the frame's order), and how many rows there are.

    Of a frame that is kept, so that its parts stay as they were counted; each part numbers its own rows, where a window over all
    of them would have one task do it.
    """
    found = kept.groupBy(F.spark_partition_id().alias("part")).count().toArrow()
    parts, counts = found["part"].to_numpy(), found["count"].to_numpy()
    rows = np.zeros(int(parts.max(initial=0)) + 1, np.int64)
    rows[parts] = counts
    before = np.cumsum(rows) - rows
    number = F.monotonically_increasing_id()
    offsets = F.split(F.lit(" ".join(map(str, before))), " ").cast("array<bigint>")  # folded to one constant, whatever its length
    offset = F.get(offsets, F.shiftright(number, _PART_BITS).cast("int"))
    return offset + number.bitwiseAND((1 << _PART_BITS) - 1), int(rows.sum())
