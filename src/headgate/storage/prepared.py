"""Prepared transactions: PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED (manual, pg_prepared_xacts and 31.7).

`Prepared` is one; `PreparedTransactions` are those of a node, which the engine holds. Called by the server for the three commands
and by apply workers. States:

    prepared     `prepare` wrote the log entry of the kind ``prepare`` and the row of hg.prepared_xact in one DuckDB transaction. The Delta
                 versions are there, no reader sees them, the tables' write locks are held under its xid. Survives a restart:
                 `restore` takes the locks again, recovery leaves the versions alone.
    committed    `commit` repeated what the transaction had written into the catalog, named the versions in table_version and wrote the
                 entry ``commit prepared``, in one DuckDB transaction
    rolled back  `rollback` wrote the entry ``rollback prepared`` and then took the versions back by their inverse; after a crash
                 between the two, recovery does

What must hold: a table has one writer, so a prepared transaction keeps all other writers of its tables waiting until its end.
PostgreSQL locks rows.
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.catalog import history
from headgate.catalog import origin as origins
from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage.lock import Key
from headgate.storage.log import EntryKind, LogEntry, OriginProgress, TableVersion
from headgate.storage.mark import undo_mark
from headgate.storage.recorded import repeat
from headgate.storage.visible import Visible

if TYPE_CHECKING:
    from headgate.storage.engine import Engine
    from headgate.storage.transaction import Transaction


@dataclass(frozen=True)
class Prepared:
    """One prepared transaction. `time`: when it was prepared, in µs since 2000; `position`: commit_lsn of its entry."""

    xid: int
    gid: str
    database: int
    owner: str
    time: int
    position: Lsn
    versions: dict[int, int]
    """Delta version by relation."""
    created: frozenset[Key]
    dropped: frozenset[Key]
    catalog: tuple[tuple[str, str, Any], ...]
    """What it wrote into the catalog: method of the cursor, statement, parameters."""

    @property
    def keys(self) -> set[Key]:
        """The tables that it holds locked."""
        return {(self.database, relation) for relation in self.versions} | set(self.dropped)


class PreparedTransactions:
    """The prepared transactions of a node; any thread may call anything."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.RLock()
        self._states: dict[int, dict[Key, Visible]] = {}
        self._busy: set[str] = set()
        cursor = engine.catalog.cursor()
        rows = cursor.execute("SELECT xid, gid, dbid, owner, prepared, commit_lsn, body FROM hg.prepared_xact").fetchall()
        cursor.close()
        self._all = {row[1]: _read(*row) for row in rows}

    def all(self) -> list[Prepared]:
        """Those that wait for their end, by xid."""
        with self._lock:
            return sorted(self._all.values(), key=lambda one: one.xid)

    def restore(self) -> None:
        """At the node's start: takes the locks again."""
        for one in self.all():
            for key in one.keys:
                self._engine.locks.acquire(key, one.xid)

    def prepare(self, transaction: Transaction, gid: str, owner: str) -> Lsn:
        """Prepares a transaction under a name; the end LSN of the entry. 42710 where the name is in use; it is rolled back on any error."""
        engine = self._engine
        try:
            handed = transaction.hand_over()
            with engine.commit_lock:
                with self._lock:
                    if gid in self._all:
                        raise PostgresError("42710", f'transaction identifier "{gid}" is already in use')
                entry = engine.log.place(handed.xid, handed.database, handed.writes, None, kind=EntryKind.PREPARE, gid=gid)
                versions = {key[1]: state.version for key, state in handed.states.items() if key not in handed.dropped}
                one = Prepared(
                    handed.xid,
                    gid,
                    handed.database,
                    owner,
                    entry.commit_time,
                    entry.commit_lsn,
                    versions,
                    frozenset(handed.created),
                    frozenset(handed.dropped),
                    tuple(handed.catalog),
                )

                def write(cursor: Any) -> None:
                    engine.log.insert(cursor, entry, {})
                    history.repeat(cursor, handed.history)
                    _store(cursor, one)

                engine.catalog.change(write)
                with self._lock:
                    self._all[gid] = one
                    self._states[one.xid] = {key: Visible(state=state) for key, state in handed.states.items()}
                engine.log.append(entry)
        except Exception:
            transaction.rollback()
            raise
        transaction.handed_over()
        return entry.end_lsn

    def take(self, gid: str, database: int, user: str | None) -> Prepared:
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

    def commit(self, one: Prepared, origin: OriginProgress | None = None) -> Lsn:
        """COMMIT PREPARED; the end LSN of the entry."""
        engine = self._engine
        try:
            with engine.commit_lock:
                entry = self._entry(one, EntryKind.COMMIT_PREPARED, origin)
                kept_drops = one.dropped - one.created
                versions = {relation: TableVersion(version) for relation, version in one.versions.items()}
                versions |= {key[1]: TableVersion(0, dropped=True) for key in kept_drops}

                def write(cursor: Any) -> None:
                    repeat(cursor, one.catalog)
                    history.place_prepared(cursor, one.database, one.xid, int(entry.commit_lsn))
                    self._finish(cursor, one, entry, versions, origin)

                states = {key: shown.state for key, shown in self._visible(one).items()}
                engine.catalog.change(write)
                engine.publish(states, set(one.dropped))
                engine.log.append(entry)
            for key in one.dropped & one.created:
                engine.forget(key)
            self._ended(one)
        finally:
            self._free(one)
        if kept_drops:
            engine.clean()
        return entry.end_lsn

    def rollback(self, one: Prepared, origin: OriginProgress | None = None) -> Lsn:
        """ROLLBACK PREPARED; the end LSN of the entry."""
        engine = self._engine
        try:
            with engine.commit_lock:
                entry = self._entry(one, EntryKind.ROLLBACK_PREPARED, origin)
                engine.catalog.change(lambda cursor: self._finish(cursor, one, entry, {}, origin))
                engine.log.append(entry)
            restored = {}
            for key, shown in self._visible(one).items():
                if key in one.created:
                    engine.forget(key)
                else:
                    before = engine.visible[key].state
                    restored[key] = engine.table(key).undo(shown.state, before, undo_mark(before.version))
            with engine.commit_lock:
                engine.publish(restored, set())
            self._ended(one)
        finally:
            self._free(one)
        return entry.end_lsn

    def _entry(self, one: Prepared, kind: EntryKind, origin: OriginProgress | None) -> LogEntry:
        return self._engine.log.place(one.xid, one.database, (), origin, kind=kind, gid=one.gid, prepared=one.position)

    def _finish(
        self, cursor: Any, one: Prepared, entry: LogEntry, versions: dict[int, TableVersion], origin: OriginProgress | None
    ) -> None:
        self._engine.log.insert(cursor, entry, versions)
        cursor.execute("DELETE FROM hg.prepared_xact WHERE xid = ?", [one.xid])
        if origin:
            origins.advance(cursor, origin.origin, origin.lsn, entry.end_lsn)

    def _visible(self, one: Prepared) -> dict[Key, Visible]:
        """What the tables will look like; after a restart read from their logs."""
        with self._lock:
            found = self._states.get(one.xid)
        if found is not None:
            return found
        tables = {(one.database, relation): version for relation, version in one.versions.items()}
        return {key: Visible(state=self._engine.table(key).state(version)) for key, version in tables.items()}

    def _ended(self, one: Prepared) -> None:
        self._engine.locks.release(one.xid)
        with self._lock:
            del self._all[one.gid]
            self._states.pop(one.xid, None)

    def _free(self, one: Prepared) -> None:
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


def _store(cursor: Any, one: Prepared) -> None:
    body = pickle.dumps((one.versions, one.created, one.dropped, one.catalog))
    row = [one.xid, one.gid, one.database, one.owner, one.time, int(one.position), body]
    cursor.execute("INSERT INTO hg.prepared_xact VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _read(xid: int, gid: str, database: int, owner: str, time: int, position: int, body: bytes) -> Prepared:
    versions, created, dropped, catalog = pickle.loads(bytes(body))  # noqa: S301 (of the node's own catalog)
    return Prepared(xid, gid, database, owner, time, Lsn(position), versions, created, dropped, catalog)
