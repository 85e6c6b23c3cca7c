"""When keys of the catalog were committed, and how they were held: whether what another did with one was there when a transaction looked.

The engine has one; commits note what they held (`catalog.hold`), under the commit lock, with the number of the catalog's state that they
make (`Engine.definitions`). A transaction whose catalog is of an earlier state cannot see what they did. What all running transactions
can see is forgotten, and of each key and way to hold it only the last commit is kept: thousands of tables that are made in one schema are
one use of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.catalog.hold import CONFLICTING, Hold
from headgate.catalog.unique import CatalogKey


class CommittedKeys:
    """Holds of keys by the number of the state that they were committed with, the oldest first."""

    def __init__(self) -> None:
        self._made: dict[tuple[CatalogKey, Hold], int] = {}

    def note(self, held: Mapping[CatalogKey, Hold], number: int, oldest: int) -> None:
        """Who held the keys has committed; every running transaction sees the state `oldest`, or a later one."""
        for each in held.items():
            self._made.pop(each, None)  # it goes to the end
            self._made[each] = number
        for each in [*_until(self._made, oldest)]:
            del self._made[each]

    def since(self, key: CatalogKey, number: int, hold: Hold = Hold.ALONE) -> bool:
        """Whether a hold that conflicts with this one was committed after a state that a running transaction sees."""
        return any(self._made.get((key, other), 0) > number for other in CONFLICTING[hold])


def _until(made: dict[tuple[CatalogKey, Hold], int], oldest: int) -> Iterable[tuple[CatalogKey, Hold]]:
    for each, number in made.items():
        if number > oldest:
            return
        yield each
