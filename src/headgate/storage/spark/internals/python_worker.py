"""The process from which Spark forks its Python workers.

`spark.python.daemon.module` names a module that runs in place of `pyspark.daemon`. The setting is internal in Spark, and so is what that
module does: it answers Java's requests for workers on its stdin, stdout and a socket. Both exist since Spark 2.4.
"""

from __future__ import annotations

import importlib

DAEMON_SETTING = "spark.python.daemon.module"
"""The setting that names the module."""
TASKS = "pyspark.worker"
"""The module that a worker runs. The process that forks it imports it, so that the workers share it."""


def serve() -> None:
    """Fork workers for Java until it closes the connection. Runs in the module's process, and imports nothing before."""
    importlib.import_module("pyspark.daemon").manager()
