"""The running transactions of a node, and the changes of the catalog that they may not see.

The storage has one `RunningTransactions`. Files, versions, log entries and committed keys that a running transaction may need stay until it
has ended. A catalog state has a number (`definitions`), which grows with each commit that changes the catalog.

A session takes a snapshot that holds until its transaction ends (REPEATABLE READ, SERIALIZABLE) inside `noted`. `compactor` holds
`snapshots` from its query for the youngest snapshot until it has committed. Invariant: no session takes a snapshot in between. A thread
that needs both acquires `snapshots` before the commit lock. Transactions that never write (comparison, check, backup) are not noted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from headgate.catalog.catalog import Catalog
from headgate.catalog.hold import CONFLICTING, Hold
from headgate.catalog.unique import CatalogKey
from headgate.lsn import Lsn
from headgate.storage.transaction.log import TransactionLog

_OF_TYPES = ("pg_type_", "pg_enum_", "pg_namespace_")
"""Prefixes of the keys of the catalogs that define the types and their names."""


class _Begin(NamedTuple):
    end: Lsn
    definitions: int
    time: float


class CommittedKeys:
    """The state number with which each hold of a key was last committed, the oldest first.

    Commits note their holds (`catalog.hold`) under the commit lock, with the number of the catalog state that they create
    (`RunningTransactions.definitions`). A transaction whose catalog has an earlier state cannot see their changes. Entries that all
    running transactions see are removed. For each key and hold only the last commit is kept: creating thousands of tables in a schema is
    one use of the schema.
    """

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
        """Return whether a conflicting hold was committed after the state `number` that a running transaction sees."""
        return any(self._made.get((key, conflicting), 0) > number for conflicting in CONFLICTING[hold])


def _until(states: dict[tuple[CatalogKey, Hold], int], oldest: int) -> Iterable[tuple[CatalogKey, Hold]]:
    for hold, number in states.items():
        if number > oldest:
            return
        yield hold


class RunningTransactions:
    """The register of the running transactions (see the module). All methods are thread-safe."""

    def __init__(self, catalog: Catalog, log: TransactionLog) -> None:
        self._catalog, self._log = catalog, log
        self._begins: dict[int, _Begin] = {}
        self._lock = threading.Lock()
        self.snapshots = threading.Lock()
        self._snapshots: dict[int, float] = {}
        """The time at which each noted transaction took its snapshot."""
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
        self.forget_snapshot(transaction)

    @contextmanager
    def noted(self, transaction: object) -> Iterator[None]:
        """Note a transaction that takes its snapshot inside the context."""
        with self.snapshots:
            self._snapshots[id(transaction)] = time.monotonic()
            yield

    def forget_snapshot(self, transaction: object) -> None:
        self._snapshots.pop(id(transaction), None)

    def youngest_snapshot(self) -> float:
        """Return the age in seconds of the youngest snapshot, infinity if there is none. The caller holds `snapshots`."""
        return time.monotonic() - max(list(self._snapshots.values()), default=-math.inf)

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
