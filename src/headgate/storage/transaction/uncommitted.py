"""A transaction that has not committed: its locks and catalog keys, its snapshot, its savepoints, the writes that it stages (`staging`).

This is the base class of `transaction.Transaction` and has no other users.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headgate.catalog import history, physical, unique
from headgate.catalog.hold import Hold, is_pinned
from headgate.catalog.relation import partition
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.catalog.unique import CatalogKey
from headgate.catalog.unwritten import PROVISIONAL
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import write
from headgate.storage.delta import delta_table, file_action, parquet
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.engine import Engine
from headgate.storage.lock import Key
from headgate.storage.transaction.catalog_transaction import RecordedCatalog
from headgate.storage.transaction.log import TableWrite, WriteKind, WrittenFile
from headgate.storage.transaction.pending_rows import PendingRows, Saved
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.staging import SavedStaging, Staging
from headgate.types import registry

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.catalog.relation.relation import Relation


MOST_SUBTRANSACTIONS = 64
"""Number of subtransactions that get their own xid, as many as PostgreSQL caches for a session (PGPROC_MAX_CACHED_SUBXIDS).

Writes of different subtransactions go into different files. Later ones use the transaction's xid, which limits the number of files.
"""


class StaleDefinitionError(PostgresError):
    """The table of a statement's plan changed while it waited. The statement has not written to it and may be planned again."""


@dataclass
class _Savepoint:
    name: str
    staging: SavedStaging
    catalog: int
    history: tuple[bool, AbstractSet[int] | None, bool]
    pending: Saved
    xid: int = 0


@dataclass(frozen=True)
class Handed:
    """The writes of a prepared transaction: to tables, to the catalog (statements, held keys) and to the catalog's history (rows).

    `read`: the tables that a serializable transaction has read.
    """

    xid: int
    database: int
    writes: list[TableWrite]
    tables: dict[Key, StagedTable]
    created: set[Key]
    dropped: set[Key]
    catalog: list[tuple[str, str, Any]]
    catalog_keys: dict[CatalogKey, Hold]
    history: list[tuple[Any, ...]]
    read: frozenset[Key]


class Uncommitted:
    """A transaction that has not committed (see the module)."""

    def __init__(self, engine: Engine, database: int) -> None:
        self.engine = engine
        self.database = database
        self.cancelled: Callable[[], None] | None = None
        """Called while waiting for a lock. It raises to end the wait."""
        self._catalog: Any = None
        self.staging = Staging(engine.table, lambda key: engine.visible[key].state)
        self._pending = PendingRows(self)
        self._noted = 0
        """Number of writes noted for the log, without those of pending rows."""
        self._looking_up = False
        self._seeing_newest = False
        self._view: Any = None
        self._view_lsn: Lsn | None = None
        self._fixed = False
        """Whether the view belongs to the whole transaction and not to one statement."""
        self._serializable = False
        self._read: set[Key] = set()
        """Tables that a serializable transaction has read."""
        self._definitions = engine.definitions
        """The state of the catalog (`Engine.definitions`) that belongs to the snapshot of the tables' rows."""
        self._renewed = engine.definitions
        """The state of the catalog that the catalog transaction shows. It is newer after `_newest_catalog` has replayed the changes."""
        self.shows_old_catalog = False
        """Whether the statement misses catalog changes that others have committed. If it fails, it must be run again."""
        self.shows_types = 0
        """The last change of types (`Catalog.type_changes`) that the catalog transaction shows."""
        self._locked: set[Key] = set()
        self._catalog_keys: dict[CatalogKey, Hold] = {}
        """Catalog keys that the transaction holds until it ends, including those that a savepoint has rolled back."""
        self._savepoints: list[_Savepoint] = []
        self._subtransactions = 0
        """Number of savepoints that have an xid."""
        self._history_due = False
        self._history_among: AbstractSet[int] | None = frozenset()
        """Relations (oids) that may have changed if history is due. None: any relation."""
        self._history_recorded = False
        self._partitioned: dict[int, Any] = {}
        """Partitioned tables as this transaction's catalog defines them."""
        self.unpreparable: str | None = None
        """The reason why the transaction cannot be prepared."""
        self._ended = False
        self._named: set[Key] = set()
        """Tables of which a Delta version may name the staged files, because the commit has begun."""

    @functools.cached_property
    def xid(self) -> int:
        """Return the transaction id, assigned at the first call (a transaction that only reads needs none)."""
        return self.engine.log.next_xid()

    @property
    def catalog(self) -> Any:
        """Return the catalog transaction that commits with this one. It begins at the first call."""
        if self._catalog is None:
            with self.engine.commit_lock:
                self._definitions, self.shows_types = self.engine.definitions, self.engine.catalog.type_changes
                self._renewed = self._definitions
                self._catalog = RecordedCatalog(self.engine.catalog, self.claim_catalog, self.use_object, self._newest_catalog)
        return self._catalog

    def _newest_catalog(self, sql: str) -> CatalogCursor:
        """Return a cursor whose query sees all committed catalog changes and this transaction's own, also under REPEATABLE READ.

            others have committed changes of the tables it reads    this one has written them    answered by
            no                                                      yes or no                    the transaction's cursor
            yes                                                     no                           a cursor in autocommit
            yes                                                     yes                          the transaction's cursor, after a replay

        DuckDB cannot show both, so the transaction's changes are replayed on the newest catalog. From then on `_check_seen` refuses
        tables that another transaction has changed.
        """
        engine, catalog = self.engine, self.catalog
        own = cast("CatalogCursor", catalog.cursor)
        if not catalog.failed and own.has_newest(sql):
            return own
        if not own.has_written(sql):
            return cast("CatalogCursor", catalog.committed)
        with engine.commit_lock:
            self._renewed, self.shows_types = engine.definitions, engine.catalog.type_changes
            catalog.renew(catalog.place)
        self._partitioned.clear()
        return cast("CatalogCursor", catalog.cursor)

    def _check_seen(self, relation: Relation) -> None:
        """Raise 40001 if the catalog shows a definition that another transaction has committed since the rows' snapshot was taken."""
        if self._renewed == self._definitions and not self.shows_old_catalog:
            return
        if self.engine.committed_keys.since(self._row_key("pg_class", relation.oid), self._definitions, Hold.USE):
            raise StaleDefinitionError("40001", "could not serialize access due to concurrent update")

    @property
    def cursor(self) -> Any:
        """Return the DuckDB cursor of the catalog transaction."""
        return self.catalog.cursor

    def claim_catalog(self, key: CatalogKey) -> None:
        """Hold a catalog key until the end, waiting for others that have claimed it. Raise 23505 if it has been committed.

        The caller has checked that the key is not in the catalog as this transaction sees it.
        """
        if not self._claim_catalog(key):
            return
        cursor = self.engine.catalog.cursor()
        try:
            is_committed = unique.is_committed(cursor, key)
        finally:
            cursor.close()
        if is_committed:
            raise unique.violation(key)

    def use_object(self, catalog: str, oid: int) -> None:
        """Keep other transactions from dropping or renaming an object until the end. Call this before naming it in a new object.

        Transactions that use an object do not wait for each other. Raises as `lock_object` does.
        """
        if not is_pinned(catalog, oid):
            self._hold_object(catalog, oid, Hold.USE)

    def change_object(self, catalog: str, oid: int) -> None:
        """Keep other transactions from changing or dropping an object until the end, though not from using it. Raises as `lock_object`."""
        self._hold_object(catalog, oid, Hold.CHANGE)

    def lock_object(self, catalog: str, oid: int) -> None:
        """Keep other transactions from using an object until the end. Call this before reading the object in order to change it.

        Raise `StaleDefinitionError` if another transaction has committed a conflicting hold since the statement began.
        """
        self._hold_object(catalog, oid, Hold.ALONE)

    def _hold_object(self, catalog: str, oid: int, hold: Hold) -> None:
        if self._claim_catalog(self._row_key(catalog, oid), hold):
            raise StaleDefinitionError("40001", "could not serialize access due to concurrent update")

    def _row_key(self, catalog: str, oid: int) -> CatalogKey:
        return unique.row_key(0 if physical.tables()[catalog].shared else self.database, catalog, oid)

    def _claim_catalog(self, key: CatalogKey, hold: Hold = Hold.ALONE) -> bool:
        """Hold a key. Return whether another transaction has committed a conflicting hold since this one read the catalog."""
        self.engine.locks.claim_catalog(key, self.xid, self.cancelled, hold)
        return self._holds(key, hold)

    def _holds(self, key: CatalogKey, hold: Hold) -> bool:
        self._catalog_keys[key] = max(hold, self._catalog_keys.get(key, hold))
        return self.engine.committed_keys.since(key, self._definitions, hold)

    # savepoints

    def savepoint(self, name: str) -> None:
        """Define a savepoint. A name may be used again and then hides the earlier savepoint."""
        place = self._catalog.place if self._catalog is not None else 0
        recorded = (self._history_due, self._history_among, self._history_recorded)
        saved = _Savepoint(name, self.staging.saved(), place, recorded, self._pending.saved())
        self._savepoints.append(saved)

    def rollback_to(self, name: str) -> None:
        """Undo the writes after a savepoint, which stays defined."""
        index = self._find(name)
        saved = self._savepoints[index]
        for key in self.staging.created - saved.staging.created:
            self.engine.forget(key)
        self.staging.restore(saved.staging)
        self._partitioned.clear()
        self._pending.restore(saved.pending)
        if self._catalog is not None:
            with self.engine.commit_lock:
                if saved.catalog != self._catalog.place:
                    self._renewed = self.engine.definitions
                    self.engine.catalog.types_changed()
                self._catalog.rollback_to(saved.catalog)
        self._history_due, self._history_among, self._history_recorded = saved.history
        del self._savepoints[index + 1 :]
        saved.xid = 0

    def release(self, name: str) -> None:
        """Release a savepoint and those after it."""
        del self._savepoints[self._find(name) :]

    def _find(self, name: str) -> int:
        for index in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[index].name == name:
                return index
        raise PostgresError("3B001", f'savepoint "{name}" does not exist')

    def lock(self, relation: Relation, *, wait: bool = True) -> None:
        """Acquire the relation's write lock until the end. Called before the table is read and written, so that the read stays current."""
        self._lock(relation, wait=wait)

    def own(self, relation: Relation, hold: Hold = Hold.ALONE) -> None:
        """Keep others from writing to, using or changing a relation until the end. ALTER and DROP call it first. Raises as `lock_object`.

        With `Hold.CHANGE` others may use it.
        """
        if relation.kind != RelationKind.TABLE:
            self._hold_object("pg_class", relation.oid, hold)
            return
        self._pending.settle()
        key, row = (relation.database, relation.oid), self._row_key("pg_class", relation.oid)
        self.engine.locks.acquire(key, self.xid, self.cancelled, row=(row, hold))
        if self._holds(row, hold):
            raise StaleDefinitionError("40001", "could not serialize access due to concurrent update")
        if self._fixed and self._is_behind(key, self.staging.staged(key)):  # its rows would be altered as the snapshot shows them
            raise StaleDefinitionError("40001", "could not serialize access due to concurrent update")
        self._lock(relation, damaged=True)  # DROP accepts a table that cannot be read; a later read raises the error

    def _lock_together(self, owned: Sequence[Any], hold: Hold) -> None:
        """Wait until no other transaction writes to or uses these relations, without locking any while it waits; `own` must follow."""
        self._pending.settle()
        rows = {self._row_key("pg_class", member.oid): hold for member in owned}
        keys = [(member.database, member.oid) for member in owned if member.kind == "r"]
        if keys:
            self.engine.locks.acquire_all(keys, self.xid, rows, self.cancelled)

    def has_written(self, relation: Relation) -> bool:
        """Whether this transaction has written to the relation."""
        key = (relation.database, relation.oid)
        return key in self.staging.tables or self._pending.has(key)

    def catalog_changed(self, among: AbstractSet[int] | None = None) -> None:
        """Note a catalog change that streams must know. The catalog's state is recorded at this place, before the next write.

        `among`: the oids of the relations that may have changed (`history.touched`); None: any.
        """
        self._pending.settle()
        self._history_due = True
        self._history_among = None if among is None or self._history_among is None else self._history_among | among
        self._partitioned.clear()

    def _record_history(self) -> None:
        """Record the catalog's state under a provisional LSN above all others. `commit` replaces it with the entry's LSN."""
        if self._history_due:
            place = PROVISIONAL + self.xid, len(self.staging.writes)
            if history.record(self.cursor, self.database, *place, self._history_among):
                self._history_recorded = True
            self._history_due, self._history_among = False, frozenset()
            self.staging.held.catalog_recorded()

    # inside

    def _table(self, relation: Relation) -> delta_table.DeltaTable:
        return self.engine.table((relation.database, relation.oid))

    def _lock(self, relation: Relation, *, beside_claims: bool = False, wait: bool = True, damaged: bool = False) -> Key:
        """Acquire the table's lock and move the view to its newest committed state. `damaged`: the table may be unreadable."""
        self._pending.settle()
        key = (relation.database, relation.oid)
        self.engine.locks.acquire(key, self.xid, self.cancelled, None if wait else 0, beside_claims=beside_claims)
        if key not in self._locked:
            try:
                self.engine.foreign.adopt(key)
            except PostgresError as error:
                if not damaged or error.sqlstate != "XX001":
                    raise
            self._check_definition(relation)
            self._locked.add(key)
        self._see_newest(key)
        return key

    def _check_definition(self, relation: Relation) -> None:
        """Raise `StaleDefinitionError` if another transaction has changed the relation's definition since the statement began."""
        if self.engine.definitions == self._definitions or relation.oid in {created[1] for created in self.staging.created}:
            return
        cursor = self.engine.catalog.cursor()
        try:
            current = relations.find(cursor, relation.database, relation.oid)
            above = partition.above(cursor, relation) if current == relation else []
        finally:
            cursor.close()
        if current is None:  # another relation may have its name by now, and rows of a partition may belong elsewhere
            raise StaleDefinitionError("42P01", f'relation "{relation.name}" does not exist')
        # the bounds of a default partition depend on the others
        if current != relation or (above and above != partition.above(self.cursor, relation)) or self._has_other_types(relation):
            raise StaleDefinitionError("40001", "could not serialize access due to concurrent update")

    def _has_other_types(self, relation: Relation) -> bool:
        """Whether another transaction has changed a domain's constraints or an enum's labels among the columns' types."""
        of_users = {oid for column in relation.columns for oid in registry.known().of_users(column.type_oid)}
        return any(self.engine.committed_keys.since(self._row_key("pg_type", oid), self._definitions, Hold.USE) for oid in of_users)

    def _see_newest(self, key: Key) -> None:
        shown = self.engine.visible.get(key)
        if self._fixed or self._view is None or shown is None or self._view.get(key) is shown:
            return
        self._view = {**self._view, key: shown}  # the statement changes the rows as committed while it waited

    def append_pending(self, relation: Relation, rows: pa.Table, made: tuple[Lsn, int]) -> None:
        """Write rows that were pending (for `PendingRows`). `made`: `seen` and `xid` of the INSERT."""
        key = self._lock(relation)
        written = write.append(self.engine.table(key), relation, self.staging.base(key), rows, kept=self.staging.held.room)
        self._stage_write(key, written.actions, written.changes, made=made, rows=written.rows)

    def _is_behind(self, key: Key, staged: StagedTable) -> bool:
        """Whether a transaction that reads as of its begin is about to write to a table that has changed since."""
        shown = self._view.get(key) if self._fixed else None
        return shown is not None and not staged.is_changed and shown.state is not staged.base

    def _stage(self, key: Key, actions: Sequence[Action]) -> None:
        """Stage actions that change no rows."""
        staged, table = self.staging.staged(key), self.engine.table(key)
        seen = self.staging.seen.get(key)
        if seen is None and self._is_behind(key, staged):
            seen = self._view[key].state
        files = self.staging.files.setdefault(key, set())
        files.update(file for file in file_action.files_made(table.path, actions) if not parquet.is_unwritten(file.name))
        if seen is not None:
            on_snapshot = write.on_other_state(table, staged.state, seen, actions)
            files.update(file_action.vectors_of(table.path, on_snapshot))
            self.staging.seen[key] = table.stage(seen, on_snapshot)
        self.staging.tables[key] = staged.with_actions(table.stage(staged.state, actions), actions)

    def _stage_write(
        self, key: Key, actions: list[Action], changes: int, *, kind: WriteKind = "write", statement: int | None = None, options: int = 0,
        made: tuple[Lsn, int] | None = None, rows: pa.Table | None = None,
    ) -> None:  # fmt: skip
        """Stage a write and note it for the log. `made`: the log's end and the subtransaction at its statement, if that ran earlier.

        `rows`: its change rows, which are kept in memory until the end.
        """
        self._record_history()
        self._stage(key, actions)
        staged = self.staging.tables[key]
        named = [action[name] for action in actions for name in ("add", "cdc") if name in action and kind == "write"]
        size = sum(file["size"] for file in named if not file_action.is_kept(file))
        physical = {name: stored for name, stored in staged.state.physical.items() if stored != name} or None
        files = write.files_of(self.engine.path(key), actions, rows) if kind == "write" else ()
        if rows is not None:
            self.staging.held.add(len(self.staging.writes), rows, self.engine.definitions if made is None else None)
        self._note(key[1], kind, staged.base.version + 1, changes, statement, options, size, made, files, physical)

    def _note(
        self, relation: int, kind: WriteKind, version: int, changes: int, statement: int | None = None, options: int = 0, size: int = 0,
        made: tuple[Lsn, int] | None = None, files: tuple[WrittenFile, ...] | None = None, physical: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        seq = len(self.staging.writes)
        self._noted += made is None
        seen, xid = made or (self.engine.log.end, self._subtransaction())
        place = seq if statement is None else statement
        self.staging.writes.append(
            TableWrite(
                seq, relation, kind, version, changes, place, options, bytes=size, seen=seen, xid=xid, files=files, physical=physical
            )
        )

    def _name_truncated(self, relation: int, statement: int, options: int) -> None:
        """Note that a partitioned table was truncated. It has no rows of its own, but the publication may name it."""
        self._record_history()
        self._note(relation, "truncate", 0, 0, statement, options)

    def adopt(self, key: Key, state: TableState, version: int, kind: Any, changes: int, size: int) -> None:
        """Adopt a commit of a foreign writer (`foreign`, which holds the lock). `kind` None: it changed no rows."""
        self.staging.tables[key] = StagedTable.of(state)
        if kind is not None:
            self._note(key[1], kind, version, changes, size=size)

    def _subtransaction(self) -> int:
        """Return the xid of the innermost savepoint, 0 outside of savepoints and after MOST_SUBTRANSACTIONS of them."""
        if not self._savepoints:
            return 0
        innermost = self._savepoints[-1]
        if not innermost.xid and self._subtransactions < MOST_SUBTRANSACTIONS:
            _ = self.xid  # assigned first: the transaction's own xid must be the smaller one
            innermost.xid = self.engine.log.next_xid()
            self._subtransactions += 1
        return innermost.xid

    def _end(self) -> None:
        self._ended = True
        if "xid" in self.__dict__ and self.engine.intents.is_settled(self.xid):
            self.engine.locks.release(self.xid)
        self.engine.ended(self)
