"""What a node does when its Java virtual machine dies under it, or its catalog is lost to it: all of it starts again, by itself.

As PostgreSQL does when one of its processes has crashed: every session and worker ends at once, and the server recovers. The process
executes itself anew, with the same arguments and the same process id: descriptors, locks and threads go, recovery undoes what was not
committed (`storage.engine`), and the workers go on from their origins. Called by `Node.start` for a session that the node started.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.server.node import Node

_log = logging.getLogger("headgate.server")


def watch(node: Node, spark: Any) -> Supervised | None:
    """Watches the JVM of a Spark session until the node stops; does not return to the old process if it dies."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    thread = Supervised("jvm watch", lambda: _wait(node, process))
    thread.start()
    return thread


def give_up(node: Node, reason: str) -> None:
    """Has the whole node start again: the virtual machine is ended first, so that nothing of it is still writing when recovery begins."""
    _log.error("%s", reason)
    process = getattr(node.engine.spark.sparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


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
