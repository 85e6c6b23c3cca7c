"""The advisory locks of one session (manual, 9.27.10 and 13.3.5): pg_advisory_lock, pg_advisory_xact_lock and the related functions.

The session creates `SessionAdvisoryLocks`, and `server.function.advisory_function` calls it. The transaction block reports savepoints and
the end of the transaction to it. `storage.lock` knows which transaction waits for which.

    session level          acquired any number of times and released as often by pg_advisory_unlock; all are released by DISCARD ALL and
                           at the end of the session; a rollback does not release them
    transaction level      released at the end of the transaction; ROLLBACK TO releases those acquired after the savepoint; they cannot be
                           released explicitly

Invariant: every end of a session calls `release_all`. Otherwise other sessions would wait for its locks forever.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headgate.errors import PostgresError
from headgate.storage.lock import AdvisoryHolder, AdvisoryKey, Patience, TableLocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.settings.session import SessionSettings

_Acquired = tuple[AdvisoryKey, bool]
"""The key of a lock, and whether the lock is shared."""


def most_locks(settings: SessionSettings) -> int:
    """Return the most different locks that may exist at a time (manual, 20.12)."""
    return settings.integer("max_locks_per_transaction") * (
        settings.integer("max_connections") + settings.integer("max_prepared_transactions")
    )


class SessionAdvisoryLocks:
    """The advisory locks that one session holds. `most`: the limit of different locks of all sessions together."""

    def __init__(self, locks: TableLocks, pid: int, transaction: Callable[[], int | None], most: int) -> None:
        self._locks = locks
        self._holder = AdvisoryHolder(pid, transaction)
        self._most = most
        self._of_session: Counter[_Acquired] = Counter()
        self._of_transaction: list[_Acquired] = []

    def acquire(self, key: AdvisoryKey, owner: int, patience: Patience, *, shared: bool, transactional: bool) -> None:
        """Acquire a lock; transaction `owner` waits for it. Raise 40P01, 55P03, 57014 or 53200."""
        self._locks.acquire_advisory(key, self._holder, owner, shared=shared, most=self._most, cancelled=patience)
        self._note((key, shared), transactional=transactional)

    def try_acquire(self, key: AdvisoryKey, *, shared: bool, transactional: bool) -> bool:
        """Acquire a lock if it is available without waiting, and return whether it was. Raise 53200."""
        acquired = self._locks.acquire_advisory(key, self._holder, None, shared=shared, most=self._most)
        if acquired:
            self._note((key, shared), transactional=transactional)
        return acquired

    def _note(self, lock: _Acquired, *, transactional: bool) -> None:
        if transactional:
            self._of_transaction.append(lock)
        else:
            self._of_session[lock] += 1

    def release(self, key: AdvisoryKey, *, shared: bool) -> bool:
        """Release a session-level lock once. Return False if the session does not hold it."""
        if not self._of_session[key, shared]:
            del self._of_session[key, shared]
            return False
        self._of_session[key, shared] -= 1
        self._locks.release_advisory(key, self._holder, shared=shared)
        return True

    def release_session_level(self) -> None:
        """Release all session-level locks, each as often as it was acquired. Transaction-level locks remain."""
        for (key, shared), count in self._of_session.items():
            for _ in range(count):
                self._locks.release_advisory(key, self._holder, shared=shared)
        self._of_session.clear()

    # ---- the transaction --------------------------------------------------------------------------------
    def saved(self) -> int:
        """Return the position to which ROLLBACK TO restores the locks."""
        return len(self._of_transaction)

    def end(self, saved: int = 0) -> None:
        """Release the transaction's locks, or only those acquired since the savepoint `saved`."""
        for key, shared in self._of_transaction[saved:]:
            self._locks.release_advisory(key, self._holder, shared=shared)
        del self._of_transaction[saved:]

    def check_prepare(self) -> None:
        """Raise 0A000 if the transaction has acquired locks: a prepared transaction cannot keep them here."""
        if self._of_transaction:
            raise PostgresError("0A000", "cannot PREPARE a transaction that has taken advisory locks of its own")

    def release_all(self) -> None:
        self.end()
        self.release_session_level()
