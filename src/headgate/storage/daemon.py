"""The process that Spark forks its Python workers from (`spark.python.daemon.module`): it has imported beforehand what tasks need.

A worker would take more than a second of CPU for its imports, each time it is started, and hold them in memory of its own; one that
is forked has them at once and shares them. Run by the JVM as ``python -m headgate.storage.daemon``, never imported.
"""

from __future__ import annotations

import contextlib
import importlib

from pyspark.daemon import manager

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

if __name__ == "__main__":
    for name in TASKS:
        with contextlib.suppress(Exception):  # the task itself will say what is wrong
            importlib.import_module(name)
    manager()  # type: ignore[no-untyped-call]
