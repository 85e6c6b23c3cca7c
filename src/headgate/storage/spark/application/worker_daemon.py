"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), with all modules imported that tasks need.

Otherwise each new worker would take more than a second of CPU for its imports, and hold them in its own memory. A forked worker has them at
once and shares them. Run by the JVM as ``python -m headgate.storage.spark.application.worker_daemon``.

Invariant: there is no archive on the import path. Spark adds ``pyspark.zip`` and a jar for workers on other machines. Each task of a
worker clears Python's import caches, after which Python reads the whole directory of each archive again: 0.3 s of CPU per task. So nothing
that this module imports at its top may import pyspark, which would come from the archive.

A worker has a memory limit. If a statement exceeds it, it gets a MemoryError, and 53200, instead of exhausting the node's machine.
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

from headgate.storage.spark.internals import python_worker

NICE = 5
"""The difference between the priorities of a task and of the node. The parser's processes have the same."""
WORKER_BYTES = 1 << 30
"""Memory limit of a worker in bytes, in addition to what it shares with this process."""

TASKS = (
    "pandas",
    "pyarrow.dataset",
    "headgate.subscriber.synchronization.initial_copy",
    "headgate.subscriber.apply.apply",
    "headgate.storage.feed",
    "headgate.expression.spark.compiler",
    python_worker.TASKS,
)
"""Modules that workers import: the tasks of the layers above, and pandas, which pyarrow imports at its first NumPy array."""
MORE = "HEADGATE_WORKER_MODULES"
"""Environment variable with further modules, comma-separated. If the tables are in an object store, it names the store's client."""


def _forget_archives() -> None:
    """Remove archives from the import path. Their content is installed next to this module."""
    sys.path[:] = [place for place in sys.path if not os.path.isfile(place)]  # noqa: PTH113 (an entry may be empty)
    sys.path_importer_cache.clear()


def _limit_memory() -> None:
    """Limit the data memory of this process, and so of the workers forked from it."""
    status = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if status is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(status[1]) * 1024 + WORKER_BYTES, resource.RLIM_INFINITY))


if __name__ == "__main__":
    _forget_archives()
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the other pools reserve a gigabyte of address space at once
    for name in (*TASKS, *filter(None, os.environ.get(MORE, "").split(","))):
        with contextlib.suppress(Exception):  # the task itself will report the error
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a worker's collector skips these objects, so that their pages stay shared
    with contextlib.suppress(OSError):  # not Linux
        _limit_memory()
    with contextlib.suppress(OSError):  # the one that started it has the priority already, or a lower one
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()) + NICE)
    python_worker.serve()
