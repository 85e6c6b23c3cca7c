"""The priority of Spark's tasks on the node's own machine: lower than that of everything that a client waits for.

One thread of the node looks at the threads of the JVM every `LOOK_SECONDS` and lowers those that run tasks. Java cannot do it: without
being root its threads all have one priority. The Python workers of tasks lower themselves (`worker_daemon`).

Tasks keep all cores busy for as long as there is work, for example for a result of 100,000,000 rows that the client does not read. An
INSERT needs the processor some twenty times, and waited each time. With a lower priority, tasks use the processor time that sessions leave.
Beside eight hostile sessions on two cores, the longest wait of an ordinary client was 0.61 and 0.64 s with it, and 1.00 s without
(`bench --only hostile --scale 0.3`).

Invariant: only threads of executors are lowered. Those that plan queries and schedule tasks have the node's own priority.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.storage.spark.application.worker_daemon import NICE
from headgate.storage.spark.internals import gateway
from headgate.supervision import Periodic

LOOK_SECONDS = 1.0
_TASK_THREAD = "Executor task l"
"""How the names of the executor's threads begin, "Executor task launch worker". Linux keeps the first 15 characters of a name."""


class TaskPriority(Periodic):
    """The thread that lowers the priority of tasks. It does nothing where there is no /proc, or where tasks run in other processes."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__("task priority", LOOK_SECONDS, patience=5)
        java = gateway.process(spark.sparkContext)
        self._threads = Path(f"/proc/{'none' if java is None else java.pid}/task")
        self._seen: frozenset[str] = frozenset()

    def look(self) -> None:
        """Lower the priority of the task threads that have begun since the last call."""
        with contextlib.suppress(OSError):  # the JVM has ended, or this is not Linux
            threads = frozenset(os.listdir(self._threads))  # noqa: PTH208 (names are enough)
            for thread in threads - self._seen:
                self._lower(thread)
            self._seen = threads

    def _lower(self, thread: str) -> None:
        with contextlib.suppress(OSError):  # the thread has ended
            name = (self._threads / thread / "comm").read_text(encoding="utf-8", errors="replace")
            if name.startswith(_TASK_THREAD):
                os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, 0) + NICE)
