"""How much of the node's memory the sessions' messages, statements and portals may take: those of one session, and those of all.

PostgreSQL's backends have their memory each for themselves. The sessions of a node share it, so the memory that one takes is missing to
all. A `Pool` is a sum over all sessions. The node has one for the messages that it reads (`OF_MESSAGES`), one for the large statements that
run (`OF_RUNNING`), and one for prepared statements and portals (`OF_ALL`), which live until the client drops them. `Kept` is a dict of
either that asks the session's `Share` first. The weight of a statement is estimated (`sql.parser.Statement.weight`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from headgate.errors import PostgresError
from headgate.interruption import look

OF_A_SESSION = 128 << 20
OF_ALL = 1 << 30
OF_MESSAGES = 256 << 20
OF_RUNNING = 256 << 20
"""Statements of that weight are translated for seconds, and each of their parts is an object. Python's collector goes over those of all
sessions, and holds the interpreter's lock meanwhile. A statement that weighs more runs alone."""
TURN_SECONDS = 60
"""How long a statement waits for the others to end. Not for ever, because one of them may wait for a lock of the same session."""
LOOK_SECONDS = 0.05
LIGHT = 16 << 20
"""Bytes up to which a statement is not weighed that runs, or has no name, some 50,000 constants: each session has but one."""


class Weighed(Protocol):
    """A prepared statement or a portal."""

    @property
    def weight(self) -> int:
        """Bytes of memory, estimated; the same whenever it is asked."""
        ...


class Pool:
    """The sum over all sessions of a node, which may not be more than `most` bytes."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self.taken = 0

    def take(self, weight: int, *, alone: bool = False) -> bool:
        """Take so many bytes, if there is room, or if nobody else has taken any and they are `alone`; return whether there was."""
        with self._lock:
            fits = self.taken + weight <= self._most or (alone and not self.taken)
            self.taken += weight if fits else 0
            return fits

    def give(self, weight: int) -> None:
        """Gives back what was taken."""
        with self._lock:
            self.taken -= weight


class Share:
    """What one session has taken of the pool. Used by the session's own thread."""

    def __init__(self, pool: Pool, running: Pool | None = None) -> None:
        self._pool = pool
        self._running = running or Pool(OF_RUNNING)
        self._taken = 0

    def take(self, weight: int, *, kept: bool = True) -> None:
        """Take so many bytes; 53200 if there is no room. `OF_A_SESSION` bounds those that are `kept` behind their statement."""
        if (kept and self._taken + weight > OF_A_SESSION) or not self._pool.take(weight):
            raise PostgresError(
                "53200",
                "out of memory",
                detail="Prepared statements and portals hold what memory they may.",
                hint="Deallocate prepared statements and close cursors that are not needed any more.",
            )
        self._taken += weight if kept else 0

    def give(self, weight: int, *, kept: bool = True) -> None:
        """Return what was taken."""
        self._pool.give(weight)
        self._taken -= weight if kept else 0

    @contextmanager
    def running(self, weight: int) -> Iterator[None]:
        """Inside, a statement of that weight is translated, or runs; waits until there is room for it. 53200 if there is none for long."""
        if weight <= LIGHT:
            yield
            return
        deadline = time.monotonic() + TURN_SECONDS
        while not self._running.take(weight, alone=True):
            look()
            if time.monotonic() > deadline:
                raise PostgresError("53200", "out of memory", detail="Large statements of other sessions have run for a minute.")
            time.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            self._running.give(weight)


Thing = TypeVar("Thing", bound=Weighed)


class Kept(dict[str, Thing]):
    """Things by name. To be changed by `keep`, `let_go` and `let_go_all` alone.

    A thing without a name counts for the node only, and only if it is heavy: the next one takes its place.
    """

    def __init__(self, share: Share) -> None:
        super().__init__()
        self._share = share

    def keep(self, name: str, thing: Thing) -> None:
        """Takes one in, in the place of another of the name. 53200."""
        self.let_go(name)
        if name or thing.weight > LIGHT:
            self._share.take(thing.weight, kept=bool(name))
        self[name] = thing

    def let_go(self, name: str) -> Thing | None:
        """Forgets one; None if there is none."""
        thing = self.pop(name, None)
        if thing is not None and (name or thing.weight > LIGHT):
            self._share.give(thing.weight, kept=bool(name))
        return thing

    def let_go_all(self) -> None:
        """Forgets all."""
        for name in list(self):
            self.let_go(name)
