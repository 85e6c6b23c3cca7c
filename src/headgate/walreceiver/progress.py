"""The progress of one stream: the LSNs received, applied, and ready to be confirmed to the publisher.

The receiver records received data, the applier data that is durable and visible; both may query it. Invariants: `flushed` never passes the
end of a transaction that is not durable and visible here, and never moves backward. If nothing is outstanding, keepalives advance it. So
an idle stream, or one whose changes are all filtered out, advances the publisher's slot.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace

from headgate.lsn import INVALID, Lsn

POSTGRES_EPOCH = 946_684_800_000_000
WAITING_SECONDS = 0.1


def now() -> int:
    """Return microseconds since 2000-01-01 UTC."""
    return time.time_ns() // 1000 - POSTGRES_EPOCH


@dataclass(frozen=True)
class ReceiverPosition:
    """The values of a row of pg_stat_subscription. Times are microseconds since 2000-01-01, 0 for none."""

    received: Lsn = INVALID
    last_send_time: int = 0
    last_receipt_time: int = 0
    latest_end: Lsn = INVALID
    latest_end_time: int = 0


class StreamProgress:
    """The progress of one stream. All methods are thread-safe."""

    def __init__(self, start: Lsn = INVALID) -> None:
        self._lock = threading.Lock()
        self._flushed = start
        self._received = start
        self._committed = INVALID
        """The end of the last whole transaction that was received."""
        self._idle = INVALID
        """The latest keepalive after which nothing was outstanding when it arrived, or is now."""
        self._position = ReceiverPosition()
        self._waiting: deque[tuple[Lsn, float]] = deque()
        """The ends of transactions that are not applied yet, and when they arrived. Ends within WAITING_SECONDS share an entry."""
        self._inside_since: float | None = None
        """When the first part of an incomplete transaction arrived."""

    def record_data(self, end: Lsn, send_time: int, committed: Lsn | None) -> None:
        """Record data received up to `end`, with the end of the last whole transaction in it (`committed`), if any."""
        with self._lock:
            self._received = max(self._received, end)
            if committed is not None:
                self._committed = max(self._committed, committed)
                moment = time.monotonic()
                if self._waiting and moment - self._waiting[-1][1] < WAITING_SECONDS:
                    self._waiting[-1] = (committed, self._waiting[-1][1])
                else:
                    self._waiting.append((committed, moment))
            self._position = replace(self._position, received=self._received, last_send_time=send_time, last_receipt_time=now())
            self._settle()

    def record_keepalive(self, end: Lsn, send_time: int, *, inside: bool) -> None:
        """Record a keepalive. `inside`: it arrived inside a transaction, so that its position may not be confirmed."""
        with self._lock:
            self._received = max(self._received, end)
            if not inside:
                self._idle = max(self._idle, end)
            latest_end = max(end, self._position.latest_end)
            self._position = ReceiverPosition(self._received, send_time, now(), latest_end, send_time)
            self._settle()

    def record_inside(self, *, inside: bool) -> None:
        """Record whether a part of a transaction has arrived without its end."""
        with self._lock:
            self._inside_since = None if not inside else self._inside_since or time.monotonic()

    def record_dropped(self, end: Lsn) -> None:
        """Record the end of a dropped transaction. Data received before it must have been recorded."""
        with self._lock:
            self._idle = max(self._idle, end)
            self._settle()

    def record_applied(self, end: Lsn) -> None:
        """Record that everything up to the end of a transaction is durable and visible."""
        with self._lock:
            self._flushed = max(self._flushed, end)
            self._settle()

    def _settle(self) -> None:
        if self._flushed >= self._committed and self._idle > self._flushed:
            self._flushed = self._idle
        while self._waiting and self._waiting[0][0] <= self._flushed:
            self._waiting.popleft()

    @property
    def flushed(self) -> Lsn:
        """The LSN that may be confirmed."""
        with self._lock:
            return self._flushed

    @property
    def written(self) -> Lsn:
        """The LSN that has been received."""
        with self._lock:
            return self._received

    @property
    def outstanding(self) -> bool:
        """Whether received whole transactions have not been applied yet."""
        with self._lock:
            return self._flushed < self._committed

    def lag(self) -> tuple[int, float]:
        """Return the lag behind the publisher's last known position: bytes of its log, and seconds since they arrived.

        On a slow connection a transaction counts from its first message on.
        """
        with self._lock:
            size = max(self._received, self._position.latest_end) - self._flushed
            since = self._waiting[0][1] if self._waiting else self._inside_since
            return max(0, int(size)), 0.0 if since is None else time.monotonic() - since

    @property
    def heard(self) -> float | None:
        """When the last message of the publisher arrived, in seconds since 1970, or None."""
        with self._lock:
            moment = self._position.last_receipt_time
        return (moment + POSTGRES_EPOCH) / 1_000_000 if moment else None

    @property
    def position(self) -> ReceiverPosition:
        """The values for pg_stat_subscription."""
        with self._lock:
            return self._position
