"""The locks and catalog keys of one transaction, and its xid, under which `lock.TableLocks` knows it.

Made by `transaction`. Its parts acquire locks through it, so that each wait can be cancelled, and the xid is assigned when it is needed.
Invariant: a lock or key is held until the transaction ends, also if it was acquired after a savepoint that was rolled back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from headgate.catalog.hold import Hold
from headgate.catalog.unique import CatalogKey
from headgate.storage.location.table_folders import Key
from headgate.storage.lock import Keys, TableLocks


class OwnLocks:
    """The xid, the locks and the catalog keys of one transaction."""

    def __init__(self, locks: TableLocks, next_xid: Callable[[], int]) -> None:
        """`next_xid` assigns an xid."""
        self._locks, self.next_xid = locks, next_xid
        self.cancelled: Callable[[], None] | None = None
        """Called while waiting. It raises to end the wait."""
        self.catalog_keys: dict[CatalogKey, Hold] = {}
        """The catalog keys that are held, each with its strongest hold."""

    @functools.cached_property
    def xid(self) -> int:
        """Return the transaction id, assigned at the first call (a transaction that only reads needs none)."""
        return self.next_xid()

    @property
    def has_xid(self) -> bool:
        """Whether the transaction has got an xid, without which it holds nothing."""
        return "xid" in self.__dict__

    def acquire(
        self, key: Key, *, wait: bool = True, beside_claims: bool = False, alone: bool = False,
        row: tuple[CatalogKey, Hold] | None = None, keys: Keys | None = None,
    ) -> None:  # fmt: skip
        """Acquire a table's write lock, and with it the catalog's `row`. Raise 55P03 if another holds it and not `wait`."""
        self._locks.acquire(
            key, self.xid, self.cancelled, None if wait else 0, beside_claims=beside_claims, alone=alone, row=row, keys=keys
        )
        if row is not None:
            self._note(*row)

    def acquire_all(self, keys: Sequence[Key], rows: Mapping[CatalogKey, Hold]) -> None:
        """Wait until these locks are free at the same time, without holding any of them while it waits."""
        self._locks.acquire_all(keys, self.xid, dict(rows), self.cancelled)

    def claim(self, key: Key, keys: Keys) -> bool:
        """Claim unique keys of a table whose lock is not held. Return False if this would need the lock."""
        return self._locks.claim(key, self.xid, keys, self.cancelled)

    def claim_catalog(self, key: CatalogKey, hold: Hold = Hold.ALONE) -> None:
        """Hold a catalog key, waiting for transactions with a conflicting hold."""
        self._locks.claim_catalog(key, self.xid, self.cancelled, hold)
        self._note(key, hold)

    def _note(self, key: CatalogKey, hold: Hold) -> None:
        self.catalog_keys[key] = max(hold, self.catalog_keys.get(key, hold))

    def release(self) -> None:
        """Release everything, at the end."""
        self._locks.release(self.xid)
