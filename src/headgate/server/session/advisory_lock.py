"""The advisory locks of one session (manual, 9.27.10 and 13.3.5): pg_advisory_lock, pg_advisory_xact_lock and their like.

`SessionAdvisoryLocks` is made by the session and asked by `server.function.advisory_function`; the transaction block tells it of savepoints
and of the transaction's end. Who waits for whom is `storage.lock`'s to know.

    of the session         taken so many times, given back so many times by pg_advisory_unlock, all at DISCARD ALL and at the session's end;
                           a rollback leaves them
    of the transaction     given back at its end, those that were taken behind a savepoint by ROLLBACK TO it; never by hand

What must hold: whatever ends a session calls `release_all`, or others would wait for nobody for ever.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headgate.errors import PostgresError
from headgate.storage.lock import AdvisoryHolder, AdvisoryKey, Patience, TableLocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.settings import SessionSettings

_Taken = tuple[AdvisoryKey, bool]
"""What for, and whether it is shared."""


def most_locks(settings: SessionSettings) -> int:
    """How many different locks there may be at a time (manual, 20.12)."""
    return settings.integer("max_locks_per_transaction") * (
        settings.integer("max_connections") + settings.integer("max_prepared_transactions")
    )


class SessionAdvisoryLocks:
    """What one session holds. `most` is how many different ones all sessions may hold together."""

    def __init__(self, locks: TableLocks, pid: int, transaction: Callable[[], int | None], most: int) -> None:
        self._locks = locks
        self._holder = AdvisoryHolder(pid, transaction)
        self._most = most
        self._of_session: Counter[_Taken] = Counter()
        self._of_transaction: list[_Taken] = []

    def take(self, key: AdvisoryKey, owner: int, patience: Patience, *, shared: bool, transactional: bool) -> None:
        """Takes a lock, waiting in the transaction `owner`; raises 40P01, 55P03, 57014, 53200."""
        self._locks.acquire_advisory(key, self._holder, owner, shared=shared, most=self._most, cancelled=patience)
        self._note((key, shared), transactional=transactional)

    def try_to_take(self, key: AdvisoryKey, *, shared: bool, transactional: bool) -> bool:
        """Takes a lock if nobody has to be waited for; raises 53200."""
        taken = self._locks.acquire_advisory(key, self._holder, None, shared=shared, most=self._most)
        if taken:
            self._note((key, shared), transactional=transactional)
        return taken

    def _note(self, taken: _Taken, *, transactional: bool) -> None:
        if transactional:
            self._of_transaction.append(taken)
        else:
            self._of_session[taken] += 1

    def give_back(self, key: AdvisoryKey, *, shared: bool) -> bool:
        """Gives a lock of the session back once; False where it has none."""
        if not self._of_session[key, shared]:
            del self._of_session[key, shared]
            return False
        self._of_session[key, shared] -= 1
        self._locks.release_advisory(key, self._holder, shared=shared)
        return True

    def give_all_back(self) -> None:
        """Gives all locks of the session back, as often as they were taken; those of the transaction stay."""
        for (key, shared), times in self._of_session.items():
            for _ in range(times):
                self._locks.release_advisory(key, self._holder, shared=shared)
        self._of_session.clear()

    # ---- the transaction --------------------------------------------------------------------------------
    def saved(self) -> int:
        """What SAVEPOINT remembers."""
        return len(self._of_transaction)

    def end(self, saved: int = 0) -> None:
        """The transaction has ended, or is rolled back to a savepoint: what was taken since is given back."""
        for key, shared in self._of_transaction[saved:]:
            self._locks.release_advisory(key, self._holder, shared=shared)
        del self._of_transaction[saved:]

    def check_prepare(self) -> None:
        """0A000 where the transaction has taken locks: a prepared transaction cannot keep them here."""
        if self._of_transaction:
            raise PostgresError("0A000", "cannot PREPARE a transaction that has taken advisory locks of its own")

    def release_all(self) -> None:
        """The session has ended."""
        self.end()
        self.give_all_back()
