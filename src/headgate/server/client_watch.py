"""The watch of clients that have gone: it ends the statements that they have left running.

One thread of the node. A session's own thread computes, or waits for Spark, DuckDB or a lock, and reads nothing from its socket meanwhile.
After client_connection_check_interval this thread asks for it whether the client has closed the connection, and terminates the session:
that ends a statement in any phase, as pg_terminate_backend does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.server.monitoring.activity import Activity

LOOK_SECONDS = 0.25
BY_LOST_CLIENT = ("08006", "connection to client lost")


class ClientWatch:
    """See the module."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self.thread = Supervised("client watch", self._run)

    def start(self) -> None:
        """Begin to watch."""
        self.thread.start()

    def stop(self) -> None:
        """End the thread."""
        self.thread.stop(5)

    def _run(self) -> None:
        while not self.thread.stopping.wait(LOOK_SECONDS):
            now = time.monotonic()
            for backend in self._activity.all():
                due = backend.client_check_due
                if due is not None and now >= due and backend.is_client_gone():
                    backend.interrupts.terminate(BY_LOST_CLIENT)
                    if backend.wake is not None:
                        backend.wake()
