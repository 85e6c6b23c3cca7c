"""The tables that a transaction has locked, until it ends: for writing (`lock`) or for a change of their definition (`own`).

Made by `transaction`, whose parts call `lock` before they read what they then write. Acquiring a lock has three more effects:

    before        pending rows are written (`pending_rows`), or after it if the lock is acquired alone: other transactions with pending
                  rows could not end while this one holds the lock
    first lock    versions that other engines have committed are adopted (`foreign_writer`); the table must still be defined as in the plan
    after         the snapshot shows the newest committed rows, unless it is fixed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.catalog.hold import Hold
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.errors import PostgresError
from headgate.storage.delta.tables import Tables
from headgate.storage.location.table_folders import Key
from headgate.storage.lock import Keys
from headgate.storage.transaction.foreign_writer import ForeignWriters
from headgate.storage.transaction.own_locks import OwnLocks
from headgate.storage.transaction.pending_rows import PendingRows
from headgate.storage.transaction.snapshot import Snapshot
from headgate.storage.transaction.staging import Staging
from headgate.storage.transaction.transaction_catalog import StaleDefinitionError, TransactionCatalog


class HeldTables:
    """The locked tables of one transaction, and its pending rows."""

    def __init__(
        self, tables: Tables, foreign: ForeignWriters, locks: OwnLocks, catalog: TransactionCatalog, snapshot: Snapshot, staging: Staging
    ) -> None:
        self._foreign, self._locks, self._catalog, self._snapshot, self._staging = foreign, locks, catalog, snapshot, staging
        self._checked: set[Key] = set()
        """Locked tables whose definition has been checked since."""
        self.pending = PendingRows(tables, staging, self.lock)

    def lock(
        self, relation: Relation, *, beside_claims: bool = False, wait: bool = True, alone: bool = False, damaged: bool = False,
        keys: Callable[[], Keys] | None = None,
    ) -> Key:  # fmt: skip
        """Acquire a table's write lock and show its newest committed rows. Return its key. Raise 55P03 if it is held and not `wait`.

        `beside_claims`: do not wait for transactions that have claimed keys of new rows. `alone`: wait for them even if this one has claims
        or the lock. `damaged`: the table may be unreadable. `keys` returns the keys of rows to be added: wait for others that have claimed
        one of them even if this one has claims.
        """
        assert not relation.with_children, "a table and its children are locked one by one"
        key = (relation.database, relation.oid)
        if alone:
            self._locks.acquire(key, wait=wait, alone=True)
        elif keys is not None and self.pending.has(key):
            self._locks.acquire(key, wait=wait, keys=keys())
        self.pending.settle()
        self._locks.acquire(key, wait=wait, beside_claims=beside_claims)
        if key not in self._checked:
            try:
                self._foreign.adopt(key)
            except PostgresError as error:
                if not damaged or error.sqlstate != "XX001":
                    raise
            self._check_definition(key, relation)
            self._checked.add(key)
        self._snapshot.move(key)
        return key

    def lock_new(self, relation: Relation) -> Key:
        """Lock a table that this transaction creates: no other one sees it, so its definition cannot have changed."""
        self._checked.add((relation.database, relation.oid))
        return self.lock(relation)

    def own(self, relation: Relation, hold: Hold) -> None:
        """Keep others from writing to, using or changing a relation. Raises as `TransactionCatalog.lock_object`.

        With `Hold.CHANGE` others may use it.
        """
        if relation.kind != RelationKind.TABLE:
            self._catalog.hold_object("pg_class", relation.oid, hold)
            return
        key, row = (relation.database, relation.oid), self._catalog.row_of(relation)
        self._locks.acquire(key, alone=True, row=(row, hold))
        self.pending.settle()
        self._catalog.check_held(row, hold)
        if self._snapshot.is_fixed and self._snapshot.behind(key, self._staging.staged(key)) is not None:
            # its rows would be altered as the snapshot shows them
            raise StaleDefinitionError("40001", "could not serialize access due to concurrent update")
        self.lock(relation, damaged=True)  # DROP accepts a table that cannot be read; a later read raises the error

    def wait_for(self, relations: Sequence[Relation], hold: Hold) -> None:
        """Wait until no other transaction writes to or uses these relations, without locking any while it waits; `own` must follow."""
        rows = {self._catalog.row_of(relation): hold for relation in relations}
        keys = [(relation.database, relation.oid) for relation in relations if relation.kind == RelationKind.TABLE]
        if keys:
            self._locks.acquire_all(keys, rows)
        self.pending.settle()

    def claim(self, relation: Relation, keys: Keys) -> bool:
        """Claim the keys of rows that are to be pending, waiting for other transactions that add one of them.

        Return False if the rows cannot be added without the table's lock.
        """
        key = (relation.database, relation.oid)
        if key in self._staging.tables or self._catalog.is_in_history or not self._locks.claim(key, keys):
            return False
        self._check_definition(key, relation)
        self._snapshot.move(key)
        return True

    def _check_definition(self, key: Key, relation: Relation) -> None:
        if key not in self._staging.created:
            self._catalog.check_definition(relation)
