"""LISTEN, UNLISTEN and NOTIFY (async.c): asynchronous notifications between the sessions of a database.

`PendingNotifications` holds the LISTEN, UNLISTEN and NOTIFY commands of the open transaction. ROLLBACK discards them, and ROLLBACK TO
discards those made since the savepoint. When the transaction commits, `Channels`, of which the node has one, updates the channels of the
session's `Mailbox` and puts the notifications into the mailboxes of all listening sessions, in commit order. A session sends the
notifications in its mailbox to its client when no transaction is open. If the session is idle, `wake` makes it send them at once.
Nothing is persisted: a restart ends all listening sessions.

The undelivered notifications of all sessions together take at most `QUEUE` bytes. If a transaction's notifications do not fit, it fails
before it commits, as it does when PostgreSQL's queue of 8 GB is full.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.commands.pending_notifications import QUEUE, PendingNotifications, queue_is_full, size


@dataclass(eq=False)
class Notification:
    """A notification sent by the session with the process ID `pid`."""

    pid: int
    channel: str
    payload: str
    readers: int = 0
    """The number of mailboxes that hold it."""

    @property
    def size(self) -> int:
        """The bytes that it takes in the queue, once for all mailboxes together."""
        return size(self.channel, self.payload)


@dataclass(eq=False)
class Mailbox:
    """The channels that a session listens on and the notifications that it has not sent to its client yet."""

    database: int | None
    wake: Callable[[], None]
    channels: dict[str, None] = field(default_factory=dict)
    waiting: deque[Notification] = field(default_factory=deque)


class Channels:
    """The listening sessions of a node. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boxes: set[Mailbox] = set()
        self._waiting = 0
        """The bytes of the notifications that are still in a mailbox."""

    @property
    def usage(self) -> float:
        """The fraction of the queue that is in use."""
        return self._waiting / QUEUE

    def admit(self, box: Mailbox, pending: PendingNotifications) -> None:
        """Raise 54000 if a transaction's notifications do not fit into the queue. They need no space if no session listens."""
        with self._lock:
            has_listeners = any(listener.database == box.database for listener in self._boxes)
            if pending.notifications and has_listeners and self._waiting + pending.size > QUEUE:
                raise queue_is_full()

    def committed(self, box: Mailbox, pending: PendingNotifications, pid: int) -> None:
        """Apply a committed transaction's LISTEN and UNLISTEN, deliver its notifications and wake the sessions that received one."""
        with self._lock:
            for command, channel in pending.actions:
                _act(box, command, channel)
            self._update_listener(box)
            notifications = [Notification(pid, channel, payload) for channel, payload in pending.notifications]
            woken = [listener for listener in self._boxes if listener.database == box.database and _deliver(listener, notifications)]
            self._waiting += sum(notification.size for notification in notifications if notification.readers)
        for listener in woken:
            if listener is not box:
                listener.wake()

    def next(self, box: Mailbox) -> Notification | None:
        """Remove and return the next notification for the session's client, or None."""
        with self._lock:
            if not box.waiting:
                return None
            notification = box.waiting.popleft()
            notification.readers -= 1
            if not notification.readers:
                self._waiting -= notification.size
            return notification

    def leave(self, box: Mailbox) -> None:
        """Remove the session's channels and undelivered notifications when the session ends."""
        self.forget(box)
        while self.next(box):
            pass

    def forget(self, box: Mailbox) -> None:
        """Stop listening on all channels, as DISCARD ALL does outside a transaction."""
        with self._lock:
            box.channels.clear()
            self._update_listener(box)

    def _update_listener(self, box: Mailbox) -> None:
        if box.channels:
            self._boxes.add(box)
        else:
            self._boxes.discard(box)


def _act(box: Mailbox, command: str, channel: str) -> None:
    if command == "LISTEN":
        box.channels.setdefault(channel)
    elif channel:
        box.channels.pop(channel, None)
    else:
        box.channels.clear()


def _deliver(box: Mailbox, notifications: Sequence[Notification]) -> bool:
    """Put the notifications of the session's channels into its mailbox. Return whether there were any."""
    matching = [notification for notification in notifications if notification.channel in box.channels]
    for notification in matching:
        notification.readers += 1
    box.waiting.extend(matching)
    return bool(matching)
