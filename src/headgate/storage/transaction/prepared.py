"""Prepared transactions: PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED (manual, pg_prepared_xacts and 31.7).

`PreparedXact` is one; `PreparedTransactions` are those of a node, which the engine holds. Called by the server for the three commands
and by apply workers. States:

    prepared     `prepare` wrote the log entry of the kind ``prepare`` and the row of hg.prepared_xact, with all actions, in one DuckDB
                 transaction. The files lie in the tables' folders, no Delta version names them, the tables' write locks are held under
                 its xid, and so are the names that it has given and the objects that it uses. Survives a restart: `restore` takes the
                 locks again.
    committed    `commit` stored an intent, wrote the tables' Delta versions, and then in one DuckDB transaction repeated what the
                 transaction had written into the catalog and wrote the entry ``commit prepared`` (`intent`)
    rolled back  `rollback` wrote the entry ``rollback prepared``, then removed the files

What must hold: a table has one writer, so a prepared transaction keeps all other writers of its tables waiting until its end.
PostgreSQL locks rows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.catalog import history
from headgate.catalog.hold import Hold
from headgate.catalog.unique import CatalogKey
from headgate.errors import PostgresError
from headgate.failpoint import Step
from headgate.lsn import Lsn
from headgate.storage.delta import file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key
from headgate.storage.transaction import stored_body
from headgate.storage.transaction.intent import Intent
from headgate.storage.transaction.log import EntryKind, LogEntry, OriginProgress
from headgate.storage.transaction.staged import StagedTable, repeated

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.storage.engine import Engine
    from headgate.storage.transaction.transaction import Transaction


@dataclass(frozen=True)
class PreparedXact:
    """One prepared transaction. `time`: when it was prepared, in µs since 2000; `position`: commit_lsn of its entry."""

    xid: int
    gid: str
    database: int
    owner: str
    time: int
    position: Lsn
    tables: dict[int, tuple[int, list[Action]]]
    """By relation the Delta version on which it was staged, and the actions."""
    created: frozenset[Key]
    dropped: frozenset[Key]
    catalog: tuple[tuple[str, str, Any], ...]
    """What it wrote into the catalog: method of the cursor, statement, parameters."""
    catalog_keys: Mapping[CatalogKey, Hold] = field(default_factory=dict)
    """The keys of catalogs that it holds."""
    read: frozenset[Key] = frozenset()
    """The tables that a serializable one has read: no other serializable transaction changes them before its end."""

    @property
    def keys(self) -> set[Key]:
        """The tables that it holds locked."""
        return {(self.database, relation) for relation in self.tables} | set(self.dropped)


class PreparedTransactions:
    """The prepared transactions of a node; any thread may call anything."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.RLock()
        self._staged: dict[int, dict[Key, StagedTable]] = {}
        self._busy: set[str] = set()
        cursor = engine.catalog.cursor()
        rows = cursor.execute("SELECT xid, gid, dbid, owner, prepared, commit_lsn, body FROM hg.prepared_xact").fetchall()
        cursor.close()
        self._all = {row[1]: _read(*row) for row in rows}

    def all(self) -> list[PreparedXact]:
        """Those that wait for their end, by xid."""
        with self._lock:
            return sorted(self._all.values(), key=lambda one: one.xid)

    def restore(self) -> None:
        """At the node's start: takes the locks again."""
        for one in self.all():
            for key in one.keys:
                self._engine.locks.acquire(key, one.xid)
            for catalog_key, hold in one.catalog_keys.items():
                self._engine.locks.claim_catalog(catalog_key, one.xid, hold=hold)

    def prepare(self, transaction: Transaction, gid: str, owner: str) -> Lsn:
        """Prepares a transaction under a name; the end LSN of the entry. 42710 where the name is in use; it is rolled back on any error."""
        engine = self._engine
        try:
            handed = transaction.hand_over()
            with transaction.in_series(prepares=True), engine.commit_lock:
                with self._lock:
                    if gid in self._all:
                        raise PostgresError("42710", f'transaction identifier "{gid}" is already in use')
                entry = engine.log.place(handed.xid, handed.database, handed.writes, None, kind=EntryKind.PREPARE, gid=gid)
                tables = {key[1]: (staged.base.version, staged.actions()) for key, staged in handed.tables.items()}
                one = PreparedXact(
                    handed.xid,
                    gid,
                    handed.database,
                    owner,
                    entry.commit_time,
                    entry.commit_lsn,
                    tables,
                    frozenset(handed.created),
                    frozenset(handed.dropped),
                    tuple(handed.catalog),
                    handed.catalog_keys,
                    handed.read,
                )

                def write(cursor: CatalogCursor) -> None:
                    engine.log.insert(cursor, entry, {})
                    history.repeat(cursor, handed.history)
                    _store(cursor, one)

                engine.catalog.change(write, Step.PREPARED)
                with self._lock:
                    self._all[gid] = one
                    self._staged[one.xid] = handed.tables
                engine.log.append(entry)
        except Exception:
            transaction.rollback()
            raise
        transaction.handed_over()
        engine.locks.disown(handed.xid)
        return entry.end_lsn

    def take(self, gid: str, database: int, user: str | None) -> PreparedXact:
        """The transaction of this name, to be ended by `commit` or `rollback`; `user` None may end any. 42704, 42501, 0A000, 55000."""
        with self._lock:
            one = self._all.get(gid)
            if one is None:
                raise PostgresError("42704", f'prepared transaction with identifier "{gid}" does not exist')
            if gid in self._busy:
                raise PostgresError("55000", f'prepared transaction with identifier "{gid}" is busy')
            if user is not None and user != one.owner:
                hint = "Must be superuser or the user that prepared the transaction."
                raise PostgresError("42501", "permission denied to finish prepared transaction", hint=hint)
            if one.database != database:
                hint = "Connect to the database where the transaction was prepared to finish it."
                raise PostgresError("0A000", "prepared transaction belongs to another database", hint=hint)
            self._busy.add(gid)
            return one

    def commit(self, one: PreparedXact, origin: OriginProgress | None = None) -> Lsn:
        """COMMIT PREPARED; the end LSN of the entry. Where it fails, the transaction stays prepared."""
        engine = self._engine
        try:
            tables = self._tables(one)
            changed = {key: staged for key, staged in tables.items() if one.tables[key[1]][1]}
            intent = Intent(
                one.xid, one.database, EntryKind.COMMIT_PREPARED, (), {key[1]: one.tables[key[1]] for key in changed},
                {key[1]: staged.base.version for key, staged in tables.items() if key not in changed},
                frozenset(key[1] for key in one.dropped - one.created), origin, one.catalog, False, one.gid, one.position,
            )  # fmt: skip
            states: dict[Key, TableState] = {key: staged.base for key, staged in tables.items()}
            try:
                if changed:
                    states |= engine.intents.carry_out(intent, changed)
                with engine.commit_lock:
                    entry: LogEntry = engine.catalog.change(
                        lambda cursor: engine.intents.finish_again(cursor, intent, states), Step.PREPARED_END
                    )
                    engine.publish(states, set(one.dropped))
                    if one.catalog:
                        engine.redefined(one.catalog_keys)
                    engine.log.append(entry)
            except BaseException:
                if changed:
                    engine.intents.take_back(intent)
                raise
            if changed:
                engine.intents.finished(intent)
            for key in one.dropped & one.created:
                engine.forget(key)
            self.ended(one.gid)
        finally:
            self._free(one)
        if intent.dropped:
            engine.clean()
        return entry.end_lsn

    def rollback(self, one: PreparedXact, origin: OriginProgress | None = None) -> Lsn:
        """ROLLBACK PREPARED; the end LSN of the entry."""
        engine = self._engine
        intent = Intent(
            one.xid, one.database, EntryKind.ROLLBACK_PREPARED, (), {}, {}, frozenset(), origin, (), False, one.gid, one.position
        )  # fmt: skip
        try:
            with engine.commit_lock:
                entry: LogEntry = engine.catalog.change(lambda cursor: engine.intents.finish(cursor, intent, {}), Step.PREPARED_END)
                engine.log.append(entry)
            for key in one.created:
                engine.forget(key)
            for relation, (_, actions) in one.tables.items():
                data_location.forsake(file_action.files_made(engine.path((one.database, relation)), actions))
            self.ended(one.gid)
        finally:
            self._free(one)
        return entry.end_lsn

    def _tables(self, one: PreparedXact) -> dict[Key, StagedTable]:
        """What it has staged; after a restart from its actions."""
        with self._lock:
            found = self._staged.get(one.xid)
        if found is not None:
            return found
        made = {}
        for relation, (version, actions) in one.tables.items():
            table = self._engine.table((one.database, relation))
            base = table.state(version)
            made[one.database, relation] = repeated(base, table.stage(base, actions) if actions else base, actions)
        return made

    def files(self, key: Key) -> set[DataPath]:
        """The files that prepared transactions have staged for a table."""
        path = self._engine.path(key)
        found = [one.tables[key[1]][1] for one in self.all() if one.database == key[0] and key[1] in one.tables]
        return {file for actions in found for file in file_action.files_of(path, actions)}

    def ended(self, gid: str) -> None:
        """It is committed or rolled back, also by recovery: its locks are free."""
        with self._lock:
            one = self._all.pop(gid)
            self._staged.pop(one.xid, None)
        self._engine.locks.release(one.xid)

    def _free(self, one: PreparedXact) -> None:
        with self._lock:
            self._busy.discard(one.gid)


def check_room(limit: int, held: int) -> None:
    """55000 and 53200 where max_prepared_transactions (`limit`) has no room beside those that are `held`."""
    if not limit:
        hint = "Set max_prepared_transactions to a nonzero value."
        raise PostgresError("55000", "prepared transactions are disabled", hint=hint)
    if held >= limit:
        hint = f"Increase max_prepared_transactions (currently {limit})."
        raise PostgresError("53200", "maximum number of prepared transactions reached", hint=hint)


def _store(cursor: CatalogCursor, one: PreparedXact) -> None:
    body = stored_body.dump((one.tables, one.created, one.dropped, one.catalog, one.catalog_keys, one.read))
    row = [one.xid, one.gid, one.database, one.owner, one.time, int(one.position), body]
    cursor.execute("INSERT INTO hg.prepared_xact VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def read_body(body: bytes) -> tuple[Any, ...]:
    """What `_store` has stored: the tables first."""
    found: tuple[Any, ...] = stored_body.load(bytes(body))
    return found


def _read(xid: int, gid: str, database: int, owner: str, time: int, position: int, body: bytes) -> PreparedXact:
    tables, created, dropped, catalog, *more = read_body(body)
    held = more[0] if more else {}
    if not isinstance(held, Mapping):  # of an earlier version, which had names only
        held = dict.fromkeys(held, Hold.ALONE)
    read = more[1] if len(more) > 1 else frozenset()
    return PreparedXact(xid, gid, database, owner, time, Lsn(position), tables, created, dropped, catalog, held, read)
