"""The end of a transaction: COMMIT, ROLLBACK, PREPARE TRANSACTION.

Made by `transaction`, which describes the states and traces a commit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from urllib.parse import unquote

from headgate.catalog.physical import rows
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.storage.delta import file_action, fsync
from headgate.storage.delta.table_state import TableState
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.storage.transaction.intent import Intent, Intents
from headgate.storage.transaction.log import EntryKind, OriginProgress
from headgate.storage.transaction.own_locks import OwnLocks
from headgate.storage.transaction.pending_rows import PendingRows
from headgate.storage.transaction.prepared import OPERATED_ON_TEMPORARY, PreparedTransactions, PreparedXact
from headgate.storage.transaction.snapshot import Snapshot, not_in_series
from headgate.storage.transaction.staged import StagedTable
from headgate.storage.transaction.staging import Staging
from headgate.storage.transaction.storage import Storage
from headgate.storage.transaction.transaction_catalog import TransactionCatalog

_log = logging.getLogger("headgate.storage")


class Ending:
    """The end of one transaction."""

    def __init__(
        self, storage: Storage, intents: Intents, prepared: PreparedTransactions, locks: OwnLocks, catalog: TransactionCatalog,
        snapshot: Snapshot, staging: Staging, pending: PendingRows, ended: Callable[[], None],
    ) -> None:  # fmt: skip
        """`ended` is called once, when the transaction has ended."""
        self._storage, self._intents, self._prepared, self._locks, self._catalog = storage, intents, prepared, locks, catalog
        self._snapshot, self._staging, self._pending, self._unregister = snapshot, staging, pending, ended
        self._has_ended = False
        self._named: set[Key] = set()
        """Tables of which a Delta version may name the staged files, because the commit has begun."""

    def commit(self, origin: OriginProgress | None) -> Lsn | None:
        """Make all writes visible at once. Return the end LSN of the log entry, None if there was nothing to log."""
        try:
            self._pending.settle()
            end = self._commit_all(origin)
        except Exception:
            self.rollback()
            raise
        self._storage.statistics.committed(self._catalog.database)
        return end

    def _commit_all(self, origin: OriginProgress | None) -> Lsn | None:
        staging, storage = self._staging, self._storage
        staging.record_catalog()
        if not (staging.tables or staging.writes or staging.dropped or self._catalog.is_recorded or origin):
            self._commit_catalog()
            self._end()
            return None
        counts = staging.table_counts()
        staging.make_whole()
        tables = staging.kept()
        changed = {key: staged for key, staged in tables.items() if staged.is_changed}
        intent = self._intent(changed, origin)
        if storage.durable:
            self._sync(intent)
        states = {key: staged.state for key, staged in tables.items()}
        with self._in_series():
            end = self._commit_intent(intent, changed, states)
        storage.statistics.wrote(counts)
        storage.statistics.dropped(staging.dropped)
        return end

    def _commit_catalog(self) -> None:
        """Commit the catalog of a transaction whose changes no stream must know."""
        if not self._catalog.is_open:
            return
        with self._storage.commit_lock:
            if not self._catalog.place:
                self._catalog.commit()
                return
            with step(Step.DEFINITION):
                self._catalog.commit()
            self._storage.running.redefined(self._locks.catalog_keys)

    @contextlib.contextmanager
    def _in_series(self, *, prepares: bool = False) -> Iterator[None]:
        """Commit serializable transactions that write one after another. Raise 40001 if a table that this one has read has changed.

        So each has read what it would have read at its commit, and the result equals running them in that order. Whole tables are
        compared: PostgreSQL compares rows, and rejects fewer transactions. Tables that a prepared transaction has read stay unchanged until
        it ends. A transaction that `prepares` must not have read a table that another prepared transaction will change.
        """
        snapshot, staging = self._snapshot, self._staging
        if not (snapshot.is_serializable and staging.writes):
            yield
            return
        with self._storage.serial_lock:
            if not all(map(snapshot.is_current, snapshot.used)):
                raise not_in_series("commit attempt")
            changed_tables = {*staging.kept(), *staging.dropped}
            for prepared in self._prepared.all():
                if prepared.read & changed_tables or (prepares and prepared.read and prepared.keys & snapshot.used):
                    raise not_in_series("commit attempt")
            yield

    def _commit_intent(self, intent: Intent, changed: Mapping[Key, StagedTable], states: dict[Key, TableState]) -> Lsn:
        storage = self._storage
        try:
            if changed:
                self._named = set(changed)
                states |= self._intents.carry_out(intent, changed)
            with storage.commit_lock:
                entry = self._intents.finish(self._catalog.cursor, intent, states)
                with step(Step.ENTRY):
                    self._catalog.commit()
                storage.tables.publish(states, self._staging.dropped)
                if intent.catalog:
                    storage.running.redefined(self._locks.catalog_keys)
                storage.log.append(entry)
        except BaseException:
            if changed:
                self._catalog.rollback()
                self._named = self._intents.undo(intent)
            raise
        if changed:
            self._intents.finished(intent)
        self._clean_up(intent)
        return entry.end_lsn

    def _intent(self, changed: Mapping[Key, StagedTable], origin: OriginProgress | None) -> Intent:
        staging = self._staging
        return Intent(
            self._locks.xid, self._catalog.database, EntryKind.COMMIT, tuple(staging.logged_writes()),
            {key[1]: (staged.base.version, staged.actions()) for key, staged in changed.items()},
            {key[1]: staged.state.version for key, staged in staging.kept().items() if key not in changed},
            frozenset(key[1] for key in staging.dropped - staging.created), origin, tuple(self._catalog.written), self._catalog.is_recorded,
        )  # fmt: skip

    def _clean_up(self, intent: Intent) -> None:
        """Clean up after the commit. A failure here is logged and is not an error of the transaction."""
        staging, storage = self._staging, self._storage
        with _only_logged():
            named_files = {key: _named_files(storage.tables.path(key), key[1], intent) for key in staging.files}
            staging.remove_files(named_files)
        with _only_logged():
            self._end()
        with _only_logged():
            for key in staging.dropped & staging.created:
                storage.tables.forget(key)
            if staging.dropped - staging.created:
                storage.clean()

    @step(Step.SYNC)
    def _sync(self, intent: Intent) -> None:
        """Fsync the staged files and the first version of new tables."""
        for relation, (_, actions) in intent.tables.items():
            fsync.sync_files(self._storage.tables.path((self._catalog.database, relation)), actions)
        for key in self._staging.created - self._staging.dropped:
            fsync.sync_version(self._storage.tables.path(key), self._staging.tables[key].base.version)

    def rollback(self) -> None:
        """Discard all writes. Do nothing after the transaction has ended."""
        if self._has_ended:
            return
        try:
            self._catalog.rollback()
        finally:
            try:
                # cleaning removes files that a version names or that recovery may need
                for key in self._staging.created - self._named:
                    self._storage.tables.forget(key)
                self._staging.remove_files({key: self._staging.files[key] for key in self._named & self._staging.files.keys()})
            finally:
                self._end()

    def prepare(self, gid: str, owner: str, origin: OriginProgress | None) -> Lsn:
        """Store what is staged as a prepared transaction, which keeps the locks. Return the end LSN of its log entry.

        Raise 42710 if the gid is in use. Any error rolls the transaction back.
        """
        staging, catalog, locks = self._staging, self._catalog, self._locks
        try:
            self._pending.settle()
            staging.record_catalog()
            staging.make_whole()
            staged = staging.kept()
            self._refuse_temporary({*staged, *staging.created, *staging.dropped, *self._storage.locks.tables_of(locks.xid)})
            if self._storage.durable:
                self._sync(self._intent(staged, None))
            tables = {key[1]: (table.base.version, table.actions()) for key, table in staged.items()}
            read = frozenset(self._snapshot.used if self._snapshot.is_serializable else ())
            xact = PreparedXact(
                locks.xid, gid, catalog.database, owner, tables, frozenset(staging.created), frozenset(staging.dropped),
                tuple(catalog.written), dict(locks.catalog_keys), read, self._storage.locks.tables_of(locks.xid),
            )  # fmt: skip
            with self._in_series(prepares=True):
                end = self._prepared.add(xact, staged, staging.logged_writes(), catalog.recorded_rows(), origin)
        except Exception:
            self.rollback()
            raise
        catalog.rollback()
        self._has_ended = True
        self._unregister()
        self._storage.locks.disown(locks.xid)
        return end

    def _refuse_temporary(self, keys: AbstractSet[Key]) -> None:
        """Raise 0A000 if one of the tables is temporary: its session drops it at its end."""
        sql = "SELECT oid FROM hg.pg_class WHERE dbid = ? AND relpersistence = 't'"
        with contextlib.closing(self._storage.catalog.cursor()) as committed:  # it has the tables that the transaction has dropped
            temporary = {oid for cursor in (self._catalog.cursor, committed) for (oid,) in rows(cursor, sql, [self._catalog.database])}
        if any(oid in temporary for _, oid in keys):
            raise PostgresError("0A000", OPERATED_ON_TEMPORARY)

    def _end(self) -> None:
        self._has_ended = True
        if self._locks.has_xid and self._intents.is_settled(self._locks.xid):
            self._locks.release()
        self._unregister()


@contextlib.contextmanager
def _only_logged() -> Iterator[None]:
    """Log a failure inside the context."""
    try:
        yield
    except Exception:  # noqa: BLE001 (see `Ending._clean_up`)
        _log.exception("could not clean up behind a transaction that has committed")


def _named_files(path: DataPath, relation: int, intent: Intent) -> set[DataPath]:
    _, actions = intent.tables.get(relation, (0, []))
    of_writes = {path / unquote(file.path) for write in intent.writes if write.relation == relation for file in write.files or ()}
    return set(file_action.files_of(path, actions)) | of_writes
