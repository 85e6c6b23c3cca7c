"""What a node does when its Java virtual machine dies under it: all of it starts again, by itself.

As PostgreSQL does when one of its processes has crashed: every session and worker ends at once, and the server recovers. The process
executes itself anew, with the same arguments and the same process id: descriptors, locks and threads go, recovery undoes what was not
committed (`storage.engine`), and the workers go on from their origins. Called by `Node.start` for a session that the node started.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.server.node import Node

_log = logging.getLogger("headgate.server")


def watch(node: Node, spark: Any) -> None:
    """Watches the JVM of a Spark session until the node stops; does not return to the old process if it dies."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None:
        threading.Thread(target=_wait, args=(node, process), name="jvm watch", daemon=True).start()


def _wait(node: Node, process: Any) -> None:
    code = process.wait()
    if node.stopping:
        return
    how = f"was terminated by signal {-code}" if code < 0 else f"exited with exit code {code}"
    _log.info("Java virtual machine (PID %d) %s", process.pid, how)
    _log.info("terminating any other active server processes")
    _log.info("all server processes terminated; reinitializing")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)
