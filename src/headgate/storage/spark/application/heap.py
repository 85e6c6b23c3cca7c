"""Whether Java's heap is running short because of what Spark does not account for.

Sorts, hash tables and cached rows are Spark's to measure: it writes them to disk where its share of the heap is used up. The values of one
group (array_agg, string_agg) and single large values are not: with enough of them Java collects garbage without an end, and whatever the
node does stands still, the end of the statement too. Asked by the server, which ends a statement before that (`server.memory`).

Java holds what Python names: frames with their plans, and what those have broadcast, some megabytes of a batch. PySpark's objects are
cycles (each knows its methods, and they it), so that only Python's collector lets them go, and to Python they are small: it would look
for them after hundreds of batches. So it is told to when there are many (`let_go`), and before Java's heap is judged.
"""

from __future__ import annotations

import atexit
import gc
import time
from typing import Any

from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import SparkSession

FULL = 0.5
"""Share of the old generation from which on it is worth a collection to know what is alive."""
GROWN = 0.1
"""Share by which it grows after a collection that found room, before it is worth another: a collection stops all that Java does."""
UNMANAGED = 0.4
"""Share that may be alive beside what Spark accounts for; the rest is for the rows that a task still takes before it sees that it ends."""
FILLED = 0.9
"""Share that may be alive at all: Spark's own accounts end below it, and beyond it Java collects and does nothing else."""
REST = 3.0
"""Times as long as a collection took, that Java works before the next: what is told to end gets nowhere while it collects."""
COLLECTIONS = 50
"""Times that Java is asked for a collection which it leaves out."""
OWN = 0.2
"""Share that statements may take beyond what stays when none computes: the snapshots of tables that Delta holds are no statement's."""
NAMED = 200
"""Objects of Java, of some ten batches or queries, that Python may come to name beside those in use, before its collector looks."""
PAUSE = 10.0
"""Times as long as Python's collector took, that it is not told to look again: all of the node's threads stand still meanwhile."""
TOLD_SECONDS = 1.5
"""How long Java may take to hear what Python has let go: the thread that tells it looks once a second."""


def settle() -> None:
    """What there is stays for the life of the process: nine tenths of all objects, over which Python's collector passes from now on."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # or libraries that count what they have made would find it left behind


def usage(session: SparkSession) -> tuple[int, int]:
    """(used, largest) bytes of the heap of a session's Java."""
    jvm: Any = session._jvm
    found = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    return int(found.getUsed()), int(found.getMax())


class Heap:
    """The heap of a session's Java; for one thread.

    What stays when statements have ended is *kept*: it is Java's own, and no statement is ended for it. It is measured when nothing
    computes (`rest`), or told by what a statement that was ended has not given back (`keep`); a collection that finds less lowers it.
    """

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._jvm, self._context = jvm, session.sparkContext
        pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        old = [pool for pool in pools if "Old" in pool.getName() or "Tenured" in pool.getName()]
        self._old = old[0] if old else None
        collectors = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        name = self._old.getName() if self._old else ""
        whole = [each for each in collectors if name in list(each.getMemoryPoolNames())]
        self._collector = whole[-1] if whole else None  # of two that look at the pool the later one does nothing else
        self._collections = 0
        """How many collections of the old generation the last look knew of."""
        self._alive = self._kept = 0.0
        self._was_short = False
        self._not_before = 0.0
        """When the next collection may be."""
        self._in_use = 0
        """Objects of Java that Python named when its collector had looked."""
        self._next_look = 0.0
        """When Python's collector may be told to look again."""

    def is_short(self) -> bool:
        """Whether it is; takes a millisecond while there is room."""
        if self._old is None:
            return False
        if self._has_collected():  # of its own accord: what is alive is known without another collection
            self._alive = self._share(self._old.getCollectionUsage())
            if not self._judged(self._alive - self._managed()):
                return False
            # or Spark has written to disk since, and given back, what was alive then: a sort of many rows does so every second
            return self._judged(self._unmanaged())
        if time.monotonic() < self._not_before:
            return self._was_short
        used = self._share(self._old.getUsage())
        self._alive = min(self._alive, used)
        if not self._was_short and used < max(FULL, self._alive + GROWN):
            return False
        return self._judged(self._unmanaged())

    def let_go(self) -> None:
        """Have Java forget what Python uses no more, if that may be much; takes a microsecond if not, else some milliseconds."""
        named, began = len(ThreadSafeFinalizer.finalizers), time.monotonic()
        if named > self._in_use + NAMED and began >= self._next_look:
            gc.collect()
            ended = time.monotonic()
            self._next_look = ended + PAUSE * (ended - began)
            named = self._in_use = len(ThreadSafeFinalizer.finalizers)
        self._in_use = min(self._in_use, named)

    def _judged(self, unmanaged: float) -> bool:
        self._kept = min(self._kept, unmanaged)
        self._was_short = unmanaged > max(UNMANAGED, self._kept + OWN) or self._alive > FILLED
        return self._was_short

    def _has_collected(self) -> bool:
        """Whether Java has collected the old generation since the last look."""
        if self._collector is None:
            return False
        before, self._collections = self._collections, int(self._collector.getCollectionCount())
        return self._collections != before

    def rest(self) -> None:
        """Nothing computes: what is alive now stays."""
        if self._old is not None and self._share(self._old.getUsage()) >= FULL:
            self.keep()

    def keep(self) -> None:
        """What is alive now is no statement's."""
        if self._old is not None:
            self._kept, self._was_short = self._unmanaged(), False

    def has_leftovers(self) -> bool:
        """Whether tasks run on although the statements that they computed for have ended: what they hold is free when they end too.

        True for some milliseconds behind the beginning of a job, too: of its tasks Spark's scheduler knows first.
        """
        tracker = self._context.statusTracker()
        executors: Any = self._context._jsc.sc().statusTracker().getExecutorInfos()
        running = sum(int(each.numRunningTasks()) for each in executors)
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return running > sum(stage.numActiveTasks for stage in stages if stage is not None)

    def _unmanaged(self) -> float:
        """The share that is alive after a collection, beside what Spark accounts for; none is known where there was no collection."""
        assert self._old is not None
        gc.collect()
        gateway: Any = self._context._gateway
        until = time.monotonic() + TOLD_SECONDS
        while gateway._gateway_client.finalizer_deque and time.monotonic() < until:
            time.sleep(0.01)
        managed, began = self._managed(), time.monotonic()
        if not self._collected():
            return 0.0
        ended = time.monotonic()
        self._not_before = ended + REST * (ended - began)
        self._alive = self._share(self._old.getCollectionUsage())
        return self._alive - max(managed, self._managed())

    def _collected(self) -> bool:
        """Has Java collect the old generation. It leaves that out, and says nothing, while a task is where nothing may move (in Snappy)."""
        for _ in range(COLLECTIONS):
            self._jvm.java.lang.System.gc()
            if self._has_collected():
                return True
            time.sleep(0.01)
        return False

    def _managed(self) -> float:
        """The share that Spark accounts for."""
        assert self._old is not None
        manager = self._jvm.org.apache.spark.SparkEnv.get().memoryManager()
        most = int(self._old.getUsage().getMax())
        return (int(manager.executionMemoryUsed()) + int(manager.storageMemoryUsed())) / most if most > 0 else 0.0

    @staticmethod
    def _share(usage: Any) -> float:
        most = int(usage.getMax())
        return int(usage.getUsed()) / most if most > 0 else 0.0
