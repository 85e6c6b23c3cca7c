"""Which transactions of sessions read as of their begin (REPEATABLE READ, SERIALIZABLE), and since when.

`Isolation` is the engine's. A session takes such a snapshot inside `noted`; `compaction` holds `lock` from the moment in which it asks for
the youngest until it has committed. What must hold: no session takes a snapshot in between. Who has both takes `lock` before the commit
lock. Transactions that never write (comparison, check, backup) are not noted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Isolation:
    """See the module."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._since: dict[int, float] = {}

    @contextmanager
    def noted(self, transaction: object) -> Iterator[None]:
        """Note a transaction that takes its snapshot inside."""
        with self.lock:
            self._since[id(transaction)] = time.monotonic()
            yield

    def ended(self, transaction: object) -> None:
        """Forget a transaction, whether it was noted or not."""
        self._since.pop(id(transaction), None)

    def youngest(self) -> float:
        """Return for how many seconds the youngest has had its snapshot; infinite if there is none. `lock` is held."""
        return time.monotonic() - max(list(self._since.values()), default=-math.inf)
