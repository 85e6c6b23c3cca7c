"""Limits for the memory of messages, statements and portals: of each session, and of all sessions of a node.

PostgreSQL's backends have separate memory. The sessions of a node share theirs, so the memory that one session uses is missing to all. A
`Pool` counts the bytes of all sessions. The node has a pool for the messages that it reads (`OF_MESSAGES`), one for large statements
that run (`OF_RUNNING`), and one for prepared statements and portals (`OF_ALL`), which live until the client drops them. `Kept` is a dict
of prepared statements or portals that reserves their memory in the session's `Share`. The weight of a statement is an estimate
(`sql.parser.Statement.weight`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from headgate import interruption
from headgate.errors import PostgresError

OF_A_SESSION = 128 << 20
OF_ALL = 1 << 30
OF_MESSAGES = 256 << 20
OF_RUNNING = 256 << 20
"""The most bytes of running large statements. Statements of that weight are translated for seconds, and each of their parts is an object.
Python's garbage collector visits those of all sessions and holds the interpreter's lock while it does. A statement that weighs more runs
alone."""
TURN_SECONDS = 60
"""How long a statement waits for others to end. The wait is limited, because one of them may wait for a lock of the same session."""
LOOK_SECONDS = 0.05
LIGHT = 16 << 20
"""The weight in bytes, of some 50,000 constants, up to which a running or unnamed statement is not counted: each session has only one."""


class Weighed(Protocol):
    """A prepared statement or a portal."""

    @property
    def weight(self) -> int:
        """The estimated memory in bytes. It does not change."""


class Pool:
    """The bytes reserved by all sessions of a node, at most `most`."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self.reserved = 0

    def reserve(self, weight: int, *, alone: bool = False) -> bool:
        """Reserve `weight` bytes if they fit, or, with `alone`, if nothing else is reserved. Return whether they were reserved."""
        with self._lock:
            fits = self.reserved + weight <= self._most or (alone and not self.reserved)
            self.reserved += weight if fits else 0
            return fits

    def release(self, weight: int) -> None:
        """Release `weight` bytes."""
        with self._lock:
            self.reserved -= weight


class Share:
    """The bytes that one session has reserved in the pool. Only the session's own thread uses it."""

    def __init__(self, pool: Pool, running: Pool | None = None) -> None:
        self._pool = pool
        self._running = running or Pool(OF_RUNNING)
        self._reserved = 0

    def reserve(self, weight: int, *, is_named: bool = True) -> None:
        """Reserve `weight` bytes. Raise 53200 if they do not fit. `OF_A_SESSION` limits those of named statements and portals."""
        if (is_named and self._reserved + weight > OF_A_SESSION) or not self._pool.reserve(weight):
            raise PostgresError(
                "53200",
                "out of memory",
                detail="Prepared statements and portals use all the memory that they may use.",
                hint="Deallocate prepared statements and close cursors that are not needed any more.",
            )
        self._reserved += weight if is_named else 0

    def release(self, weight: int, *, is_named: bool = True) -> None:
        """Release `weight` bytes."""
        self._pool.release(weight)
        self._reserved -= weight if is_named else 0

    @contextmanager
    def running(self, weight: int) -> Iterator[None]:
        """Translate or run a statement of that weight inside the context, after a wait for room. Raise 53200 after TURN_SECONDS."""
        if weight <= LIGHT:
            yield
            return
        deadline = time.monotonic() + TURN_SECONDS
        while not self._running.reserve(weight, alone=True):
            interruption.check()
            if time.monotonic() > deadline:
                raise PostgresError("53200", "out of memory", detail="Large statements of other sessions have run for a minute.")
            time.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            self._running.release(weight)


Thing = TypeVar("Thing", bound=Weighed)


class Kept(dict[str, Thing]):
    """Prepared statements or portals by name. Only `keep`, `remove` and `remove_all` may change it.

    An unnamed one counts only for the node, and only if its weight exceeds `LIGHT`: the next one replaces it.
    """

    def __init__(self, share: Share) -> None:
        super().__init__()
        self._share = share

    def keep(self, name: str, thing: Thing) -> None:
        """Store one, replacing the one of the same name. Raise 53200 if its memory does not fit."""
        self.remove(name)
        if name or thing.weight > LIGHT:
            self._share.reserve(thing.weight, is_named=bool(name))
        self[name] = thing

    def remove(self, name: str) -> Thing | None:
        """Remove one and release its memory. Return it, or None if there is none."""
        thing = self.pop(name, None)
        if thing is not None and (name or thing.weight > LIGHT):
            self._share.release(thing.weight, is_named=bool(name))
        return thing

    def remove_all(self) -> None:
        for name in list(self):
            self.remove(name)
