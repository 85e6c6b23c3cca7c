"""The savepoints of a transaction: their names, what was staged at each, and the xid of the subtransaction that it begins.

Made by `transaction`, which restores the content. A savepoint's xid is assigned at the first write after it. Writes of different
subtransactions go into different files, which a subscriber that streams can discard one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.storage.transaction.own_locks import OwnLocks
from headgate.storage.transaction.pending_rows import Saved as SavedPending
from headgate.storage.transaction.staging import SavedStaging
from headgate.storage.transaction.transaction_catalog import SavedCatalog

MOST_SUBTRANSACTIONS = 64
"""Number of subtransactions that get their own xid, as many as PostgreSQL caches for a session (PGPROC_MAX_CACHED_SUBXIDS).

Later ones use the transaction's xid, which limits the number of files.
"""


@dataclass(frozen=True)
class SavedWork:
    """The staged writes, the writes to the catalog and the pending rows of a transaction at a savepoint."""

    staging: SavedStaging
    catalog: SavedCatalog
    pending: SavedPending


@dataclass
class _Savepoint:
    name: str
    saved: SavedWork
    xid: int = 0


class Savepoints:
    """The savepoints of one transaction, the outermost first."""

    def __init__(self, locks: OwnLocks) -> None:
        self._locks = locks
        self._all: list[_Savepoint] = []
        self._with_xid = 0

    def define(self, name: str, saved: SavedWork) -> None:
        """Define a savepoint. A name may be used again and then hides the earlier savepoint."""
        self._all.append(_Savepoint(name, saved))

    def saved(self, name: str) -> SavedWork:
        """Return the work of the transaction at a savepoint. Raise 3B001 if it does not exist."""
        return self._all[self._find(name)].saved

    def rolled_back_to(self, name: str) -> None:
        """Forget the savepoints after this one, which begins a new subtransaction."""
        del self._all[self._find(name) + 1 :]
        self._all[-1].xid = 0

    def release(self, name: str) -> None:
        """Release a savepoint and those after it. Raise 3B001 if it does not exist."""
        del self._all[self._find(name) :]

    def subtransaction(self) -> int:
        """Return the xid of the innermost savepoint, 0 outside of savepoints and after MOST_SUBTRANSACTIONS of them."""
        if not self._all:
            return 0
        innermost = self._all[-1]
        if not innermost.xid and self._with_xid < MOST_SUBTRANSACTIONS:
            _ = self._locks.xid  # assigned first: the transaction's own xid must be the smaller one
            innermost.xid = self._locks.next_xid()
            self._with_xid += 1
        return innermost.xid

    def _find(self, name: str) -> int:
        for index in range(len(self._all) - 1, -1, -1):
            if self._all[index].name == name:
                return index
        raise PostgresError("3B001", f'savepoint "{name}" does not exist')
