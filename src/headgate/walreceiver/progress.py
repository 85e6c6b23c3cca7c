"""How far one stream has come: received, applied, and what may be confirmed to the publisher.

The receiver notes what arrives, the applier what is durable and visible; either asks. What must hold: `flushed` never passes
the end of a transaction that is not durable and visible here, and never goes back. When nothing is outstanding, keepalives move it:
so an idle stream, or one whose changes are all filtered out, advances the publisher's slot.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from headgate.lsn import INVALID, Lsn

POSTGRES_EPOCH = 946_684_800_000_000


def now() -> int:
    """Microseconds since 2000-01-01 UTC."""
    return time.time_ns() // 1000 - POSTGRES_EPOCH


@dataclass(frozen=True)
class ReceiverPosition:
    """A row's worth of pg_stat_subscription; times in microseconds since 2000-01-01, 0 for none."""

    received: Lsn = INVALID
    last_send_time: int = 0
    last_receipt_time: int = 0
    latest_end: Lsn = INVALID
    latest_end_time: int = 0


class StreamProgress:
    """See the module; may be used from any thread."""

    def __init__(self, start: Lsn = INVALID) -> None:
        self._lock = threading.Lock()
        self._flushed = start
        self._received = start
        self._committed = INVALID
        """End of the last whole transaction that was received."""
        self._idle = INVALID
        """The newest keepalive behind which nothing was outstanding when it came, or is now."""
        self._position = ReceiverPosition()
        self._waiting: deque[tuple[Lsn, float]] = deque()
        """Ends of transactions that are not applied, and when they came; near ones are one entry."""
        self._inside_since: float | None = None
        """When the transaction began to come of which the end has not come."""

    def received(self, end: Lsn, send_time: int, *, committed: Lsn | None = None, keepalive: bool = False, inside: bool = False) -> None:
        """Notes what has arrived up to `end`: the end of the last whole transaction, if there was one, or a keepalive."""
        with self._lock:
            self._received = max(self._received, end)
            if committed is not None:
                self._committed = max(self._committed, committed)
                moment = time.monotonic()
                if self._waiting and moment - self._waiting[-1][1] < 0.1:
                    self._waiting[-1] = (committed, self._waiting[-1][1])
                else:
                    self._waiting.append((committed, moment))
            if keepalive and not inside:
                self._idle = max(self._idle, end)
            received_at = now()
            last = self._position
            latest = (end, send_time) if keepalive else (last.latest_end, last.latest_end_time)
            self._position = ReceiverPosition(self._received, send_time, received_at, Lsn(max(latest[0], last.latest_end)), latest[1])
            self._settle()

    def note_inside(self, *, inside: bool) -> None:
        """Note whether a part of a transaction has come without its end."""
        with self._lock:
            self._inside_since = None if not inside else self._inside_since or time.monotonic()

    def passed(self, end: Lsn) -> None:
        """Notes the end of a transaction of which nothing is wanted; what was received before it has been noted."""
        with self._lock:
            self._idle = max(self._idle, end)
            self._settle()

    def applied(self, end: Lsn) -> None:
        """Notes that everything up to the end of a transaction is durable and visible."""
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
        """What may be confirmed."""
        with self._lock:
            return self._flushed

    @property
    def written(self) -> Lsn:
        """What has been received."""
        with self._lock:
            return self._received

    @property
    def outstanding(self) -> bool:
        """Whether whole transactions have been received that are not applied."""
        with self._lock:
            return self._flushed < self._committed

    def lag(self) -> tuple[int, float]:
        """How far what is applied is behind what the publisher was heard to have: bytes of its log, and seconds since they came.

        On a slow line a transaction counts from its first message on.
        """
        with self._lock:
            size = max(self._received, self._position.latest_end) - self._flushed
            since = self._waiting[0][1] if self._waiting else self._inside_since
            return max(0, int(size)), 0.0 if since is None else time.monotonic() - since

    @property
    def heard(self) -> float | None:
        """When the publisher said something last, in seconds since 1970."""
        with self._lock:
            moment = self._position.last_receipt_time
        return (moment + POSTGRES_EPOCH) / 1_000_000 if moment else None

    @property
    def position(self) -> ReceiverPosition:
        """For pg_stat_subscription."""
        with self._lock:
            return self._position
