"""The running transactions of a node, and the changes of the catalog that they may not see.

The engine has one `RunningTransactions`. Files, versions, log entries and committed keys that a running transaction may need stay until it
has ended. A catalog state has a number (`definitions`), which grows with each commit that changes the catalog.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from headgate.catalog.catalog import Catalog
from headgate.catalog.hold import Hold
from headgate.catalog.unique import CatalogKey
from headgate.lsn import Lsn
from headgate.storage.transaction.isolation import CommittedKeys
from headgate.storage.transaction.log import TransactionLog

_OF_TYPES = ("pg_type_", "pg_enum_", "pg_namespace_")
"""Prefixes of the keys of the catalogs that define the types and their names."""


class _Begin(NamedTuple):
    end: Lsn
    definitions: int
    time: float


class RunningTransactions:
    """The register of the running transactions (see the module). All methods are thread-safe."""

    def __init__(self, catalog: Catalog, log: TransactionLog) -> None:
        self._catalog, self._log = catalog, log
        self._begins: dict[int, _Begin] = {}
        self._lock = threading.Lock()
        self.definitions = 0
        """Number of catalog changes committed. A plan made at the same number still has current definitions."""
        self.committed_keys = CommittedKeys()

    def begin(self, transaction: object) -> None:
        with self._lock:
            self._begins[id(transaction)] = _Begin(self._log.end, self.definitions, time.time())

    def ended(self, transaction: object) -> None:
        """Unregister a transaction that has ended, so that the versions that only it could read may be removed."""
        with self._lock:
            self._begins.pop(id(transaction), None)

    def ids(self) -> frozenset[int]:
        """Return the running transactions as numbers. A number may be reused after its transaction has ended."""
        with self._lock:
            return frozenset(self._begins)

    def oldest_time(self) -> float:
        """Return when the oldest running transaction began, or the current time if none runs."""
        with self._lock:
            return min([*(begin.time for begin in self._begins.values()), time.time()])

    def oldest_end(self) -> Lsn:
        """Return the LSN at which the oldest running transaction began, or the end of the log if none runs."""
        with self._lock:
            return min([*(begin.end for begin in self._begins.values()), self._log.end])

    def redefined(self, held: Mapping[CatalogKey, Hold]) -> None:
        """Note a commit that changed the catalog and held these keys. Call under the commit lock."""
        self.definitions += 1
        if any(key.constraint.startswith(_OF_TYPES) and hold > Hold.USE for key, hold in held.items()):
            self._catalog.types_changed()  # before the commit lock is released, or another session keeps the old types
        with self._lock:
            oldest = min([*(begin.definitions for begin in self._begins.values()), self.definitions])
        self.committed_keys.note(held, self.definitions, oldest)
