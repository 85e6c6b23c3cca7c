"""A commit under way: what a transaction will have written is durable before the first Delta commit, so that a crash leaves all or nothing.

    staged      files lie in the tables' folders; nothing names them
    intended    `Intents.carry_out` has stored the intent with all actions in the catalog's file
    written     each table has its Delta version, which bears the node's mark and the transaction's number
    committed   one DuckDB transaction has written the log entry and the catalog's rows: readers of the node see it
    finished    the intent has been removed, with the next one or at a checkpoint; until then the entry tells that it is done

`recover` takes an intent that a crash has left forward: a table whose version is there is passed over, the others get theirs, then the
entry is written. Backward, at a start or in a running session, goes only what cannot go forward: another Delta writer has changed the
same rows (40001), or a step failed. First the intent is emptied, which is the decision; then the versions that were written are taken
back by their inverse, on a full disk with what is kept for that (`disk_reserve`). Where even that fails the tables stay locked, and
`settle` tries again. The empty intent stays until the inverse is there: a version whose transaction has no intent at all was written
under a newer catalog (`lost_commits`).

Traced: COMMIT of xid 712, which wrote a and b: intent 712; version 8 of a, marked ``headgate 712``; kill -9. At the next start
version 8 of a bears the mark, b gets version 4 from the intent's actions, and the entry (a, 8), (b, 4) is written under the next LSN.

Called by `transaction`, `prepared` (COMMIT PREPARED) and `engine`.
"""

from __future__ import annotations

import functools
import logging
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headgate.catalog import history
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
from headgate.storage.lock import Key
from headgate.storage.transaction import stored_body
from headgate.storage.transaction.catalog_transaction import repeat
from headgate.storage.transaction.log import EntryKind, LogEntry, OriginProgress, TableVersion, TableWrite
from headgate.storage.transaction.staged import StagedTable

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

_UNDONE = b""
"""In place of the intent of a transaction that is taken back."""


@dataclass(frozen=True)
class Intent:
    """What a transaction commits.

    By relation: `tables` the version that its actions go on, and these; `as_they_are` visible versions of tables that get no new
    one. `catalog`: what is written there, as `catalog_transaction` notes it; `history`: whether that is recorded for streams.
    """

    xid: int
    database: int
    kind: EntryKind
    writes: tuple[TableWrite, ...]
    tables: Mapping[int, tuple[int, list[Action]]]
    as_they_are: Mapping[int, int]
    dropped: frozenset[int]
    origin: OriginProgress | None
    catalog: tuple[tuple[str, str, Any], ...]
    history: bool
    gid: str = ""
    prepared: Lsn = INVALID

    @property
    def keys(self) -> list[Key]:
        """The tables that get a version."""
        return [(self.database, relation) for relation in self.tables]


def read_body(body: bytes) -> Intent:
    """The intent that `carry_out` has stored."""
    intent: Intent = stored_body.load(zlib.decompress(bytes(body)))
    return intent


def is_undone(body: bytes) -> bool:
    """Whether this is the intent of a transaction that is taken back."""
    return bytes(body) == _UNDONE


def _replace(cursor: Any, xid: int, body: bytes) -> None:
    cursor.execute("DELETE FROM hg.intent WHERE xid = ?", [xid])
    cursor.execute("INSERT INTO hg.intent VALUES (?, ?)", [xid, body])


class Intents:
    """The intents of one engine. `carry_out` and what follows are called by who holds the tables' locks under the intent's xid."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unsettled: dict[int, Intent] = {}
        self._finished: set[int] = set()
        """Transactions that are in the log, whose intents are still there: removed with the next one that is stored."""
        self._undone: set[int] = set()
        """Likewise those of which nothing is left."""
        self._lock = threading.Lock()

    # ---- forward ----------------------------------------------------------------------------------------
    def carry_out(self, intent: Intent, tables: Mapping[Key, StagedTable]) -> dict[Key, TableState]:
        """Makes the intent durable and writes the tables' versions; their states. Where it raises, `take_back` undoes what is there."""
        body = zlib.compress(stored_body.dump(intent), 1)
        self.purge(lambda cursor: _replace(cursor, intent.xid, body))
        found = data_location.together(self._engine.base, lambda each: self._write(intent, *each), tables.items())
        return dict(zip(tables, found, strict=True))

    def _write(self, intent: Intent, key: Key, staged: StagedTable) -> TableState:
        """One table's version; versions of other writers that came between are adopted first."""
        engine = self._engine
        table, mark, base = engine.table(key), transaction_mark(intent.xid), staged.base
        try:
            with step(Step.VERSION):
                state = table.commit_version(base, intent.tables[key[1]][1], mark)
        except BaseException as error:
            # the version may be there although the call failed behind it
            version = None if isinstance(error, PostgresError) else self._version_of(key, base.version, mark)
            if version is None:
                raise
            state = table.state(version)
        if engine.durable:
            with step(Step.SYNC):
                fsync.sync_version(engine.path(key), state.version)
        self._adopt_between(key, base.version, state.version)
        return state

    def _adopt_between(self, key: Key, base: int, made: int) -> None:
        known = max(base, self._engine.visible[key].state.version) if key in self._engine.visible else base
        if made > known + 1:
            self._engine.foreign.adopt_range(key, range(known + 1, made))

    def _version_of(self, key: Key, base: int, mark: str) -> int | None:
        """The version above `base` that bears the mark."""
        path = self._engine.path(key)
        newest = delta_log.newest_version(path)
        for version in range(base + 1, (base if newest is None else newest) + 1):
            if marked_with(delta_log.read_version(path, version)) == mark:
                return version
        return None

    def finish(self, cursor: CatalogCursor, intent: Intent, states: Mapping[Key, TableState]) -> LogEntry:
        """Writes the entry in the caller's catalog transaction, which holds the rest; under the commit lock. Then it is `finished`.

        The entry is what tells that an intent is done. The catalog transaction could not remove it: it may have begun before it.
        """
        log, database = self._engine.log, intent.database
        made = {key[1]: state.version for key, state in states.items()}
        writes = [replace(write, version=made.get(write.relation, write.version)) for write in intent.writes]
        entry = log.place(intent.xid, database, writes, intent.origin, kind=intent.kind, gid=intent.gid, prepared=intent.prepared)
        versions = {relation: TableVersion(version) for relation, version in {**intent.as_they_are, **made}.items()}
        versions |= {relation: TableVersion(0, dropped=True) for relation in intent.dropped}
        log.insert(cursor, entry, versions)
        if intent.origin and intent.origin.lsn:
            origins.advance(cursor, intent.origin.origin, intent.origin.lsn, entry.end_lsn)
        if intent.kind is EntryKind.COMMIT_PREPARED:
            history.place_prepared(cursor, database, intent.xid, int(entry.commit_lsn))
        if intent.gid:
            cursor.execute("DELETE FROM hg.prepared_xact WHERE xid = ?", [intent.xid])
        if intent.history:
            history.place(cursor, database, intent.xid, int(entry.commit_lsn))
        return entry

    def finished(self, intent: Intent) -> None:
        """The entry is in the log: the intent may go."""
        with self._lock:
            self._finished.add(intent.xid)

    def purge(self, also: Callable[[Any], Any] = lambda _: None) -> None:
        """Removes the intents that are done; `also` writes in the same catalog transaction."""
        with self._lock:
            finished, self._finished = self._finished, set()
            undone, self._undone = self._undone, set()
        early = self._above_the_log(undone)

        def write(cursor: CatalogCursor) -> None:
            for xid in finished:
                cursor.execute("DELETE FROM hg.intent WHERE xid = ?", [xid])
            for xid in undone - early:
                # a prepared one may be committing again
                cursor.execute("DELETE FROM hg.intent WHERE xid = ? AND body = ?", [xid, _UNDONE])
            also(cursor)

        try:
            self._engine.catalog.change(write, Step.INTENT)
        except BaseException:
            with self._lock:
                self._finished |= finished
                self._undone |= undone
            raise
        with self._lock:
            self._undone |= early

    def _above_the_log(self, undone: set[int]) -> set[int]:
        """Those than which the log has no higher number: their intents alone tell that the catalog has known them (`lost_commits`)."""
        if not undone:
            return set()
        cursor = self._engine.catalog.cursor()
        (highest,) = cursor.execute("SELECT max(xid) FROM hg.log_entry").fetchone()
        cursor.close()
        return {xid for xid in undone if xid > (highest or 0)}

    # ---- backward ---------------------------------------------------------------------------------------
    def take_back(self, intent: Intent) -> set[Key]:
        """Undoes what `carry_out` has done; what cannot be undone now keeps its locks and is `settle`d.

        The tables in which a version may name the transaction's files, now or at the next start.
        """
        try:
            return self._engine.reserve.spending(functools.partial(self._take_back, intent))
        except Exception:  # noqa: BLE001 (the caller tells what it took back for)
            _log.exception("could not undo transaction %d, its tables stay locked until that is done", intent.xid)
            with self._lock:
                self._unsettled[intent.xid] = intent
            return set(intent.keys)

    def _take_back(self, intent: Intent) -> set[Key]:
        engine = self._engine
        # the decision: with an empty intent a marked version is nobody's, and goes at the next start at the latest
        engine.catalog.change(lambda cursor: _replace(cursor, intent.xid, _UNDONE), Step.TAKEN_BACK)
        mark, named = transaction_mark(intent.xid), set()
        for key in intent.keys:
            shown = engine.visible.get(key)
            if shown is None:
                engine.forget(key)  # the transaction has made it
            elif self._version_of(key, shown.state.version, mark) is not None:
                with step(Step.TAKEN_BACK):
                    engine.foreign.take_back(key, shown.state)
                named.add(key)
        with self._lock:
            self._undone.add(intent.xid)
        return named

    def is_settled(self, xid: int) -> bool:
        """Whether nothing of the transaction is left; otherwise its locks must stay."""
        with self._lock:
            return xid not in self._unsettled

    def files(self, key: Key) -> set[DataPath]:
        """Files of a table that transactions have staged which are not undone yet: a start might take them forward."""
        with self._lock:
            waiting = [intent.tables[key[1]][1] for intent in self._unsettled.values() if key in intent.keys]
        return {file for actions in waiting for file in file_action.files_made(self._engine.path(key), actions)}

    def settle(self) -> None:
        """Tries again to undo what could not be undone; called now and then, raises nothing."""
        with self._lock:
            waiting = list(self._unsettled.values())
        for intent in waiting:
            try:
                self._engine.reserve.spending(functools.partial(self._take_back, intent))
            except Exception as error:  # noqa: BLE001 (it is tried again)
                _log.debug("could not undo transaction %d yet: %s", intent.xid, error)
                continue
            with self._lock:
                del self._unsettled[intent.xid]
            if not intent.gid:  # what is prepared keeps its locks
                self._engine.locks.release(intent.xid)
            _log.info("transaction %d is undone, its tables are free", intent.xid)

    # ---- start ------------------------------------------------------------------------------------------
    def recover(self) -> list[str]:
        """Takes the intents that a crash left forward; a line for each."""
        cursor = self._engine.catalog.cursor()
        found = cursor.execute("SELECT body FROM hg.intent ORDER BY xid").fetchall()
        entries = set(cursor.execute("SELECT xid, kind FROM hg.log_entry WHERE xid IN (SELECT xid FROM hg.intent)").fetchall())
        cursor.close()
        said = []
        for (body,) in found:
            if is_undone(body):
                continue  # `foreign` takes back what is left of it
            intent = read_body(body)
            if (intent.xid, str(intent.kind)) not in entries:
                said.append(self._recover(intent))
            self.finished(intent)
        self.purge()
        return said

    def recovered(self) -> None:
        """At a start nothing is left of what is undone."""
        cursor = self._engine.catalog.cursor()
        with self._lock:
            self._undone |= {xid for xid, body in cursor.execute("SELECT xid, body FROM hg.intent").fetchall() if is_undone(body)}
        cursor.close()

    def _recover(self, intent: Intent) -> str:
        engine = self._engine
        states: dict[Key, TableState] = {}
        try:
            for key in intent.keys:
                states[key] = self._redo(intent, key)
        except PostgresError as error:
            if error.sqlstate != "40001":
                raise
            self._take_back(intent)
            return f"undid transaction {intent.xid}, whose rows another writer has changed"
        with engine.commit_lock:
            entry = engine.catalog.change(lambda cursor: self.finish_again(cursor, intent, states), Step.ENTRY)
            engine.publish(states, {(intent.database, relation) for relation in intent.dropped})
            engine.log.append(entry)
        if intent.kind is EntryKind.COMMIT_PREPARED:
            engine.prepared.ended(intent.gid)
        return f"completed transaction {intent.xid}"

    def _redo(self, intent: Intent, key: Key) -> TableState:
        table = self._engine.table(key)
        version, actions = intent.tables[key[1]]
        there = self._version_of(key, version, transaction_mark(intent.xid))
        if there is not None:
            self._adopt_between(key, version, there)
            return table.state(there)
        base = table.state(version)
        return self._write(intent, key, StagedTable(base, table.stage(base, actions)))

    def finish_again(self, cursor: CatalogCursor, intent: Intent, states: Mapping[Key, TableState]) -> LogEntry:
        """As `finish`, and repeats what the transaction wrote into the catalog: its own catalog transaction is gone."""
        repeat(cursor, intent.catalog)
        return self.finish(cursor, intent, states)
