"""The process that Spark forks its Python workers from (`spark.python.daemon.module`): it has imported beforehand what tasks need.

A worker would take more than a second of CPU for its imports, each time it is started, and hold them in memory of its own; one that
is forked has them at once and shares them. Run by the JVM as ``python -m headgate.storage.daemon``, never imported.

What must hold: no archive is on the path of imports. Spark puts ``pyspark.zip`` and a jar there for workers of other machines, and each
task of a worker forgets what Python knows of the path, whereupon Python reads the whole directory of an archive again: 0.3 s of CPU a task.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

TASKS = (
    "pandas",
    "pyarrow.dataset",
    "headgate.subscriber.initialcopy",
    "headgate.subscriber.apply",
    "headgate.storage.feed",
    "headgate.expression.compile",
    "pyspark.worker",
)
"""By name, as workers import them: the tasks of the floors above, and pandas, which pyarrow imports at its first array of NumPy's."""


def _forget_archives() -> None:
    """Takes archives off the path; what they hold is installed beside this module."""
    sys.path[:] = [place for place in sys.path if not os.path.isfile(place)]  # noqa: PTH113 (an entry may be empty)
    sys.path_importer_cache.clear()


if __name__ == "__main__":
    _forget_archives()
    for name in TASKS:
        with contextlib.suppress(Exception):  # the task itself will say what is wrong
            importlib.import_module(name)
    importlib.import_module("pyspark.daemon").manager()
