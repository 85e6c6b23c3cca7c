"""What prepared statements and portals may take of the node's memory: of a session, and of all.

They live until the client lets go of them, and what one session takes is missing to all: PostgreSQL's backends have their memory each for
themselves, a node's sessions share it. `Kept` is a dict of either that asks the session's `Share` first; `Pool` is the node's. What a
statement weighs is estimated: its parse tree takes some twenty bytes for each byte of text (measured on lists of constants).
"""

from __future__ import annotations

import threading
from typing import Protocol, TypeVar

from headgate.errors import PostgresError

OF_A_SESSION = 128 << 20
OF_ALL = 1 << 30


class Weighed(Protocol):
    """A prepared statement or a portal."""

    @property
    def weight(self) -> int:
        """Bytes of memory, estimated; the same whenever it is asked."""
        ...


class Pool:
    """The sum over all sessions of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, weight: int) -> bool:
        """Whether there was room."""
        with self._lock:
            fits = self.taken + weight <= OF_ALL
            self.taken += weight if fits else 0
            return fits

    def give(self, weight: int) -> None:
        """Gives back what was taken."""
        with self._lock:
            self.taken -= weight


class Share:
    """What one session has taken of the pool. Used by the session's own thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._taken = 0

    def take(self, weight: int) -> None:
        """53200 if there is no room."""
        if self._taken + weight > OF_A_SESSION or not self._pool.take(weight):
            raise PostgresError(
                "53200",
                "out of memory",
                detail="Prepared statements and portals hold what memory they may.",
                hint="Deallocate prepared statements and close cursors that are not needed any more.",
            )
        self._taken += weight

    def give(self, weight: int) -> None:
        """Gives back what was taken."""
        self._pool.give(weight)
        self._taken -= weight


Thing = TypeVar("Thing", bound=Weighed)


class Kept(dict[str, Thing]):
    """Things by name. To be changed by `keep`, `let_go` and `let_go_all` alone.

    What has no name is not weighed: the next one takes its place, and a message has a bound of its own.
    """

    def __init__(self, share: Share) -> None:
        super().__init__()
        self._share = share

    def keep(self, name: str, thing: Thing) -> None:
        """Takes one in, in the place of another of the name. 53200."""
        self.let_go(name)
        if name:
            self._share.take(thing.weight)
        self[name] = thing

    def let_go(self, name: str) -> Thing | None:
        """Forgets one; None if there is none."""
        thing = self.pop(name, None)
        if thing is not None and name:
            self._share.give(thing.weight)
        return thing

    def let_go_all(self) -> None:
        """Forgets all."""
        for name in list(self):
            self.let_go(name)
