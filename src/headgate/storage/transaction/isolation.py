"""The state that running transactions see: the time of their snapshots, and the catalog keys that were committed since.

The engine has one `Isolation`, and one `CommittedKeys` in `running`. `Isolation` has the sessions' transactions that read as of their
begin (REPEATABLE READ, SERIALIZABLE). A session takes such a snapshot inside `noted`. `compactor` holds `lock` from its query for the
youngest snapshot until it has committed. Invariant: no session takes a snapshot in between. A thread that needs both acquires `lock`
before the commit lock. Transactions that never write (comparison, check, backup) are not noted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from headgate.catalog.hold import CONFLICTING, Hold
from headgate.catalog.unique import CatalogKey


class Isolation:
    """The register of these transactions (see the module)."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._since: dict[int, float] = {}

    @contextmanager
    def noted(self, transaction: object) -> Iterator[None]:
        """Note a transaction that takes its snapshot inside the context."""
        with self.lock:
            self._since[id(transaction)] = time.monotonic()
            yield

    def ended(self, transaction: object) -> None:
        """Remove a transaction from the register, if it is there."""
        self._since.pop(id(transaction), None)

    def youngest(self) -> float:
        """Return the age in seconds of the youngest snapshot, infinity if there is none. The caller holds `lock`."""
        return time.monotonic() - max(list(self._since.values()), default=-math.inf)


class CommittedKeys:
    """The state number with which each hold of a key was last committed, the oldest first.

    Commits note their holds (`catalog.hold`) under the commit lock, with the number of the catalog state that they create
    (`RunningTransactions.definitions`). A transaction whose catalog has an earlier state cannot see their changes. Entries that all
    running transactions see are removed. For each key and hold only the last commit is kept: creating thousands of tables in a schema is
    one use of the schema.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[CatalogKey, Hold], int] = {}

    def note(self, held: Mapping[CatalogKey, Hold], number: int, oldest: int) -> None:
        """Note a commit's holds under its state number. Every running transaction sees the state `oldest` or a later one."""
        for hold in held.items():
            self._made.pop(hold, None)  # moves it to the end
            self._made[hold] = number
        for hold in [*_until(self._made, oldest)]:
            del self._made[hold]

    def since(self, key: CatalogKey, number: int, hold: Hold = Hold.ALONE) -> bool:
        """Return whether a conflicting hold was committed after the state `number` that a running transaction sees."""
        return any(self._made.get((key, conflicting), 0) > number for conflicting in CONFLICTING[hold])


def _until(states: dict[tuple[CatalogKey, Hold], int], oldest: int) -> Iterable[tuple[CatalogKey, Hold]]:
    for hold, number in states.items():
        if number > oldest:
            return
        yield hold
