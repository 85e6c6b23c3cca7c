"""LISTEN, UNLISTEN and NOTIFY (async.c): what sessions of one database tell each other when they commit.

`PendingNotifications` is what a transaction has asked for; a ROLLBACK, also to a savepoint, forgets it. At its commit the session's
`Mailbox` begins or ceases to listen, and `Channels`, the node's, puts the notifications into the mailboxes of those who listen, in the
order of commits. A session tells its client what is in its mailbox when it is in no transaction: at once where it waits for the client
(`wake`). Nothing is kept over a restart: who listens is connected.
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


@dataclass(frozen=True)
class Notification:
    """What one session tells."""

    pid: int
    channel: str
    payload: str


@dataclass(eq=False)
class Mailbox:
    """What a session listens to, and what it has not told its client yet."""

    database: int | None
    wake: Callable[[], None]
    channels: dict[str, None] = field(default_factory=dict)
    waiting: deque[Notification] = field(default_factory=deque)


Saved = tuple[int, int]


class PendingNotifications:
    """What the open transaction has asked for: (command, channel) of LISTEN and UNLISTEN, (channel, payload) of NOTIFY."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, str]] = []
        self.told: dict[tuple[str, str], None] = {}

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
        self.told.setdefault((channel, payload))

    def saved(self) -> Saved:
        """What there is at a savepoint."""
        return len(self.actions), len(self.told)

    def restore(self, saved: Saved) -> None:
        """Back to the savepoint."""
        del self.actions[saved[0] :]
        self.told = dict.fromkeys(list(self.told)[: saved[1]])

    def check_prepare(self) -> None:
        """0A000: a prepared transaction has no session."""
        if self:
            raise not_supported("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")


class Channels:
    """Who listens, of a whole node. Any thread may call anything here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boxes: set[Mailbox] = set()

    def committed(self, box: Mailbox, pending: PendingNotifications, pid: int) -> None:
        """A transaction has committed: the session listens to what it wanted, and others are told."""
        with self._lock:
            for command, channel in pending.actions:
                _act(box, command, channel)
            self._know(box)
            told = [Notification(pid, channel, payload) for channel, payload in pending.told]
            woken = [each for each in self._boxes if each.database == box.database and _deliver(each, told)]
        for each in woken:
            if each is not box:
                each.wake()

    def forget(self, box: Mailbox) -> None:
        """UNLISTEN * outside of transactions: DISCARD ALL, and the session's end."""
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
