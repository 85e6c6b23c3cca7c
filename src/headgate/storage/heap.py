"""Whether Java's heap is running short because of what Spark does not account for.

Sorts, hash tables and cached rows are Spark's to measure: it writes them to disk where its share of the heap is used up. The values of one
group (array_agg, string_agg) and single large values are not: with enough of them Java collects garbage without an end, and whatever the
node does stands still, the end of the statement too. Asked by the server, which ends a statement before that (`server.memory`).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

FULL = 0.5
"""Share of the old generation from which on it is worth a collection to know what is alive."""
UNMANAGED = 0.4
"""Share that may be alive beside what Spark accounts for; the rest is for the rows that a task still takes before it sees that it ends."""


class Heap:
    """The heap of a session's Java; for one thread."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        old = [pool for pool in pools if "Old" in pool.getName() or "Tenured" in pool.getName()]
        self._old = old[0] if old else None

    def is_short(self) -> bool:
        """Whether it is; takes a millisecond while there is room."""
        if self._old is None or self._share(0) < FULL:
            return False
        self._jvm.java.lang.System.gc()
        manager = self._jvm.org.apache.spark.SparkEnv.get().memoryManager()
        return self._share(int(manager.executionMemoryUsed()) + int(manager.storageMemoryUsed())) > UNMANAGED

    def _share(self, without: int) -> float:
        assert self._old is not None
        usage = self._old.getUsage()
        most = int(usage.getMax())
        return (int(usage.getUsed()) - without) / most if most > 0 else 0.0
