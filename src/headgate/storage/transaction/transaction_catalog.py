"""The catalog inside a transaction: what it shows, which objects the transaction holds, and what the log's history must record of it.

Made by `transaction`. Statements about objects (`commands`) read and write rows by `cursor`. They hold objects before they name or change
them.

Two numbers say which state of the catalog (`RunningTransactions.definitions`) is seen:

    definitions    the state that belongs to the snapshot of the tables' rows
    renewed        the state that the cursor shows; it is newer once `newest` has replayed the transaction's changes

Invariant: if the two differ, `check_seen` refuses tables whose definition another transaction has committed in between.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import cast

from headgate.catalog import history, physical, unique
from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import CatalogCursor, Rows
from headgate.catalog.hold import Hold, is_pinned
from headgate.catalog.physical import Cursor
from headgate.catalog.relation import partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.unique import CatalogKey
from headgate.catalog.unwritten import PROVISIONAL
from headgate.errors import PostgresError
from headgate.storage.transaction.log import TransactionLog
from headgate.storage.transaction.own_locks import OwnLocks
from headgate.storage.transaction.recorded_catalog import CatalogWrite, RecordedCatalog
from headgate.storage.transaction.running import RunningTransactions
from headgate.types import registry


class StaleDefinitionError(PostgresError):
    """The table of a statement's plan changed while it waited. The statement has not written to it and may be planned again."""


@dataclass(frozen=True)
class SavedCatalog:
    """The catalog at a savepoint: the number of its writes, and what the history must record."""

    place: int
    is_due: bool
    among: AbstractSet[int] | None
    is_recorded: bool


class TransactionCatalog:
    """The catalog of one transaction (see the module)."""

    def __init__(self, catalog: Catalog, log: TransactionLog, running: RunningTransactions, database: int, locks: OwnLocks) -> None:
        self._catalog, self._commit_lock, self._running, self._locks = catalog, log.commit_lock, running, locks
        self.database = database
        """The database of the rows that are not shared, to which the log entry belongs."""
        self._recorded: RecordedCatalog | None = None
        self._definitions = self._renewed = running.definitions
        self.is_old = False
        """Whether the statement misses catalog changes that others have committed. If it fails, it must be run again."""
        self.type_changes = 0
        """The last change of types (`Catalog.type_changes`) that the cursor shows."""
        self.generation = 0
        """A number that grows whenever the cursor may show other definitions than before."""
        self._own = object()
        self._is_history_due = False
        self._among: AbstractSet[int] | None = frozenset()
        """Relations (oids) that may have changed if history is due. None: any relation."""
        self.is_recorded = False
        """Whether the transaction has written rows of the history."""
        self._recorded_at = -1
        """The number of writes to tables when they were last written."""

    @property
    def cursor(self) -> CatalogCursor:
        """Return the cursor of the catalog's transaction, which commits with this one. It begins at the first call."""
        if self._recorded is None:
            with self._commit_lock:
                self._definitions = self._renewed = self._running.definitions
                self.type_changes = self._catalog.type_changes
                self._recorded = RecordedCatalog(self._catalog, self.claim, self.use_object, self.newest)
        return self._recorded.as_cursor

    def next_oid(self) -> int:
        """Return a new oid, which no other transaction gets."""
        return self._catalog.next_oid()

    @property
    def is_open(self) -> bool:
        return self._recorded is not None

    @property
    def shown(self) -> tuple[object, ...]:
        """Return a token of the definitions that the cursor and `newest` show. Two transactions without writes may have the same one."""
        _ = self.cursor  # it begins the catalog's transaction, which sets `_renewed`
        seen = self._running.definitions, self._renewed
        return (*seen, self._own, self.generation, self.place) if self.place else seen

    @property
    def place(self) -> int:
        return 0 if self._recorded is None else self._recorded.place

    @property
    def written(self) -> list[CatalogWrite]:
        """Return the writes: method of the cursor, statement, parameters."""
        return [] if self._recorded is None else list(self._recorded.cursor.written)

    # what it shows

    def renew(self, *, replay: bool) -> None:
        """Show what is committed now, for a new statement. The caller holds the commit lock.

        A transaction that has made many catalog changes replays them to see those of other transactions. It does so no more often than
        `RecordedCatalog.may_replay` allows, or the cost would grow with the square of its changes. Until then `is_old` is set.
        """
        recorded = self._recorded
        has_moved = self._running.definitions != self._definitions
        if has_moved:
            self.generation += 1
        self.is_old = bool(has_moved and recorded is not None and not (replay or recorded.failed or recorded.may_replay))
        if self.is_old:
            return
        self._definitions = self._renewed = self._running.definitions
        if recorded is not None and (has_moved or not recorded.place or recorded.failed):
            recorded.renew(recorded.place)
            self.type_changes = self._catalog.type_changes

    def restart(self) -> bool:
        """Replace the catalog's transaction after a query of it has failed. Return False if there is none."""
        if self._recorded is None:
            return False
        self._recorded.rollback_to(self._recorded.place)
        return True

    def newest(self, sql: str) -> CatalogCursor:
        """Return a cursor whose query sees all committed catalog changes and this transaction's own, also under REPEATABLE READ.

            others have committed changes of the tables it reads    this one has written them    answered by
            no                                                      yes or no                    the transaction's cursor
            yes                                                     no                           a cursor in autocommit
            yes                                                     yes                          the transaction's cursor, after a replay

        DuckDB cannot show both, so the transaction's changes are replayed on the newest catalog.
        """
        own = self.cursor
        recorded = cast("RecordedCatalog", self._recorded)
        if not recorded.failed and own.has_newest(sql):
            return own
        if not own.has_written(sql):
            return recorded.committed
        return self._replayed()

    def _replayed(self) -> CatalogCursor:
        """Replay the transaction's changes on the newest catalog, and return its cursor."""
        recorded = cast("RecordedCatalog", self._recorded)
        with self._commit_lock:
            self._renewed, self.type_changes = self._running.definitions, self._catalog.type_changes
            recorded.renew(recorded.place)
        self.generation += 1
        return recorded.as_cursor

    def check_seen(self, relation: Relation) -> None:
        """Raise 40001 if the cursor shows a definition that another transaction has committed since the rows' snapshot was taken."""
        if self._renewed == self._definitions and not self.is_old:
            return
        if self._running.committed_keys.since(self._row_key("pg_class", relation.oid), self._definitions, Hold.USE):
            raise _stale_error()

    def check_definition(self, relation: Relation) -> None:
        """Raise `StaleDefinitionError` if another transaction has changed the relation or its triggers since the statement began.

        The committed definition is compared. If it may differ because of this transaction's own changes, they are replayed on it first.
        """
        if self._running.definitions == self._definitions:
            return
        planned: _Definition = (relation, *_surroundings(self.cursor, relation))
        cursor = self._catalog.cursor()
        try:
            current = _definition(cursor, relation)
        finally:
            cursor.close()
        if current != planned and self.place:
            planned = _definition(self.cursor, relation)
            current = _definition(self._replayed(), relation)
        if current[0] is None:  # another relation may have its name by now, and rows of a partition may belong elsewhere
            raise StaleDefinitionError("42P01", f'relation "{relation.name}" does not exist')
        if current != planned or self._has_other_types(relation):
            raise _stale_error()

    def _has_other_types(self, relation: Relation) -> bool:
        """Return whether another transaction has changed a domain's constraints or an enum's labels among the columns' types."""
        of_users = {oid for column in relation.columns for oid in registry.known().of_users(column.type_oid)}
        return any(self._running.committed_keys.since(self._row_key("pg_type", oid), self._definitions, Hold.USE) for oid in of_users)

    # what it holds

    def claim(self, key: CatalogKey) -> None:
        """Hold a catalog key until the end, waiting for others that have claimed it. Raise 23505 if it has been committed.

        The caller has checked that the key is not in the catalog as this transaction sees it.
        """
        if not self._claim(key, Hold.ALONE):
            return
        cursor = self._catalog.cursor()
        try:
            is_committed = bool(cursor.execute(*unique.lookup(key)).fetchall())
        finally:
            cursor.close()
        if is_committed:
            raise unique.violation(key)

    def use_object(self, catalog: str, oid: int) -> None:
        """Keep other transactions from dropping or renaming an object until the end. Call this before naming it in a new object.

        Transactions that use an object do not wait for each other. Raises as `lock_object` does.
        """
        if not is_pinned(catalog, oid):
            self.hold_object(catalog, oid, Hold.USE)

    def change_object(self, catalog: str, oid: int) -> None:
        """Keep other transactions from changing or dropping an object until the end, though not from using it. Raises as `lock_object`."""
        self.hold_object(catalog, oid, Hold.CHANGE)

    def lock_object(self, catalog: str, oid: int) -> None:
        """Keep other transactions from using an object until the end. Call this before reading the object in order to change it.

        Raise `StaleDefinitionError` if another transaction has committed a conflicting hold since the statement began.
        """
        self.hold_object(catalog, oid, Hold.ALONE)

    def hold_object(self, catalog: str, oid: int, hold: Hold) -> None:
        """Hold an object until the end. Raises as `lock_object`."""
        if self._claim(self._row_key(catalog, oid), hold):
            raise _stale_error()

    def row_of(self, relation: Relation) -> CatalogKey:
        return self._row_key("pg_class", relation.oid)

    def check_held(self, key: CatalogKey, hold: Hold) -> None:
        """Raise `StaleDefinitionError` as `lock_object` does, for a key that is held by now."""
        if self._is_conflict(key, hold):
            raise _stale_error()

    def _row_key(self, catalog: str, oid: int) -> CatalogKey:
        return unique.row_key(0 if physical.tables()[catalog].shared else self.database, catalog, oid)

    def _claim(self, key: CatalogKey, hold: Hold) -> bool:
        """Hold a key. Return whether another transaction has committed a conflicting hold since this one read the catalog."""
        self._locks.claim_catalog(key, hold)
        return self._is_conflict(key, hold)

    def _is_conflict(self, key: CatalogKey, hold: Hold) -> bool:
        return self._running.committed_keys.since(key, self._definitions, hold)

    # what the history records

    def changed(self, among: AbstractSet[int] | None = None) -> None:
        """Note a change that streams must know. The catalog's state is recorded at this place, before the next write.

        `among`: the oids of the relations that may have changed (`history.touched`); None: any.
        """
        self._is_history_due = True
        self._among = None if among is None or self._among is None else self._among | among
        self.generation += 1

    @property
    def is_in_history(self) -> bool:
        """Whether the history has, or must get, rows of this transaction."""
        return self._is_history_due or self.is_recorded

    def record(self, writes: int) -> bool:
        """Record the catalog's state under a provisional LSN above all others, as it is after `writes` writes to tables.

        `commit` replaces the LSN with the entry's. Return False if there is nothing to record.
        """
        if not self._is_history_due:
            return False
        again = writes <= self._recorded_at
        if history.record(self.cursor, self.database, PROVISIONAL + self._locks.xid, writes, self._among, again=again):
            self.is_recorded, self._recorded_at = True, writes
        self._is_history_due, self._among = False, frozenset()
        return True

    def recorded_rows(self) -> Rows:
        """Return the rows of the history that this transaction has written."""
        return history.recorded(self.cursor, self.database, self._locks.xid) if self.is_recorded else []

    # savepoints and the end

    def saved(self) -> SavedCatalog:
        """Return the present content, for `restore`."""
        return SavedCatalog(self.place, self._is_history_due, self._among, self.is_recorded)

    def restore(self, saved: SavedCatalog) -> None:
        """Restore a saved content: later writes are undone."""
        self.generation += 1
        if self._recorded is not None:
            with self._commit_lock:
                if saved.place != self._recorded.place:
                    self._renewed = self._running.definitions
                    self._catalog.types_changed()
                self._recorded.rollback_to(saved.place)
        self._is_history_due, self._among, self.is_recorded = saved.is_due, saved.among, saved.is_recorded

    def commit(self) -> None:
        """Make the writes durable. The caller holds the commit lock."""
        if self._recorded is not None:
            self._recorded.commit()

    def rollback(self) -> None:
        if self._recorded is not None:
            self._recorded.rollback()


def _stale_error() -> StaleDefinitionError:
    return StaleDefinitionError("40001", "could not serialize access due to concurrent update")


_Definition = tuple["Relation | None", object, object]


def _definition(cursor: Cursor, relation: Relation) -> _Definition:
    """Return a relation as a cursor shows it, and its surroundings. None and nothing if it does not exist."""
    current = relations.find(cursor, relation.database, relation.oid)
    return (None, (), ()) if current is None else (current, *_surroundings(cursor, current))


def _surroundings(cursor: Cursor, relation: Relation) -> tuple[object, object]:
    """Return the relations that the meaning of a relation's rows depends on, and its triggers.

    These are the partitioned tables above it, because the bounds of a default partition depend on the others, and the partitions of the
    other tables of its foreign keys, because their rows are looked up.
    """
    fired = triggers.of_relation(cursor, relation.database, relation.oid) if relation.has_triggers else []
    others = {key.target for key in relation.foreign_keys} | {key.relation for key in relation.referenced}
    partitions = [relations.descendants(cursor, relation.database, oid) for oid in sorted(others)]
    return (partition.above(cursor, relation), partitions), fired
