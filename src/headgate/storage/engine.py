"""The storage of a node with the services that write to it, and its recovery after a crash.

A node has one `Engine`, made by `server.node` (and by tests on a bare directory). It wires these parts, each of which knows only those
above it:

    transaction.storage   what all parts share: the catalog, the log, the locks, the tables and their visible versions
    foreign_writer        the adoption of versions of other writers
    intent                the commits in progress
    prepared              the prepared transactions
    transaction           a transaction in progress

The files of a table, and which of its versions are visible:

    base/<database>/<relation>/           the Delta table of a relation (elsewhere if it is external: `table_folders`)
    part-….parquet       of an open transaction: no version names it, only that transaction reads it (`staged`)
    _delta_log/…7.json   logged           visible
    _delta_log/…8.json   of a transaction that is committing, marked with its number: its intent lists its other versions
    _delta_log/…9.json   if that could not commit: the inverse of 8, equal to 7 in content
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.catalog.catalog import Catalog
from headgate.errors import PostgresError
from headgate.failpoint import Step
from headgate.lsn import Lsn
from headgate.storage import inventory, lost_commits
from headgate.storage.delta import delta_checkpoint, delta_log
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.lease import Lease
from headgate.storage.location.table_folders import Key
from headgate.storage.spark import result_spool
from headgate.storage.transaction.foreign_writer import LOOK_SECONDS, ForeignWriters, Recovered
from headgate.storage.transaction.intent import Intents
from headgate.storage.transaction.log import Emitted, EntryKind, TableVersion, TableWrite
from headgate.storage.transaction.prepared import PreparedTransactions
from headgate.storage.transaction.storage import Storage
from headgate.storage.transaction.transaction import Transaction
from headgate.supervision import Supervised

_log = logging.getLogger("headgate.storage")

READING = "reading"
"""The work whose obstacles are tables that cannot be read."""
_UNREADABLE = ("XX001", "58P01")
SEGMENT = 16 << 20
"""The size in bytes of a WAL segment in PostgreSQL."""


class Engine(Storage):
    """The storage of a node with its services: begins transactions, recovers after a crash."""

    def __init__(self, settings: Mapping[str, str], catalog: Catalog, data_dir: Path, *, session: SparkSession) -> None:
        super().__init__(settings, catalog, data_dir, session=session)
        self.foreign = ForeignWriters(self)
        self.intents = Intents(self, self.foreign)
        self.prepared = PreparedTransactions(self, self.intents)
        self.watch = Supervised("foreign writers", self._watch, patience=30)
        """The thread that adopts the versions of other writers, and undoes transactions that could not be undone at once."""
        self.listed: Callable[[], Lsn] = lambda: self.log.end
        """Returns the LSN up to which the table of the log has the entries (`log_table`). Set by the node."""
        self.lease: Lease | None = None
        """The lease of the data location if an object store holds it, set by recovery."""
        self.on_lost_lease: Callable[[str], None] = _log.error
        """Called when another node has acquired the lease. Set by the node."""

    def note_unreadable(self, error: PostgresError) -> None:
        """Record an obstacle for the table if a statement or a worker found a damaged or missing file of it."""
        if error.sqlstate not in _UNREADABLE:
            return
        for text in filter(None, (error.message, error.detail)):
            key = self.folders.named_in(text)
            if key is not None:
                self.obstacles.note(READING, key, text)
                return

    # transactions

    def begin(self, database: int) -> Transaction:
        """Begin a transaction in a database (its oid)."""
        transaction = Transaction(self, self.foreign, self.intents, self.prepared, database)
        self.running.begin(transaction)
        return transaction

    def emit(self, database: int, prefix: str, content: bytes) -> Lsn:
        """Log a logical decoding message outside a transaction. Return its LSN, the end of its entry: a slot at that LSN has passed it."""
        message = TableWrite(0, 0, "message", 0, 1, 0, bytes=len(content), seen=self.log.end, emitted=Emitted(prefix, content))
        with self.commit_lock:
            entry = self.log.place(0, database, [message], None, kind=EntryKind.MESSAGE)
            entry = replace(entry, writes=tuple(replace(write, lsn=entry.end_lsn) for write in entry.writes))
            self.catalog.change(lambda cursor: self.log.insert(cursor, entry, {}), Step.ENTRY)
            self.log.append(entry)
        return entry.end_lsn

    def switch(self, database: int) -> Lsn:
        """Move the end of the log to the next multiple of 16 MB unless it is at one (pg_switch_wal). Return the previous end."""
        with self.commit_lock:
            before = self.log.end
            end = Lsn(-(-before // SEGMENT) * SEGMENT)
            if end != before:
                entry = self.log.place(0, database, (), None, kind=EntryKind.MESSAGE)
                entry = replace(entry, commit_lsn=Lsn(end - (entry.end_lsn - entry.commit_lsn)), end_lsn=end)
                if entry.commit_lsn > before:
                    self.catalog.change(lambda cursor: self.log.insert(cursor, entry, {}), Step.ENTRY)
                    self.log.append(entry)
        return before

    # start and stop

    def recover(self) -> list[str]:
        """Make the directory agree with the log after a crash.

        Complete intents, remove half-made tables, adopt the versions of other writers. Return one line for each action.
        """
        tables = self.log.versions()
        directory_owner.claim(self.base, self.catalog.system_identifier(), self.data_dir, list(map(self.tables.path, tables)))
        self.is_claimed = True
        self._take_lease(tables)
        if not data_location.is_local(self.exchange):
            result_spool.clear(self.exchange)
        self.reserve.fill()
        done = self._set_torn_aside(tables)
        lost_commits.refuse(self)
        done += self.intents.recover()
        self.prepared.restore()
        logged = self.log.versions()
        newest = self.tables.newest_versions(logged)
        done += self._lost(logged, newest)
        adopt = self._recover_folders(logged, newest, done)
        self.make_all_visible()
        for key, foreign in adopt:
            self.foreign.adopt_recovered(key, foreign)
            done.append(f"adopted {len(foreign.others)} versions of other writers of relation {key[1]} in database {key[0]}")
        self.intents.recovered()
        self.clean()
        return done

    def _set_torn_aside(self, tables: Mapping[Key, TableVersion]) -> list[str]:
        """Set aside commit files and checkpoints that a crash has left incomplete. Return one line for each."""
        return [
            f'commit file "{file}" was torn and is set aside'
            for key, table in tables.items()
            for file in delta_log.set_torn_aside(self.tables.path(key), table.version)
        ] + [
            f'checkpoint "{file}" was torn and is set aside'
            for key, table in tables.items()
            if table.version >= delta_checkpoint.EVERY
            for file in delta_checkpoint.set_torn_aside(self.tables.path(key), table.version)
        ]

    def _lost(self, logged: Mapping[Key, TableVersion], newest: Mapping[Key, int | None]) -> list[str]:
        """Return one line for each table that lacks versions of the log."""
        errors = [
            self.tables.missing_version(key, table.version)
            for key, table in logged.items()
            if (current := newest[key]) is None or current < table.version
        ]
        return [f"{error.message}: it cannot be read or written. {error.detail}" for error in errors]

    def _recover_folders(
        self, logged: Mapping[Key, TableVersion], newest: Mapping[Key, int | None], done: list[str]
    ) -> list[tuple[Key, Recovered]]:
        """Remove half-made tables, undo uncommitted writes, and set unknown folders aside. Add a line to `done` for each action.

        Return the tables with versions of other writers.
        """
        dropped = {(database, relation) for database, relation, _ in self.log.dropped()}
        created = {key for prepared in self.prepared.all() for key in prepared.created}
        adopt: list[tuple[Key, Recovered]] = []
        for key, path in self.folders.existing():
            if key in created:
                continue
            if key in logged:
                current = newest[key]
                if not data_location.is_local(path) and (current is None or current <= logged[key].version):
                    continue
                foreign = self.foreign.recover(key, logged[key].version)
                if foreign.undone:
                    done.append(f"undid uncommitted writes of relation {key[1]} in database {key[0]}")
                if foreign.others:
                    adopt.append((key, foreign))
            elif key not in dropped and (self.folders.opened_at(key) is not None or delta_log.is_half_made(path)):
                self.foreign.forget_created(key)
                done.append(f"removed uncommitted relation {key[1]} of database {key[0]}")
            elif key not in dropped:
                done.append(f'moved "{path}", which the log does not name, to "{self.tables.set_aside(key)}"')
        return adopt

    def _take_lease(self, tables: Iterable[Key]) -> None:
        """Acquire the lease of the data location. Raise 55006 if another node has it. A local location uses the node's pid file."""
        if isinstance(self.base, Path):
            return
        self.lease = Lease(self.base, self.catalog.system_identifier(), self.on_lost_lease)
        lost_by_other = self.lease.take()
        data_location.guard(self.base, self.lease.check)
        if lost_by_other:  # the previous holder's pending writes must find a version in their place
            data_location.together(self.base, delta_log.fence, [*map(self.tables.path, tables), inventory.log_table(self.base)])

    def _watch(self) -> None:
        while not self.watch.stopping.wait(LOOK_SECONDS):
            self.intents.settle()
            self.reserve.fill()
            self.foreign.look()

    def stop(self) -> None:
        """Wake the waiters for the log and release the lease. The Spark session belongs to the caller."""
        self.log.wake()
        if self.lease is not None:
            self.lease.release()
