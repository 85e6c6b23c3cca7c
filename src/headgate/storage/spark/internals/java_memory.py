"""The memory of the Java process: its heap, the collections of its old generation, and Spark's accounts.

PySpark has no access to any of it. Java's management beans are public in Java, and are reached through the private `SparkContext._jvm`.
Spark's account is its `MemoryManager` (`private[spark]`, since Spark 1.6).
"""

from __future__ import annotations

from dataclasses import dataclass

from py4j.java_gateway import JavaClass, JavaObject
from pyspark import SparkContext

from headgate.storage.spark.internals import gateway


@dataclass(frozen=True)
class Usage:
    """Bytes in use, and the most that there may be (at most 0: no limit)."""

    used: int
    most: int

    @property
    def share(self) -> float:
        """Return the share in use, or 0 without a limit."""
        return self.used / self.most if self.most > 0 else 0.0


def heap(context: SparkContext) -> Usage:
    """Return the usage of the whole heap, garbage included."""
    return _usage(_management(context).getMemoryMXBean().getHeapMemoryUsage())


def managed_bytes(context: SparkContext) -> int:
    """Return the bytes that Spark accounts for: sorts, hash tables, and cached rows. Relies on `SparkEnv.get.memoryManager`."""
    manager = gateway.jvm(context).org.apache.spark.SparkEnv.get().memoryManager()
    return int(manager.executionMemoryUsed()) + int(manager.storageMemoryUsed())


def collect(context: SparkContext) -> None:
    """Request a collection of all garbage. Java silently skips it while a task is in a critical native section (in Snappy)."""
    gateway.jvm(context).java.lang.System.gc()


class OldGeneration:
    """The part of the heap that only a full collection cleans. Found by its name, which contains "Old" or "Tenured"."""

    def __init__(self, pool: JavaObject, collector: JavaObject | None) -> None:
        self._pool, self._collector = pool, collector

    @classmethod
    def of(cls, context: SparkContext) -> OldGeneration | None:
        management = _management(context)
        pools = [pool for pool in management.getMemoryPoolMXBeans() if "Old" in pool.getName() or "Tenured" in pool.getName()]
        if not pools:
            return None
        name = pools[0].getName()
        collectors = [bean for bean in management.getGarbageCollectorMXBeans() if name in list(bean.getMemoryPoolNames())]
        return cls(pools[0], collectors[-1] if collectors else None)  # of two for the pool, the later collects nothing else

    def usage(self) -> Usage:
        """Return the usage, garbage included."""
        return _usage(self._pool.getUsage())

    def usage_after_collection(self) -> Usage:
        """Return the usage after the last collection: the live objects of then."""
        return _usage(self._pool.getCollectionUsage())

    def collections(self) -> int:
        """Return the number of collections so far. Always 0 if Java does not count them."""
        return 0 if self._collector is None else int(self._collector.getCollectionCount())


def _management(context: SparkContext) -> JavaClass:
    return gateway.jvm(context).java.lang.management.ManagementFactory


def _usage(bean: JavaObject) -> Usage:
    return Usage(int(bean.getUsed()), int(bean.getMax()))
