"""Detection of a Java heap that is running out because of memory that Spark does not account for.

Spark accounts for sorts, hash tables and cached rows: it spills them to disk if its share of the heap is used up. It does not account for
the values of one group (array_agg, string_agg) and for single large values. With enough of them, Java collects garbage endlessly, and all
the node's work stops, even the cancellation of the statement. The server checks the heap and cancels a statement before that
(`server.memory`).

Java keeps the objects that Python references: frames with their plans, and their broadcasts, some megabytes for a batch. PySpark's objects
are reference cycles (each references its methods, and they it), so only Python's garbage collector frees them. To Python they are small: it
would collect them after hundreds of batches. So a collection is triggered when there are many (`free_unused`), and before the heap is
judged.
"""

from __future__ import annotations

import atexit
import gc
import time

from pyspark.sql import SparkSession

from headgate.storage.spark.internals import gateway, java_memory, task_status

FULL = 0.5
"""Share of the old generation from which on a collection is worth its cost, to measure the live objects."""
GROWN = 0.1
"""Growth of that share after a collection, from which on another is worth its cost: a collection stops all that Java does."""
UNMANAGED = 0.4
"""Share that may be live without being accounted for by Spark. The rest is for the rows that a cancelled task reads before it ends."""
FILLED = 0.9
"""Share that may be live in total. Spark's own accounts end below it, and beyond it Java does nothing but collect."""
REST = 3.0
"""Minimum time until the next collection, as a multiple of the last one's: a cancelled task makes no progress during one."""
COLLECTIONS = 50
"""Number of attempts to make Java collect, because it may skip a request."""
OWN = 0.2
"""Share that statements may use beyond what stays when none runs: Delta's snapshots of tables belong to no statement."""
NAMED = 200
"""Number of additional Java objects, those of some ten batches or queries, that Python may reference before its collector runs."""
PAUSE = 10.0
"""Minimum time until Python's next collection, as a multiple of the last one's: all of the node's threads stop during one."""
TOLD_SECONDS = 1.5
"""Time in seconds in which Java learns which objects Python has freed: the thread that reports them runs once a second."""


def settle() -> None:
    """Exclude all present objects from Python's garbage collection, because they stay for the life of the process."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # otherwise libraries that count their objects would report them as leaked


class Heap:
    """The heap of a session's Java, used by one thread.

    The share that stays when statements have ended is *kept*: it is Java's own, and no statement is cancelled for it. It is measured when
    nothing runs (`rest`), or as what a cancelled statement has not freed (`keep`). A collection that finds less lowers it.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._old = java_memory.OldGeneration.of(self._context)
        self._collections = 0
        """The number of collections of the old generation at the last check."""
        self._alive = self._least_unmanaged = 0.0
        self._was_short = False
        self._not_before = 0.0
        """The earliest time of the next collection."""
        self._in_use = 0
        """The number of Java objects that Python referenced after its last collection."""
        self._next_look = 0.0
        """The earliest time of Python's next collection."""

    def is_short(self) -> bool:
        """Return whether the heap is short. Takes a millisecond while there is room."""
        if self._old is None:
            return False
        if self._has_collected():  # Java has collected by itself: the live share is known without another collection
            self._alive = self._old.usage_after_collection().share
            if not self._update_shortage(self._alive - self._managed_share()):
                return False
            # Spark may have spilled and freed some of that since: a sort of many rows does so every second
            return self._update_shortage(self._unmanaged())
        if time.monotonic() < self._not_before:
            return self._was_short
        used = self._old.usage().share
        self._alive = min(self._alive, used)
        if not self._was_short and used < max(FULL, self._alive + GROWN):
            return False
        return self._update_shortage(self._unmanaged())

    def free_unused(self) -> None:
        """Free Java objects that Python no longer uses, if they may be many. Takes some milliseconds then, a microsecond otherwise."""
        named, began = gateway.referenced_objects(), time.monotonic()
        if named > self._in_use + NAMED and began >= self._next_look:
            gc.collect()
            ended = time.monotonic()
            self._next_look = ended + PAUSE * (ended - began)
            named = self._in_use = gateway.referenced_objects()
        self._in_use = min(self._in_use, named)

    def _update_shortage(self, unmanaged: float) -> bool:
        self._least_unmanaged = min(self._least_unmanaged, unmanaged)
        self._was_short = unmanaged > max(UNMANAGED, self._least_unmanaged + OWN) or self._alive > FILLED
        return self._was_short

    def _has_collected(self) -> bool:
        """Return whether Java has collected the old generation since the last check."""
        assert self._old is not None
        before, self._collections = self._collections, self._old.collections()
        return self._collections != before

    def rest(self) -> None:
        """Measure the kept share. Call this when nothing runs."""
        if self._old is not None and self._old.usage().share >= FULL:
            self.keep()

    def keep(self) -> None:
        """Count what is live now as kept, not as a statement's."""
        if self._old is not None:
            self._least_unmanaged, self._was_short = self._unmanaged(), False

    def has_leftovers(self) -> bool:
        """Return whether tasks of statements that have ended still run. Their memory is free when they end too.

        Also True for some milliseconds after the start of a job, because the executors count its tasks before the stages do.
        """
        tracker = self._context.statusTracker()
        running = sum(task_status.executor_tasks(self._context))
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return running > sum(stage.numActiveTasks for stage in stages if stage is not None)

    def _unmanaged(self) -> float:
        """Collect, and return the live share that Spark does not account for. 0 if there was no collection, as it is then unknown."""
        assert self._old is not None
        gc.collect()
        until = time.monotonic() + TOLD_SECONDS
        while gateway.has_unreported(self._context) and time.monotonic() < until:
            time.sleep(0.01)
        managed, began = self._managed_share(), time.monotonic()
        if not self._collect():
            return 0.0
        ended = time.monotonic()
        self._not_before = ended + REST * (ended - began)
        self._alive = self._old.usage_after_collection().share
        return self._alive - max(managed, self._managed_share())

    def _collect(self) -> bool:
        """Make Java collect the old generation. It silently skips that while a task is in a critical native section (in Snappy)."""
        for _ in range(COLLECTIONS):
            java_memory.collect(self._context)
            if self._has_collected():
                return True
            time.sleep(0.01)
        return False

    def _managed_share(self) -> float:
        assert self._old is not None
        return java_memory.Usage(java_memory.managed_bytes(self._context), self._old.usage().most).share
