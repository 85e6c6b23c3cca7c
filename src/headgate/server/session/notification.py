"""LISTEN, UNLISTEN and NOTIFY (async.c): what sessions of one database tell each other when they commit.

`PendingNotifications` is what a transaction has asked for; a ROLLBACK, also to a savepoint, forgets it. At its commit the session's
`Mailbox` begins or ceases to listen, and `Channels`, the node's, puts the notifications into the mailboxes of those who listen, in the
order of commits. A session tells its client what is in its mailbox when it is in no transaction: at once where it waits for the client
(`wake`). Nothing is kept over a restart: who listens is connected.

What waits for all sessions together has at most `QUEUE` bytes, whoever does not read: then, as with PostgreSQL's full queue of 8 GB, a
transaction that has more to tell fails before it commits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.errors import PostgresError, not_supported
from headgate.sql.parser import ParseNode

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession

MAX_PAYLOAD, MAX_CHANNEL = 8000, 64
"""Bytes that a payload and a channel's name must stay below."""
QUEUE = 64 << 20
"""Bytes that notifications may take which have not been told yet, and those of one transaction."""
_OVERHEAD = 256
"""Bytes that each takes beside its text."""


@dataclass(eq=False)
class Notification:
    """What one session tells."""

    pid: int
    channel: str
    payload: str
    readers: int = 0
    """In how many mailboxes it is."""

    @property
    def size(self) -> int:
        """How much of the queue it takes, of which it is a part once."""
        return _size(self.channel, self.payload)


@dataclass(eq=False)
class Mailbox:
    """What a session listens to, and what it has not told its client yet."""

    database: int | None
    wake: Callable[[], None]
    channels: dict[str, None] = field(default_factory=dict)
    waiting: deque[Notification] = field(default_factory=deque)


def _size(channel: str, payload: str) -> int:
    return len(channel) + len(payload) + _OVERHEAD


def _full() -> PostgresError:
    return PostgresError("54000", "too many notifications in the NOTIFY queue")


Saved = tuple[int, int]


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
            self.size += _size(channel, payload)
            if self.size > QUEUE:
                raise _full()
            self.told[channel, payload] = None

    def saved(self) -> Saved:
        """What there is at a savepoint."""
        return len(self.actions), len(self.told)

    def restore(self, saved: Saved) -> None:
        """Back to the savepoint."""
        del self.actions[saved[0] :]
        self.told = dict.fromkeys(list(self.told)[: saved[1]])
        self.size = sum(_size(*each) for each in self.told)

    def check_prepare(self) -> None:
        """0A000: a prepared transaction has no session."""
        if self:
            raise not_supported("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")


class Channels:
    """Who listens, of a whole node. Any thread may call anything here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boxes: set[Mailbox] = set()
        self._waiting = 0
        """Bytes of what has not been told to all who listen."""

    @property
    def usage(self) -> float:
        """Which part of the queue is taken."""
        return self._waiting / QUEUE

    def admit(self, box: Mailbox, pending: PendingNotifications) -> None:
        """54000 where what a transaction is about to tell has no place."""
        with self._lock:
            heard = any(each.database == box.database for each in self._boxes)
            if pending.told and heard and self._waiting + pending.size > QUEUE:
                raise _full()

    def committed(self, box: Mailbox, pending: PendingNotifications, pid: int) -> None:
        """A transaction has committed: the session listens to what it wanted, and others are told."""
        with self._lock:
            for command, channel in pending.actions:
                _act(box, command, channel)
            self._know(box)
            told = [Notification(pid, channel, payload) for channel, payload in pending.told]
            woken = [each for each in self._boxes if each.database == box.database and _deliver(each, told)]
            self._waiting += sum(each.size for each in told if each.readers)
        for each in woken:
            if each is not box:
                each.wake()

    def next(self, box: Mailbox) -> Notification | None:
        """What the session tells its client next; None if there is nothing."""
        with self._lock:
            if not box.waiting:
                return None
            found = box.waiting.popleft()
            found.readers -= 1
            if not found.readers:
                self._waiting -= found.size
            return found

    def leave(self, box: Mailbox) -> None:
        """The session has ended: what waited for it waits no more."""
        self.forget(box)
        while self.next(box):
            pass

    def forget(self, box: Mailbox) -> None:
        """UNLISTEN * outside of transactions: DISCARD ALL."""
        with self._lock:
            box.channels.clear()
            self._know(box)

    def _know(self, box: Mailbox) -> None:
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


def _deliver(box: Mailbox, told: Sequence[Notification]) -> bool:
    """Whether anything was for this session."""
    wanted = [each for each in told if each.channel in box.channels]
    for each in wanted:
        each.readers += 1
    box.waiting.extend(wanted)
    return bool(wanted)


def listen(session: ClientSession, node: ParseNode, text: str) -> str:
    """LISTEN channel."""
    session.block.touch()
    session.block.pending.actions.append(("LISTEN", node.conditionname))
    return "LISTEN"


def unlisten(session: ClientSession, node: ParseNode, text: str) -> str:
    """UNLISTEN channel, UNLISTEN *."""
    session.block.touch()
    session.block.pending.actions.append(("UNLISTEN", node.conditionname))
    return "UNLISTEN"


def notify(session: ClientSession, node: ParseNode, text: str) -> str:
    """NOTIFY channel [, payload]."""
    session.block.touch()
    session.block.pending.notify(node.conditionname, node.payload)
    return "NOTIFY"
