"""The sessions' transactions that read as of their begin (REPEATABLE READ, SERIALIZABLE), and the time of their snapshots.

The engine has one `Isolation`. A session takes such a snapshot inside `noted`. `compaction` holds `lock` from its query for the youngest
snapshot until it has committed. Invariant: no session takes a snapshot in between. A thread that needs both acquires `lock` before the
commit lock. Transactions that never write (comparison, check, backup) are not noted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


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
