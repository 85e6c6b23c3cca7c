"""Prepared transactions: PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED (manual, pg_prepared_xacts and 31.7).

`PreparedXact` is one of them; `PreparedTransactions` are those of a node, held by the storage. Called by the server for the three commands
and by apply workers. States:

    prepared     `add` wrote the log entry of the kind ``prepare`` and the row of hg.prepared_xact, with all actions, in one DuckDB
                 transaction. The files are in the tables' folders, no Delta version names them. The tables' write locks are held under
                 its xid, and so are those of tables that it has only locked (a row that it has written may reference theirs), the names
                 that it has created and the objects that it uses. It survives a restart: `restore` acquires the locks again.
    committed    `commit` stored an intent, wrote the tables' Delta versions, and then in one DuckDB transaction repeated the
                 transaction's catalog writes and wrote the entry ``commit prepared`` (`intent`)
    rolled back  `rollback` wrote the entry ``rollback prepared``, then removed the files

Invariant: a table has one writer, so a prepared transaction blocks all other writers of its tables until its end. PostgreSQL locks
rows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.catalog import history
from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import CatalogCursor, Rows
from headgate.catalog.hold import Hold
from headgate.catalog.replication import origin as origins
from headgate.catalog.unique import CatalogKey
from headgate.errors import PostgresError, existing
from headgate.failpoint import Step
from headgate.lsn import INVALID, Lsn
from headgate.storage.delta import file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState, same_file
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction import stored_body
from headgate.storage.transaction.intent import Intent, Intents
from headgate.storage.transaction.log import EntryKind, LogEntry, OriginProgress, TableWrite
from headgate.storage.transaction.recorded_catalog import CatalogWrite
from headgate.storage.transaction.staged import StagedTable, repeated
from headgate.storage.transaction.storage import Storage

OPERATED_ON_TEMPORARY = "cannot PREPARE a transaction that has operated on temporary objects"


@dataclass(frozen=True)
class PreparedXact:
    """One prepared transaction. `time`: when it was prepared, in µs since 2000; `position`: commit_lsn of its entry."""

    xid: int
    gid: str
    database: int
    owner: str
    tables: dict[int, tuple[int, list[Action]]]
    """By relation, the Delta version on which it was staged, and the actions."""
    created: frozenset[Key]
    dropped: frozenset[Key]
    catalog: tuple[CatalogWrite, ...]
    """Its catalog writes: method of the cursor, statement, parameters."""
    catalog_keys: Mapping[CatalogKey, Hold] = field(default_factory=dict)
    """The catalog keys that it holds."""
    read: frozenset[Key] = frozenset()
    """The tables that a serializable transaction has read. No other serializable transaction changes them before its end."""
    locked: frozenset[Key] = frozenset()
    """The tables whose lock it holds, written or not."""
    time: int = 0
    position: Lsn = INVALID

    @property
    def keys(self) -> set[Key]:
        """The tables that it will change."""
        return {(self.database, relation) for relation in self.tables} | set(self.dropped)


class PreparedTransactions:
    """The prepared transactions of a node. All methods are thread-safe."""

    def __init__(self, storage: Storage, intents: Intents) -> None:
        self._storage, self._intents = storage, intents
        self._lock = threading.RLock()
        self._staged: dict[int, dict[Key, StagedTable]] = {}
        self._busy: set[str] = set()
        """The names of transactions that a session or an apply worker is ending, those of subscriptions included."""
        self._all = _stored(storage.catalog)

    def all(self) -> list[PreparedXact]:
        with self._lock:
            return sorted(self._all.values(), key=lambda xact: xact.xid)

    def restore(self) -> None:
        """Acquire their locks again, at the node's start. Recovery may have committed some of them (`Intents.recover`)."""
        self._all = _stored(self._storage.catalog)
        for xact in self.all():
            for key in xact.keys | xact.locked:
                self._storage.locks.acquire(key, xact.xid)
            for catalog_key, hold in xact.catalog_keys.items():
                self._storage.locks.claim_catalog(catalog_key, xact.xid, hold=hold)

    def add(
        self, xact: PreparedXact, staged: dict[Key, StagedTable], writes: Sequence[TableWrite], rows: Rows, origin: OriginProgress | None
    ) -> Lsn:
        """Store a transaction as prepared now: its staged tables, its writes, and its rows of the catalog's history.

        Return the end LSN of its log entry. Raise 42710 if the gid is in use.
        """
        storage = self._storage
        with storage.commit_lock:
            with self._lock:
                if xact.gid in self._all:
                    raise PostgresError("42710", f'transaction identifier "{xact.gid}" is already in use')
            entry = storage.log.place(xact.xid, xact.database, writes, origin, kind=EntryKind.PREPARE, gid=xact.gid)
            xact = replace(xact, time=entry.commit_time, position=entry.commit_lsn)

            def write(cursor: CatalogCursor) -> None:
                storage.log.insert(cursor, entry, {})
                if origin is not None and origin.lsn:
                    origins.advance(cursor, origin.origin, origin.lsn, entry.end_lsn)
                history.repeat(cursor, rows)
                _store(cursor, xact)

            storage.catalog.change(write, Step.PREPARED)
            with self._lock:
                self._all[xact.gid] = xact
                self._staged[xact.xid] = staged
            storage.log.append(entry)
        return entry.end_lsn

    def take(self, gid: str, database: int, user: str | None) -> PreparedXact:
        """Return a transaction and mark it busy, to be ended by its owner `user` (None: any). Raise 42704, 42501, 0A000 or 55000."""
        with self._lock:
            xact = existing(self._all.get(gid), "42704", f'prepared transaction with identifier "{gid}"')
            self._check_not_busy(gid)
            if user is not None and user != xact.owner:
                hint = "Must be superuser or the user that prepared the transaction."
                raise PostgresError("42501", "permission denied to finish prepared transaction", hint=hint)
            if xact.database != database:
                hint = "Connect to the database where the transaction was prepared to finish it."
                raise PostgresError("0A000", "prepared transaction belongs to another database", hint=hint)
            self._busy.add(gid)
            return xact

    @contextlib.contextmanager
    def ending(self, gid: str) -> Iterator[None]:
        """Mark the name of a prepared transaction of a subscription busy inside the context. Raise 55000 if it is busy."""
        with self._lock:
            self._check_not_busy(gid)
            self._busy.add(gid)
        try:
            yield
        finally:
            self._free(gid)

    def _check_not_busy(self, gid: str) -> None:
        if gid in self._busy:
            raise PostgresError("55000", f'prepared transaction with identifier "{gid}" is busy')

    def commit(self, prepared: PreparedXact, origin: OriginProgress | None = None) -> Lsn:
        """Commit a prepared transaction. Return the entry's end LSN. If it fails, the transaction stays prepared."""
        storage = self._storage
        try:
            tables = self._tables(prepared)
            changed = {key: staged for key, staged in tables.items() if prepared.tables[key[1]][1]}
            intent = Intent(
                prepared.xid, prepared.database, EntryKind.COMMIT_PREPARED, (),
                {key[1]: (staged.base.version, prepared.tables[key[1]][1]) for key, staged in changed.items()},
                {key[1]: staged.base.version for key, staged in tables.items() if key not in changed},
                frozenset(key[1] for key in prepared.dropped - prepared.created), origin, prepared.catalog, False,
                prepared.gid, prepared.position,
            )  # fmt: skip
            states: dict[Key, TableState] = {key: staged.base for key, staged in tables.items()}
            try:
                if changed:
                    states |= self._intents.carry_out(intent, changed)
                with storage.commit_lock:
                    entry: LogEntry = storage.catalog.change(
                        lambda cursor: self._intents.finish_again(cursor, intent, states), Step.PREPARED_END
                    )
                    storage.tables.publish(states, set(prepared.dropped))
                    if prepared.catalog:
                        storage.running.redefined(prepared.catalog_keys)
                    storage.log.append(entry)
            except BaseException:
                if changed:
                    self._intents.undo(intent)
                raise
            if changed:
                self._intents.finished(intent)
            for key in prepared.dropped & prepared.created:
                storage.tables.forget(key)
            self.ended(prepared.gid)
        finally:
            self._free(prepared.gid)
        if intent.dropped:
            storage.clean()
        return entry.end_lsn

    def rollback(self, prepared: PreparedXact, origin: OriginProgress | None = None) -> Lsn:
        """Roll back a prepared transaction. Return the entry's end LSN."""
        storage = self._storage
        intent = Intent(
            prepared.xid, prepared.database, EntryKind.ROLLBACK_PREPARED, (), {}, {}, frozenset(), origin, (), False,
            prepared.gid, prepared.position,
        )  # fmt: skip
        try:
            with storage.commit_lock:
                entry: LogEntry = storage.catalog.change(lambda cursor: self._intents.finish(cursor, intent, {}), Step.PREPARED_END)
                storage.log.append(entry)
            for key in prepared.created:
                storage.tables.forget(key)
            for relation, (_, actions) in prepared.tables.items():
                data_location.forsake(file_action.files_made(storage.tables.path((prepared.database, relation)), actions))
            self.ended(prepared.gid)
        finally:
            self._free(prepared.gid)
        return entry.end_lsn

    def _tables(self, prepared: PreparedXact) -> dict[Key, StagedTable]:
        """Return its staged tables on their visible versions, after a restart from its actions.

        A COMMIT PREPARED that failed and was undone has left versions above those on which the tables were staged. Raise 40001 if another
        writer has changed the rows that it changes, which recovery adopts in spite of its locks.
        """
        with self._lock:
            staged = self._staged.get(prepared.xid, {})
        return {
            (prepared.database, relation): self._on_visible(
                (prepared.database, relation), staged.get((prepared.database, relation)), *written
            )
            for relation, written in prepared.tables.items()
        }

    def _on_visible(self, key: Key, staged: StagedTable | None, version: int, actions: list[Action]) -> StagedTable:
        table, visible = self._storage.tables[key], self._storage.tables.visible.get(key)
        if staged is not None and (visible is None or visible.state.version <= staged.base.version):
            return staged
        before = base = table.state(version) if staged is None else staged.base
        if visible is not None and visible.state.version > base.version:
            base = visible.state
        removed = [action["remove"]["path"] for action in actions if "remove" in action]
        if not all(same_file(before.files.get(path), base.files.get(path)) for path in removed):
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        return repeated(base, table.stage(base, actions) if actions else base, actions)

    def files(self, key: Key) -> set[DataPath]:
        """Return the files that prepared transactions have staged for a table."""
        path = self._storage.tables.path(key)
        staged = [xact.tables[key[1]][1] for xact in self.all() if xact.database == key[0] and key[1] in xact.tables]
        return {file for actions in staged for file in file_action.files_of(path, actions)}

    def ended(self, gid: str) -> None:
        """Remove a transaction that was committed or rolled back, and release its locks."""
        with self._lock:
            xact = self._all.pop(gid)
            self._staged.pop(xact.xid, None)
        self._storage.locks.release(xact.xid)

    def _free(self, gid: str) -> None:
        with self._lock:
            self._busy.discard(gid)


def check_room(limit: int, held: int) -> None:
    """Raise 55000 or 53200 if max_prepared_transactions (`limit`) allows no more than the `held` ones."""
    if not limit:
        hint = "Set max_prepared_transactions to a nonzero value."
        raise PostgresError("55000", "prepared transactions are disabled", hint=hint)
    if held >= limit:
        hint = f"Increase max_prepared_transactions (currently {limit})."
        raise PostgresError("53200", "maximum number of prepared transactions reached", hint=hint)


def _store(cursor: CatalogCursor, prepared: PreparedXact) -> None:
    body = stored_body.dump(
        (prepared.tables, prepared.created, prepared.dropped, prepared.catalog, prepared.catalog_keys, prepared.read, prepared.locked)
    )
    row = [prepared.xid, prepared.gid, prepared.database, prepared.owner, prepared.time, int(prepared.position), body]
    cursor.execute("INSERT INTO hg.prepared_xact VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def read_body(body: bytes) -> tuple[Any, ...]:
    """Return the content of a body that `_store` has written: the tables first."""
    content: tuple[Any, ...] = stored_body.load(bytes(body))
    return content


def _stored(catalog: Catalog) -> dict[str, PreparedXact]:
    """Return the prepared transactions in the catalog by their gid."""
    with contextlib.closing(catalog.cursor()) as cursor:
        rows = cursor.execute("SELECT xid, gid, dbid, owner, prepared, commit_lsn, body FROM hg.prepared_xact").fetchall()
    return {row[1]: _read(*row) for row in rows}


def _read(xid: int, gid: str, database: int, owner: str, time: int, position: int, body: bytes) -> PreparedXact:
    tables, created, dropped, catalog, *more = read_body(body)
    catalog_keys = more[0] if more else {}
    if not isinstance(catalog_keys, Mapping):  # written by an earlier version, which stored only names
        catalog_keys = dict.fromkeys(catalog_keys, Hold.ALONE)
    read, locked = (*more[1:], frozenset(), frozenset())[:2]  # earlier versions stored fewer
    return PreparedXact(xid, gid, database, owner, tables, created, dropped, catalog, catalog_keys, read, locked, time, Lsn(position))
