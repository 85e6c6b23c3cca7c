"""The statistics of a node's walsenders: for pg_stat_replication, and for commits that wait for standbys (`standby`)."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.lsn import INVALID, Lsn


class SenderState(enum.StrEnum):
    """The pg_stat_replication.state, set by the sender itself."""

    STARTUP = "startup"
    CATCHUP = "catchup"
    STREAMING = "streaming"
    STOPPING = "stopping"


@dataclass
class SenderStatistics:
    """One walsender. Lags are the seconds from sending a position to the message that it was written, flushed or applied there."""

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
        """Record that everything up to `position` has been sent."""
        self.sent = max(self.sent, position)
        if not self._moments or position > self._moments[-1][0]:
            self._moments.append((position, time.monotonic()))
            del self._moments[:-1000]

    def replied(self, write: Lsn, flush: Lsn, apply: Lsn, reply_time: int) -> None:
        """Record the positions that the client has reported."""
        now = time.monotonic()
        self.write_lag = self._lag(self.write, write, now, self.write_lag)
        self.flush_lag = self._lag(self.flush, flush, now, self.flush_lag)
        self.apply_lag = self._lag(self.apply, apply, now, self.apply_lag)
        self.write, self.flush, self.apply, self.reply_time = write, flush, apply, reply_time
        lowest = min(write, flush, apply)
        self._moments = [entry for entry in self._moments if entry[0] > lowest]

    def _lag(self, before: Lsn, after: Lsn, now: float, last: float | None) -> float | None:
        moments = [moment for position, moment in self._moments if before < position <= after]
        return now - moments[-1] if moments else last


class Senders:
    """The walsenders that are streaming."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[int, SenderStatistics] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a walsender has sent everything, receives a message, or ends. `standby.Standbys` sets it."""

    def enter(self, pid: int) -> SenderStatistics:
        """Register a walsender that begins to stream."""
        with self._lock:
            self._all[pid] = SenderStatistics(pid)
            return self._all[pid]

    def leave(self, pid: int) -> None:
        with self._lock:
            self._all.pop(pid, None)
        self.on_change()

    def all(self) -> list[SenderStatistics]:
        with self._lock:
            return list(self._all.values())
