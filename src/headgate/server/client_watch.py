"""The watch of disconnected clients: ends the statements that they have left running.

One thread of the node. A session's own thread computes, or waits for Spark, DuckDB or a lock, and does not read its socket at that time.
After client_connection_check_interval this thread checks for it whether the client has closed the connection, and if so terminates the
session. That ends a statement in any phase, as pg_terminate_backend does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.supervision import Periodic

if TYPE_CHECKING:
    from headgate.server.monitoring.activity import Activity

LOOK_SECONDS = 0.25
BY_LOST_CLIENT = ("08006", "connection to client lost")


class ClientWatch(Periodic):
    """The thread that watches for disconnected clients, as the module describes."""

    def __init__(self, activity: Activity) -> None:
        super().__init__("client watch", LOOK_SECONDS, patience=5)
        self._activity = activity

    def look(self) -> None:
        """Terminate the sessions whose clients have disconnected."""
        now = time.monotonic()
        for backend in self._activity.all():
            due = backend.client_check_due
            if due is not None and now >= due and backend.is_client_gone():
                backend.interrupts.terminate(BY_LOST_CLIENT)
                if backend.wake is not None:
                    backend.wake()
