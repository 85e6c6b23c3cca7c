"""The LISTEN, UNLISTEN and NOTIFY commands of a transaction, until it commits (async.c).

`server.notification` then sends the notifications to the listening sessions. ROLLBACK, also to a savepoint, drops them.
"""

from __future__ import annotations

from headgate.errors import PostgresError, not_supported

MAX_PAYLOAD, MAX_CHANNEL = 8000, 64
"""Limits in bytes: a payload and a channel name must be shorter."""
QUEUE = 64 << 20
"""Maximum size in bytes of the notifications that have not been sent yet, and of those of one transaction."""
_OVERHEAD = 256
"""Bytes that each notification takes in addition to its text."""
Saved = tuple[int, int]


def size(channel: str, payload: str) -> int:
    return len(channel) + len(payload) + _OVERHEAD


def queue_is_full() -> PostgresError:
    """Return the error (54000) for a full queue."""
    return PostgresError("54000", "too many notifications in the NOTIFY queue")


class PendingNotifications:
    """The commands of the open transaction: (command, channel) of LISTEN and UNLISTEN, (channel, payload) of NOTIFY."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, str]] = []
        self.notifications: dict[tuple[str, str], None] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self.actions or self.notifications)

    def notify(self, channel: str, payload: str) -> None:
        """Add a notification. Duplicates are sent once.

        Raise 22023 if the channel is empty or a text is too long, and 54000 if the queue is full.
        """
        if not channel:
            raise PostgresError("22023", "channel name cannot be empty")
        if len(channel.encode()) >= MAX_CHANNEL:
            raise PostgresError("22023", "channel name too long")
        if len(payload.encode()) >= MAX_PAYLOAD:
            raise PostgresError("22023", "payload string too long")
        if (channel, payload) not in self.notifications:
            self.size += size(channel, payload)
            if self.size > QUEUE:
                raise queue_is_full()
            self.notifications[channel, payload] = None

    def saved(self) -> Saved:
        return len(self.actions), len(self.notifications)

    def restore(self, saved: Saved) -> None:
        del self.actions[saved[0] :]
        while len(self.notifications) > saved[1]:
            notification, _ = self.notifications.popitem()
            self.size -= size(*notification)

    def check_prepare(self) -> None:
        """Raise 0A000 if there are commands, because a prepared transaction does not belong to a session."""
        if self:
            raise not_supported("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")
