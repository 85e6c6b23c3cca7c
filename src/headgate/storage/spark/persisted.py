"""A frame whose rows Spark keeps once it has made them, for as long as it is asked for more than once.

Called by statements that write many rows, by `changes` and by the apply worker. What must hold: whoever has Spark keep something lets it
go, however the work on it ends; what is forgotten stays in Spark's memory for good, and with it the plan by which it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Inside, the frame keeps its rows: in memory, and on disk where that has no room."""
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
