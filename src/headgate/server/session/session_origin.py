"""The replication origin of a session: what it writes is logged, and published on, as if it had come from there.

pg_replication_origin_session_setup and its like (manual, 9.28 and 50): a client that applies changes by itself. At most one session, or
worker, uses an origin at a time. `xact` is the remote position of the next transaction alone, which moves the origin's progress.
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
    """Position and commit time (µs since 2000) at the remote side."""

    def progress(self) -> OriginProgress:
        """What the log entry of the transaction that commits now says; its position is used up."""
        lsn, moment = self.xact or (INVALID, None)
        self.xact = None
        return OriginProgress(self.name, lsn, moment)


class OriginUsers:
    """Which process uses which origin; any thread may call anything."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}

    def enter(self, name: str, pid: int) -> None:
        """A process uses the origin from now on."""
        self._pids[name] = pid

    def leave(self, pid: int) -> None:
        """A process uses none any more."""
        self._pids = {name: user for name, user in self._pids.items() if user != pid}

    def user(self, name: str) -> int | None:
        """The process that uses an origin."""
        return self._pids.get(name)
