"""The process that Spark forks its Python workers from (`spark.python.daemon.module`): it has imported beforehand what tasks need.

A worker would take more than a second of CPU for its imports, each time it is started, and hold them in memory of its own; one that
is forked has them at once and shares them. Run by the JVM as ``python -m headgate.storage.spark.application.worker_daemon``.

What must hold: no archive is on the path of imports. Spark puts ``pyspark.zip`` and a jar there for workers of other machines, and each
task of a worker forgets what Python knows of the path, whereupon Python reads the whole directory of an archive again: 0.3 s of CPU a task.

A worker gets so many bytes and no more: what a statement makes beyond that is a MemoryError, and 53200 for that statement, not the end of
the node's machine.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import resource
import sys
from pathlib import Path

WORKER_BYTES = 1 << 30
"""Memory of a worker, beside what it shares with this process."""

TASKS = (
    "pandas",
    "pyarrow.dataset",
    "headgate.subscriber.synchronization.initial_copy",
    "headgate.subscriber.apply.apply",
    "headgate.storage.feed",
    "headgate.expression.spark.compiler",
    "pyspark.worker",
)
"""By name, as workers import them: the tasks of the floors above, and pandas, which pyarrow imports at its first array of NumPy's."""
MORE = "HEADGATE_WORKER_MODULES"
"""In the environment: other modules, comma-separated. A node with its tables in an object store has the store's client there."""


def _forget_archives() -> None:
    """Takes archives off the path; what they hold is installed beside this module."""
    sys.path[:] = [place for place in sys.path if not os.path.isfile(place)]  # noqa: PTH113 (an entry may be empty)
    sys.path_importer_cache.clear()


def _limit_memory() -> None:
    """Limits the data of this process, and so of those that are forked from it."""
    status = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if status is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(status[1]) * 1024 + WORKER_BYTES, resource.RLIM_INFINITY))


if __name__ == "__main__":
    _forget_archives()
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others take a gigabyte of addresses at once
    for name in (*TASKS, *filter(None, os.environ.get(MORE, "").split(","))):
        with contextlib.suppress(Exception):  # the task itself will say what is wrong
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a worker's collector does not look at what was imported here, and so leaves its pages shared
    with contextlib.suppress(OSError):  # not Linux
        _limit_memory()
    importlib.import_module("pyspark.daemon").manager()
