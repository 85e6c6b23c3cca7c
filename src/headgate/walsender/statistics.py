"""What pg_stat_replication tells of the walsenders of a node."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.lsn import INVALID, Lsn


class SenderState(enum.StrEnum):
    """pg_stat_replication.state: set by the sender itself."""

    STARTUP = "startup"
    CATCHUP = "catchup"
    STREAMING = "streaming"
    STOPPING = "stopping"


@dataclass
class SenderStatistics:
    """One walsender. Lags are seconds between sending a position and hearing that it was written, flushed, applied there."""

    pid: int
    state: SenderState = SenderState.STARTUP
    sent: Lsn = INVALID
    write: Lsn = INVALID
    flush: Lsn = INVALID
    apply: Lsn = INVALID
    write_lag: float | None = None
    flush_lag: float | None = None
    apply_lag: float | None = None
    reply_time: int | None = None
    _moments: list[tuple[Lsn, float]] = field(default_factory=list, repr=False)

    def passed(self, position: Lsn) -> None:
        """The sender has sent everything up to `position`."""
        self.sent = max(self.sent, position)
        if not self._moments or position > self._moments[-1][0]:
            self._moments.append((position, time.monotonic()))
            del self._moments[:-1000]

    def replied(self, write: Lsn, flush: Lsn, apply: Lsn, reply_time: int) -> None:
        """The client has said where it is."""
        now = time.monotonic()
        self.write_lag = self._lag(self.write, write, now, self.write_lag)
        self.flush_lag = self._lag(self.flush, flush, now, self.flush_lag)
        self.apply_lag = self._lag(self.apply, apply, now, self.apply_lag)
        self.write, self.flush, self.apply, self.reply_time = write, flush, apply, reply_time
        lowest = min(write, flush, apply)
        self._moments = [one for one in self._moments if one[0] > lowest]

    def _lag(self, before: Lsn, after: Lsn, now: float, last: float | None) -> float | None:
        found = [moment for position, moment in self._moments if before < position <= after]
        return now - found[-1] if found else last


class Senders:
    """The walsenders that stream now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[int, SenderStatistics] = {}
        self.heard: Callable[[], None] = lambda: None
        """Called when a walsender comes, hears from its client, or goes."""

    def enter(self, pid: int) -> SenderStatistics:
        """A walsender begins to stream."""
        with self._lock:
            self._all[pid] = SenderStatistics(pid)
            return self._all[pid]

    def leave(self, pid: int) -> None:
        """A walsender has ended."""
        with self._lock:
            self._all.pop(pid, None)
        self.heard()

    def all(self) -> list[SenderStatistics]:
        """Those that stream now."""
        with self._lock:
            return list(self._all.values())
