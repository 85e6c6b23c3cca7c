"""What a transaction has asked for by LISTEN, UNLISTEN and NOTIFY, until it commits (async.c).

`server.session.notification` tells it to the sessions that listen. A ROLLBACK, also to a savepoint, forgets it.
"""

from __future__ import annotations

from headgate.errors import PostgresError, not_supported

MAX_PAYLOAD, MAX_CHANNEL = 8000, 64
"""Bytes that a payload and a channel's name must stay below."""
QUEUE = 64 << 20
"""Bytes that notifications may take which have not been told yet, and those of one transaction."""
_OVERHEAD = 256
"""Bytes that each takes beside its text."""
Saved = tuple[int, int]


def size(channel: str, payload: str) -> int:
    """Return how many bytes a notification takes."""
    return len(channel) + len(payload) + _OVERHEAD


def queue_is_full() -> PostgresError:
    """Return the error of a notification that has no place."""
    return PostgresError("54000", "too many notifications in the NOTIFY queue")


class PendingNotifications:
    """What the open transaction has asked for: (command, channel) of LISTEN and UNLISTEN, (channel, payload) of NOTIFY."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, str]] = []
        self.told: dict[tuple[str, str], None] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self.actions or self.told)

    def notify(self, channel: str, payload: str) -> None:
        """NOTIFY; what has been asked for already is told once. 22023 for what is too long."""
        if not channel:
            raise PostgresError("22023", "channel name cannot be empty")
        if len(channel.encode()) >= MAX_CHANNEL:
            raise PostgresError("22023", "channel name too long")
        if len(payload.encode()) >= MAX_PAYLOAD:
            raise PostgresError("22023", "payload string too long")
        if (channel, payload) not in self.told:
            self.size += size(channel, payload)
            if self.size > QUEUE:
                raise queue_is_full()
            self.told[channel, payload] = None

    def saved(self) -> Saved:
        """What there is at a savepoint."""
        return len(self.actions), len(self.told)

    def restore(self, saved: Saved) -> None:
        """Back to the savepoint."""
        del self.actions[saved[0] :]
        self.told = dict.fromkeys(list(self.told)[: saved[1]])
        self.size = sum(size(*each) for each in self.told)

    def check_prepare(self) -> None:
        """0A000: a prepared transaction has no session."""
        if self:
            raise not_supported("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")
