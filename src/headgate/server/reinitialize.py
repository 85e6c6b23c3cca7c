"""What a node does when its Java virtual machine dies or answers no more, or its catalog is lost to it: all of it starts again, by itself.

As PostgreSQL does when one of its processes has crashed: every session and worker ends at once, and the server recovers. The process
executes itself anew, with the same arguments and the same process id: descriptors, locks and threads go, recovery undoes what was not
committed (`storage.engine`), and the workers go on from their origins. Where its data directory is another's, it ends. Called by
`Node.start` for a session that the node started.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.server.node import Node

_log = logging.getLogger("headgate.server")

LOOK_SECONDS = 5.0
"""How often Java is asked for an answer, and how long each is waited for; how often the data directory is looked at."""
PATIENCE_SECONDS = 60.0
"""How long it may have none: a collection of all its memory takes a second."""
AGAIN = "HEADGATE_REINITIALIZED"
"""In the environment of a node that has started itself again."""
_NO_SOCKET = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What is said where this process can have no socket."""


def watch(node: Node, spark: Any) -> Supervised | None:
    """Watches the JVM of a Spark session until the node stops; does not return to the old process if it dies."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    thread = Supervised("jvm watch", lambda: _wait(node, process))
    thread.start()
    Supervised("jvm probe", lambda: _probe(node, spark.sparkContext._gateway.gateway_parameters)).start()
    return thread


def _probe(node: Node, gateway: Any) -> None:
    """Asks Java again and again whether it takes a new connection: memory that it has not had may have ended the thread that does.

    Sessions that come then would wait for it without an end, and nothing could cancel them.
    """
    answered = time.monotonic()
    while not node.stopping:
        time.sleep(LOOK_SECONDS)
        if answers(gateway):
            answered = time.monotonic()
            node.engine.obstacles.clear("running", "Java virtual machine")
            continue
        silent = time.monotonic() - answered
        node.engine.obstacles.note("running", "Java virtual machine", f"it has not answered for {silent:.0f} s")
        if silent > PATIENCE_SECONDS and not node.stopping:
            give_up(node, f"Java virtual machine has not answered for {PATIENCE_SECONDS:.0f} s")
            return


def watch_directory(node: Node) -> None:
    """Has the node end when its data directory is another's, until it stops.

    Where a directory is removed and a backup put in its place, the old node has the catalog's file without a name, but would write into the
    tables of the new one, by their paths (miscinit.c, RecheckDataDirLockFile).
    """
    Supervised("directory watch", lambda: _keep_directory(node)).start()


def _keep_directory(node: Node) -> None:
    while not node.stopping:
        if not node.has_directory():
            abandon(node, "performing immediate shutdown because data directory lock file is invalid")
        time.sleep(LOOK_SECONDS)


def answers(gateway: Any) -> bool:
    """Whether Java takes a connection and knows it; True where this process cannot ask, which is no fault of Java's."""
    try:
        with socket.create_connection((gateway.address, gateway.port), LOOK_SECONDS) as connection:
            connection.sendall(f"A\n{gateway.auth_token}\n".encode())
            return bool(connection.recv(1))
    except OSError as error:
        return error.errno in _NO_SOCKET


def give_up(node: Node, reason: str) -> None:
    """Has the whole node start again: the virtual machine is ended first, so that nothing of it is still writing when recovery begins."""
    _log.error("%s", reason)
    process = getattr(node.engine.spark.sparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def abandon(node: Node, reason: str) -> None:
    """Ends the node at once, as another has its place: nothing is undone, as what this one has begun may be the other's now."""
    node.stopping = True
    _log.critical("%s", reason)
    process = getattr(node.engine.spark.sparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _wait(node: Node, process: subprocess.Popen[bytes]) -> None:
    code = process.wait()
    if node.stopping:
        return
    how = f"was terminated by signal {-code}" if code < 0 else f"exited with exit code {code}"
    _log.info("Java virtual machine (PID %d) %s", process.pid, how)
    _log.info("terminating any other active server processes")
    _log.info("all server processes terminated; reinitializing")
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[AGAIN] = "on"
    os.execv(sys.executable, sys.orig_argv)
