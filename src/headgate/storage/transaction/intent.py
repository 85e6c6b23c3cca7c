"""A commit in progress: the transaction's writes are durable before the first Delta commit, so that a crash leaves all or nothing.

    staged      files are in the tables' folders; nothing names them
    intended    `Intents.carry_out` has stored the intent with all actions in the catalog's file
    written     each table has its Delta version, which has the node's mark and the transaction's number
    committed   one DuckDB transaction has written the log entry and the catalog's rows: readers of the node see it
    finished    the intent has been removed, with the next one or at a checkpoint; until then the entry shows that it is done

`recover` completes an intent that a crash has left. It skips a table that has its version, writes those of the others, then writes the
entry. At a start or in a running session, a commit is undone only if it cannot be completed: another Delta writer has changed the same rows
(40001), or a step failed. First the intent is emptied, which is the decision. Then the versions that were written are undone by their
inverse, on a full disk with the space reserved for that (`disk_reserve`). If even that fails, the tables stay locked, and `settle` retries.
The empty intent stays until the inverse is written: a version whose transaction has no intent at all was written under a newer catalog
(`lost_commits`).

Traced: COMMIT of xid 712, which wrote a and b: intent 712; version 8 of a, marked ``headgate 712``; kill -9. At the next start version 8 of
a has the mark, b gets version 4 from the intent's actions, and the entry (a, 8), (b, 4) is written under the next LSN.

Called by `transaction`, `prepared` (COMMIT PREPARED) and `engine`.
"""

from __future__ import annotations

import functools
import logging
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headgate.catalog import history
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.replication import origin as origins
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.lsn import INVALID, Lsn
from headgate.storage.delta import delta_log, file_action, fsync
from headgate.storage.delta.commit_mark import marked_with, transaction_mark
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction import stored_body
from headgate.storage.transaction.foreign_writer import ForeignWriters
from headgate.storage.transaction.log import EntryKind, LogEntry, OriginProgress, TableVersion, TableWrite
from headgate.storage.transaction.recorded_catalog import CatalogWrite, repeat
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.storage import Storage

_log = logging.getLogger("headgate.storage")

_UNDONE = b""
"""The body that replaces the intent of a transaction that is undone."""


@dataclass(frozen=True)
class Intent:
    """The content of a commit.

    By relation: `tables` has the version that its actions apply to, and the actions; `as_they_are` the visible versions of tables without
    a new one. `catalog`: the catalog writes, as `recorded_catalog` records them. `history`: whether they are recorded for streams.
    """

    xid: int
    database: int
    kind: EntryKind
    writes: tuple[TableWrite, ...]
    tables: Mapping[int, tuple[int, list[Action]]]
    as_they_are: Mapping[int, int]
    dropped: frozenset[int]
    origin: OriginProgress | None
    catalog: tuple[CatalogWrite, ...]
    history: bool
    gid: str = ""
    prepared: Lsn = INVALID

    @property
    def keys(self) -> list[Key]:
        return [(self.database, relation) for relation in self.tables]


def read_body(body: bytes) -> Intent:
    """Return the intent that `carry_out` has stored."""
    intent: Intent = stored_body.load(zlib.decompress(bytes(body)))
    return intent


def is_undone(body: bytes) -> bool:
    return bytes(body) == _UNDONE


def _replace(cursor: CatalogCursor, xid: int, body: bytes) -> None:
    cursor.execute("DELETE FROM hg.intent WHERE xid = ?", [xid])
    cursor.execute("INSERT INTO hg.intent VALUES (?, ?)", [xid, body])


def _version(write: TableWrite, intent: Intent, versions: Mapping[int, int]) -> int:
    """Return the version that has a write. `versions`: those of the tables as readers see them after the transaction.

    A table that the intent does not change may be at a later version than another writer's write that is adopted.
    """
    visible = versions.get(write.relation, write.version)
    return visible if write.relation in intent.tables else min(write.version, visible)


class Intents:
    """The intents of one storage. Callers of `carry_out` and the later steps hold the tables' locks under the intent's xid."""

    def __init__(self, storage: Storage, foreign: ForeignWriters) -> None:
        self._storage, self._foreign = storage, foreign
        self._unsettled: dict[int, Intent] = {}
        self._finished: set[int] = set()
        """Transactions in the log whose intents still exist. They are removed when the next one is stored."""
        self._undone: set[int] = set()
        """Transactions that are undone completely. Their intents are removed in the same way."""
        self._lock = threading.Lock()

    # ---- forward ----------------------------------------------------------------------------------------
    def carry_out(self, intent: Intent, tables: Mapping[Key, StagedTable]) -> dict[Key, TableState]:
        """Make the intent durable and write the tables' versions. Return their states. If it raises, call `undo`."""
        body = zlib.compress(stored_body.dump(intent), 1)
        self.purge(lambda cursor: _replace(cursor, intent.xid, body))
        states = data_location.together(self._storage.base, lambda item: self._write(intent, *item), tables.items())
        return dict(zip(tables, states, strict=True))

    def _write(self, intent: Intent, key: Key, staged: StagedTable) -> TableState:
        """Write one table's version. Adopt versions that other writers committed in between."""
        storage = self._storage
        table, mark, base = storage.tables[key], transaction_mark(intent.xid), staged.base
        try:
            with step(Step.VERSION):
                state = table.commit_version(base, intent.tables[key[1]][1], mark)
        except BaseException as error:
            # the version may exist although the call failed after writing it
            version = None if isinstance(error, PostgresError) else self._version_of(key, base.version, mark)
            if version is None:
                raise
            state = table.state(version)
        if storage.durable:
            with step(Step.SYNC):
                fsync.sync_version(storage.tables.path(key), state.version)
        self._adopt_between(key, base.version, state.version)
        return state

    def _adopt_between(self, key: Key, base: int, version: int) -> None:
        known = max(base, self._storage.tables.visible[key].state.version) if key in self._storage.tables.visible else base
        if version > known + 1:
            self._foreign.adopt_range(key, range(known + 1, version))

    def _version_of(self, key: Key, base: int, mark: str) -> int | None:
        """Return the version above `base` that has the mark, or None."""
        path = self._storage.tables.path(key)
        newest = delta_log.newest_version(path)
        for version in range(base + 1, (base if newest is None else newest) + 1):
            if marked_with(delta_log.read_version(path, version)) == mark:
                return version
        return None

    def finish(self, cursor: CatalogCursor, intent: Intent, states: Mapping[Key, TableState]) -> LogEntry:
        """Write the entry in the caller's catalog transaction, which holds the rest. Under the commit lock. Then the intent is `finished`.

        The entry shows that an intent is done. The catalog transaction cannot remove the intent, because it may have begun before that.
        """
        log, database = self._storage.log, intent.database
        new_versions = {key[1]: state.version for key, state in states.items()}
        writes = [replace(write, version=_version(write, intent, new_versions)) for write in intent.writes]
        entry = log.place(intent.xid, database, writes, intent.origin, kind=intent.kind, gid=intent.gid, prepared=intent.prepared)
        versions = {relation: TableVersion(version) for relation, version in {**intent.as_they_are, **new_versions}.items()}
        versions |= {relation: TableVersion(0, dropped=True) for relation in intent.dropped}
        log.insert(cursor, entry, versions)
        if intent.origin and intent.origin.lsn:
            origins.advance(cursor, intent.origin.origin, intent.origin.lsn, entry.end_lsn)
        if intent.kind is EntryKind.COMMIT_PREPARED:
            history.place_prepared(cursor, database, intent.xid, int(entry.commit_lsn))
            log.place_prepared(cursor, intent.prepared, new_versions)
        if intent.gid:
            cursor.execute("DELETE FROM hg.prepared_xact WHERE xid = ?", [intent.xid])
        if intent.history:
            history.place(cursor, database, intent.xid, int(entry.commit_lsn))
        return entry

    def finished(self, intent: Intent) -> None:
        """Note that the entry is in the log, so that the intent may be removed."""
        with self._lock:
            self._finished.add(intent.xid)

    def purge(self, also: Callable[[CatalogCursor], object] = lambda _: None) -> None:
        """Remove the intents that are done. `also` writes in the same catalog transaction."""
        with self._lock:
            finished, self._finished = self._finished, set()
            undone, self._undone = self._undone, set()
        early = self._above_the_log(undone)

        def write(cursor: CatalogCursor) -> None:
            for xid in finished:
                cursor.execute("DELETE FROM hg.intent WHERE xid = ?", [xid])
            for xid in undone - early:
                # a prepared transaction may be committing again
                cursor.execute("DELETE FROM hg.intent WHERE xid = ? AND body = ?", [xid, _UNDONE])
            also(cursor)

        try:
            self._storage.catalog.change(write, Step.INTENT)
        except BaseException:
            with self._lock:
                self._finished |= finished
                self._undone |= undone
            raise
        with self._lock:
            self._undone |= early

    def _above_the_log(self, undone: set[int]) -> set[int]:
        """Return the transactions above the log's highest xid: only their intents show that the catalog knew them (`lost_commits`)."""
        if not undone:
            return set()
        cursor = self._storage.catalog.cursor()
        [(highest,)] = cursor.execute("SELECT max(xid) FROM hg.log_entry").fetchall()
        cursor.close()
        return {xid for xid in undone if xid > (highest or 0)}

    # ---- backward ---------------------------------------------------------------------------------------
    def undo(self, intent: Intent) -> set[Key]:
        """Undo `carry_out`. A transaction that cannot be undone now keeps its locks until `settle` succeeds.

        Return the tables of which a version may name the transaction's files, now or at the next start.
        """
        try:
            return self._storage.reserve.spending(functools.partial(self._undo, intent))
        except Exception:  # noqa: BLE001 (the caller raises the error for which it undoes)
            _log.exception("could not undo transaction %d, its tables stay locked until that is done", intent.xid)
            with self._lock:
                self._unsettled[intent.xid] = intent
            return set(intent.keys)

    def _undo(self, intent: Intent) -> set[Key]:
        storage = self._storage
        # the decision: with an empty intent a marked version is not committed, and is undone at the next start at the latest
        storage.catalog.change(lambda cursor: _replace(cursor, intent.xid, _UNDONE), Step.TAKEN_BACK)
        mark, named = transaction_mark(intent.xid), set()
        for key in intent.keys:
            shown = storage.tables.visible.get(key)
            if shown is None:
                self._foreign.forget_created(key)
            elif self._version_of(key, shown.state.version, mark) is not None:
                with step(Step.TAKEN_BACK):
                    self._foreign.undo_own(key, shown.state)
                named.add(key)
        with self._lock:
            self._undone.add(intent.xid)
        return named

    def is_settled(self, xid: int) -> bool:
        """Return whether the transaction is undone completely. Otherwise its locks must stay."""
        with self._lock:
            return xid not in self._unsettled

    def files(self, key: Key) -> set[DataPath]:
        """Return the staged files of transactions that are not undone yet, which a start might complete."""
        with self._lock:
            waiting = [intent.tables[key[1]][1] for intent in self._unsettled.values() if key in intent.keys]
        return {file for actions in waiting for file in file_action.files_made(self._storage.tables.path(key), actions)}

    def settle(self) -> None:
        """Retry to undo the transactions that could not be undone. Called periodically; raises nothing."""
        with self._lock:
            waiting = list(self._unsettled.values())
        for intent in waiting:
            try:
                self._storage.reserve.spending(functools.partial(self._undo, intent))
            except Exception as error:  # noqa: BLE001 (it is retried)
                _log.debug("could not undo transaction %d yet: %s", intent.xid, error)
                continue
            with self._lock:
                del self._unsettled[intent.xid]
            if not intent.gid:  # a prepared transaction keeps its locks
                self._storage.locks.release(intent.xid)
            _log.info("transaction %d is undone, its tables are free", intent.xid)

    # ---- start ------------------------------------------------------------------------------------------
    def recover(self) -> list[str]:
        """Complete the intents that a crash left. Return a line for each."""
        cursor = self._storage.catalog.cursor()
        bodies = cursor.execute("SELECT body FROM hg.intent ORDER BY xid").fetchall()
        entries = set(cursor.execute("SELECT xid, kind FROM hg.log_entry WHERE xid IN (SELECT xid FROM hg.intent)").fetchall())
        cursor.close()
        lines = []
        for (body,) in bodies:
            if is_undone(body):
                continue  # `foreign` undoes its versions
            intent = read_body(body)
            if (intent.xid, str(intent.kind)) not in entries:
                lines.append(self._recover(intent))
            self.finished(intent)
        self.purge()
        return lines

    def recovered(self) -> None:
        """Note at a start that the transactions with empty intents are undone completely."""
        cursor = self._storage.catalog.cursor()
        with self._lock:
            self._undone |= {xid for xid, body in cursor.execute("SELECT xid, body FROM hg.intent").fetchall() if is_undone(body)}
        cursor.close()

    def _recover(self, intent: Intent) -> str:
        storage = self._storage
        states: dict[Key, TableState] = {}
        try:
            for key in intent.keys:
                states[key] = self._redo(intent, key)
        except PostgresError as error:
            if error.sqlstate != "40001":
                raise
            self._undo(intent)
            return f"undid transaction {intent.xid}, whose rows another writer has changed"
        with storage.commit_lock:
            entry = storage.catalog.change(lambda cursor: self.finish_again(cursor, intent, states), Step.ENTRY)
            storage.tables.publish(states, {(intent.database, relation) for relation in intent.dropped})
            storage.log.append(entry)
        return f"completed transaction {intent.xid}"

    def _redo(self, intent: Intent, key: Key) -> TableState:
        table = self._storage.tables[key]
        version, actions = intent.tables[key[1]]
        own_version = self._version_of(key, version, transaction_mark(intent.xid))
        if own_version is not None:
            self._adopt_between(key, version, own_version)
            return table.state(own_version)
        base = table.state(version)
        return self._write(intent, key, StagedTable(base, table.stage(base, actions)))

    def finish_again(self, cursor: CatalogCursor, intent: Intent, states: Mapping[Key, TableState]) -> LogEntry:
        """Finish an intent, and repeat the transaction's catalog writes, because its own catalog transaction is gone."""
        repeat(cursor, intent.catalog)
        return self.finish(cursor, intent, states)
