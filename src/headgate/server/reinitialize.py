"""Restart the whole node if its Java virtual machine dies or stops responding, or if its catalog is lost.

PostgreSQL does the same when one of its processes crashes: every session and worker ends at once, and the server recovers. The process
executes itself again with the same arguments and the same process ID. Descriptors, locks and threads vanish, recovery undoes what was
not committed (`storage.engine`), and the workers resume from their origins. If another node owns its data directory, the node ends
instead. Called by `Node.start` for a Spark session that the node started.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from headgate.storage.spark.internals import gateway
from headgate.storage.spark.internals.gateway import Address
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.server")

LOOK_SECONDS = 5.0
"""The interval between two probes of the JVM and of the data directory, and the timeout of a probe."""
PATIENCE_SECONDS = 60.0
"""The time for which the JVM may not respond: a full garbage collection takes a second."""
AGAIN = "HEADGATE_REINITIALIZED"
"""The environment variable that is set in a node that has restarted itself."""
_NO_SOCKET = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""The errors of a process that cannot open a socket."""


def watch(engine: Engine, stopping: threading.Event) -> Supervised | None:
    """Watch the JVM of the node's Spark session until the node stops. If the JVM dies, the process executes itself again."""
    context = engine.spark.sparkContext
    process = gateway.process(context)
    if process is None:
        return None
    thread = Supervised("jvm watch", lambda: _wait(process, stopping))
    thread.start()
    Supervised("jvm probe", lambda: _probe(engine, gateway.address(context), stopping)).start()
    return thread


def _probe(engine: Engine, address: Address, stopping: threading.Event) -> None:
    """Check every LOOK_SECONDS whether the JVM accepts a new connection: its accepting thread may have died for lack of memory.

    Sessions would then wait for a connection forever, and nothing could cancel them.
    """
    answered = time.monotonic()
    while not stopping.wait(LOOK_SECONDS):
        if answers(address):
            answered = time.monotonic()
            engine.obstacles.clear("running", "Java virtual machine")
            continue
        silent = time.monotonic() - answered
        engine.obstacles.note("running", "Java virtual machine", f"it has not answered for {silent:.0f} s")
        if silent > PATIENCE_SECONDS and not stopping.is_set():
            restart_node(engine, f"Java virtual machine has not answered for {PATIENCE_SECONDS:.0f} s")
            return


def watch_directory(engine: Engine, stopping: threading.Event, has_directory: Callable[[], bool]) -> None:
    """End the node if its data directory belongs to another node, until the node stops.

    If a directory is removed and replaced by a backup, the old node still has the deleted file of its catalog open. But it would write into
    the tables of the new directory, because it finds them by path (miscinit.c, RecheckDataDirLockFile).
    """
    Supervised("directory watch", lambda: _keep_directory(engine, stopping, has_directory)).start()


def _keep_directory(engine: Engine, stopping: threading.Event, has_directory: Callable[[], bool]) -> None:
    while not stopping.is_set():
        if not has_directory():
            abandon(engine, stopping, "performing immediate shutdown because data directory lock file is invalid")
        stopping.wait(LOOK_SECONDS)


def answers(address: Address) -> bool:
    """Return whether the JVM accepts a connection and authenticates it. True if this process cannot open a socket: the JVM may be well."""
    try:
        with socket.create_connection((address.host, address.port), LOOK_SECONDS) as connection:
            connection.sendall(f"A\n{address.auth_token}\n".encode())
            return bool(connection.recv(1))
    except OSError as error:
        return error.errno in _NO_SOCKET


def restart_node(engine: Engine, reason: str) -> None:
    """Restart the whole node. The JVM is killed first, so that it writes nothing after recovery has begun."""
    _log.error("%s", reason)
    process = gateway.process(engine.spark.sparkContext)
    if process is not None:
        process.kill()


def abandon(engine: Engine, stopping: threading.Event, reason: str) -> None:
    """End the node at once because another one has replaced it. Undo nothing: transactions begun here may belong to the other node now."""
    stopping.set()
    _log.critical("%s", reason)
    process = gateway.process(engine.spark.sparkContext)
    if process is not None:
        process.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _wait(process: subprocess.Popen[bytes], stopping: threading.Event) -> None:
    code = process.wait()
    if stopping.is_set():
        return
    outcome = f"was terminated by signal {-code}" if code < 0 else f"exited with exit code {code}"
    _log.info("Java virtual machine (PID %d) %s", process.pid, outcome)
    _log.info("terminating any other active server processes")
    _log.info("all server processes terminated; reinitializing")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, sys.orig_argv, {**os.environ, AGAIN: "on"})
