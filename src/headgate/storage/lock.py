"""The write lock of each table: one writer per Delta table of a node, until its transaction ends.

Readers take no lock: they read the version that the log names. A writer that would wait in a circle gets 40P01, as in
PostgreSQL; the circle is looked for when the wait begins, not after `deadlock_timeout`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headgate.errors import PostgresError
from headgate.storage.statistics import Statistics

Key = tuple[int, int]
"""(database, relation)"""


class TableLocks:
    """Who holds the write lock of which table, who waits for whom. An owner is a transaction's xid."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._changed = threading.Condition()
        self._owner: dict[Key, int] = {}
        self._waiting: dict[int, Key] = {}

    def acquire(self, key: Key, owner: int, cancelled: Callable[[], None] | None = None, lock_timeout: float | None = None) -> None:
        """Takes a table's lock for `owner`, waiting if need be.

        `cancelled` is called ten times a second while waiting and raises to end the wait. Raises 40P01 on a deadlock, 55P03 after
        `lock_timeout` seconds.
        """
        give_up = None if lock_timeout is None else time.monotonic() + lock_timeout
        with self._changed:
            while (holder := self._owner.get(key, owner)) != owner:
                self._waiting[owner] = key
                try:
                    self._refuse_circle(owner)
                    if give_up is not None and time.monotonic() >= give_up:
                        raise PostgresError("55P03", "canceling statement due to lock timeout")
                    self._changed.wait(0.1 if cancelled or give_up else None)
                    if cancelled:
                        cancelled()
                finally:
                    del self._waiting[owner]
                del holder
            self._owner[key] = owner

    def _refuse_circle(self, start: int) -> None:
        """Raises if `start`, about to wait, waits for itself through others."""
        chain = [start]
        while (key := self._waiting.get(chain[-1])) is not None:
            holder = self._owner.get(key)
            if holder is None:
                return
            if holder == start:
                waits = [f"Transaction {a} waits for ExclusiveLock on relation {self._waiting[a][1]}; " for a in chain]
                self._statistics.deadlock(key[0])
                blocked = [f"blocked by transaction {b}." for b in [*chain[1:], start]]
                detail = "\n".join(w + b for w, b in zip(waits, blocked, strict=True))
                raise PostgresError("40P01", "deadlock detected", detail=detail, hint="See server log for query details.")
            chain.append(holder)

    def release(self, owner: int) -> None:
        """Gives back all locks of a transaction."""
        with self._changed:
            for key in [k for k, o in self._owner.items() if o == owner]:
                del self._owner[key]
            self._changed.notify_all()
