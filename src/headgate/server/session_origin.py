"""The replication origin of a session: its writes are logged and published as changes from that origin.

Serves pg_replication_origin_session_setup and the related functions (manual, 9.28 and 50), for clients that apply changes themselves.
At most one session or worker uses an origin at a time. `xact` is the remote position of the next transaction only; its commit advances
the origin's progress.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.lsn import INVALID, Lsn
from headgate.storage.transaction.log import OriginProgress


@dataclass
class SessionOrigin:
    """The origin that a session has set up."""

    name: str
    xact: tuple[Lsn, int | None] | None = None
    """The LSN and the commit time (µs since 2000-01-01) on the remote side."""

    def progress(self) -> OriginProgress:
        """Return the origin progress for the log entry of the committing transaction, and reset `xact`."""
        lsn, moment = self.xact or (INVALID, None)
        self.xact = None
        return OriginProgress(self.name, lsn, moment)


class OriginUsers:
    """The process that uses each replication origin. All methods are thread-safe."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}

    def enter(self, name: str, pid: int) -> None:
        """Record that a process uses the origin."""
        self._pids[name] = pid

    def leave(self, pid: int) -> None:
        self._pids = {name: user for name, user in self._pids.items() if user != pid}

    def user(self, name: str) -> int | None:
        return self._pids.get(name)
