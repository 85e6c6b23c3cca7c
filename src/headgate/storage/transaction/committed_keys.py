"""The times at which catalog keys were committed, and in which hold, to decide whether a transaction's snapshot includes those commits.

The engine has one. Commits note their holds (`catalog.hold`) under the commit lock, with the number of the catalog state that they create
(`Engine.definitions`). A transaction whose catalog has an earlier state cannot see their changes. Entries that all running transactions see
are removed. For each key and hold only the last commit is kept: creating thousands of tables in one schema is one use of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.catalog.hold import CONFLICTING, Hold
from headgate.catalog.unique import CatalogKey


class CommittedKeys:
    """The state number with which each hold of a key was last committed, the oldest first."""

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
        """Whether a conflicting hold was committed after the state `number` that a running transaction sees."""
        return any(self._made.get((key, conflicting), 0) > number for conflicting in CONFLICTING[hold])


def _until(states: dict[tuple[CatalogKey, Hold], int], oldest: int) -> Iterable[tuple[CatalogKey, Hold]]:
    for hold, number in states.items():
        if number > oldest:
            return
        yield hold
