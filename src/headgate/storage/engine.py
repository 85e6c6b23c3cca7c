"""The storage of a node: its Spark session, its tables, its log.

A node has one `Engine`, made by `server.node` (and by tests on a bare directory). Invariant: the *visible* state of a table is the one
that the newest log entry names. It changes only under `commit_lock`, for all tables of a transaction at once, by replacing the whole
mapping. So a reader that keeps the mapping reads all tables as of one LSN.

    base/<database>/<relation>/           the Delta table of a relation (elsewhere if it is external: `table_folders`)
    part-….parquet       of an open transaction: no version names it, only that transaction reads it (`staged`)
    _delta_log/…7.json   logged           visible
    _delta_log/…8.json   of a transaction that is committing, marked with its number: its intent lists its other versions
    _delta_log/…9.json   if that could not commit: the inverse of 8, equal to 7 in content

Versions that other Spark jobs commit are adopted as transactions of their own (`foreign_writer`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.failpoint import Step
from headgate.lsn import Lsn
from headgate.storage import inventory, lost_commits
from headgate.storage.delta import delta_checkpoint, delta_log
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.tables import Tables
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.disk_reserve import Reserve
from headgate.storage.location.lease import Lease
from headgate.storage.location.table_folders import Key, TableFolders
from headgate.storage.lock import TableLocks
from headgate.storage.spark import result_spool
from headgate.storage.spark.application.spark_session import is_cluster
from headgate.storage.spark.column_name import quoted
from headgate.storage.statistics import Statistics
from headgate.storage.transaction.foreign_writer import ForeignWriters, Recovered
from headgate.storage.transaction.intent import Intents
from headgate.storage.transaction.isolation import Isolation
from headgate.storage.transaction.log import Emitted, EntryKind, TableVersion, TableWrite, TransactionLog
from headgate.storage.transaction.prepared import PreparedTransactions
from headgate.storage.transaction.running import RunningTransactions
from headgate.storage.write import columns
from headgate.supervision import Obstacles

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog
    from headgate.catalog.relation.relation import Relation
    from headgate.storage.transaction.transaction import Transaction


_log = logging.getLogger("headgate.storage")

READING = "reading"
"""The work whose obstacles are tables that cannot be read."""
_UNREADABLE = ("XX001", "58P01")
SMALL_BATCH_ROWS = 75_000
"""The default of `small_batch_rows`: from this size on a Spark job is not slower than the driver on two cores (docs/cluster.md)."""
SEGMENT = 16 << 20
"""The size in bytes of a WAL segment in PostgreSQL."""


class Engine:
    """The storage of a node: begins transactions, holds the visible states, recovers after a crash."""

    def __init__(self, settings: Mapping[str, str], catalog: Catalog, data_dir: Path, *, session: SparkSession) -> None:
        """`catalog` is the node's Catalog (`.cursor()`, `.begin()`)."""
        self.catalog = catalog
        self.data_dir = Path(data_dir)
        self._open_location(settings)
        self._is_claimed = False
        self.spark = session
        self.settings = settings
        self.durable = settings.get("fsync", "on") == "on"
        self.column_mapping = settings.get("column_mapping", "on") == "on"
        """Whether a table may use Delta's column mapping if it needs it, unless WITH (…) sets it."""
        self.deletion_vectors = settings.get("deletion_vectors", "on") == "on"
        """Whether new tables have deletion vectors, unless WITH (…) sets it."""
        self.array_storage = settings.get("array_storage", "text")
        """How new array columns are stored unless WITH (…) sets it: as PostgreSQL's text, or as Delta arrays."""
        self.delta = Delta(self.spark)
        self.log = TransactionLog(catalog)
        self.statistics = Statistics()
        self.obstacles = Obstacles()
        self.locks = TableLocks(self.statistics)
        self.commit_lock = self.log.commit_lock
        self.serial_lock = threading.RLock()
        """Held by a serializable transaction from its last check to its commit."""
        self.running = RunningTransactions(catalog, self.log)
        self.tables = Tables(catalog, self.delta, self.folders)
        self.intents = Intents(self)
        self.prepared = PreparedTransactions(self)
        self.foreign = ForeignWriters(self)
        self.isolation = Isolation()
        self.oldest_needed: Callable[[int | None], Lsn] = lambda database: self.log.end
        """Returns the LSN from which on slots and exported snapshots still need the log. Set by the node."""
        self.listed: Callable[[], Lsn] = lambda: self.log.end
        """Returns the LSN up to which the table of the log has the entries (`log_table`). Set by the node."""
        self._removal = threading.Lock()
        self._removed: dict[int | None, Lsn] = {}
        """By database (None: all), the LSN before which log entries and files may have been removed since the start."""
        self.lease: Lease | None = None
        """The lease of the data location if an object store holds it, set by recovery."""
        self.on_lost_lease: Callable[[str], None] = _log.error
        """Called when another node has acquired the lease. Set by the node."""
        self._make_all_visible()

    def _open_location(self, settings: Mapping[str, str]) -> None:
        self.base = data_location.base(settings, self.data_dir)
        data_location.open_cache(self.base, self.data_dir / "pg_cache", settings)
        self.folders = TableFolders(self.base)
        self.on_cluster = is_cluster(settings)
        """Whether tasks may run on other machines."""
        shared = self.on_cluster and not data_location.is_local(self.base)
        self.exchange: DataPath = self.base / "_headgate" / "tmp" if shared else self.data_dir / "pgsql_tmp"
        """The folder for files that Spark's tasks and the driver exchange. Both can read and write it."""
        self.reserve = Reserve([self.data_dir, *([self.base] if isinstance(self.base, Path) else [])])

    def note_unreadable(self, error: PostgresError) -> None:
        """Record an obstacle for the table if a statement or a worker found a damaged or missing file of it."""
        if error.sqlstate not in _UNREADABLE:
            return
        for text in filter(None, (error.message, error.detail)):
            key = self.folders.named_in(text)
            if key is not None:
                self.obstacles.note(READING, key, text)
                return

    @property
    def is_location_gone(self) -> bool:
        """Return whether the folder of the tables has gone since the start. Nothing may create another one in its place.

        An object store has no folders that could be gone.
        """
        return self._is_claimed and data_location.is_local(self.base) and not directory_owner.is_marked(self.base)

    @property
    def small_batch_rows(self) -> int:
        """Return the size up to which a batch is written without a Spark job, as set now. 0: all batches and row filters use tasks."""
        return int(self.settings.get("small_batch_rows", SMALL_BATCH_ROWS))

    def forget_created(self, key: Key) -> None:
        """Forget a table whose transaction did not commit, although a version of it may exist. Undo that version of an external table."""
        opened_at = self.folders.opened_at(key)
        if opened_at is not None:
            self.foreign.recover(key, opened_at)
        self.tables.forget(key)

    def _make_all_visible(self) -> None:
        self.tables.make_visible({key: table.version for key, table in self.log.versions().items()})

    def state_at(self, key: Key, lsn: Lsn) -> TableState | None:
        """Return a table as of an LSN, or None if it did not exist."""
        with self.commit_lock:
            version = self.log.version_at(*key, lsn)
            if version is None:
                return None
            if key in self.tables.visible and version == self.log.version_at(*key, self.log.end):
                return self.tables.visible[key].state
        return self.tables[key].state(version)

    def frame_at(self, relation: Relation, lsn: Lsn) -> DataFrame:
        """Return the rows of a relation as of an LSN, with live columns in order."""
        key = (relation.database, relation.oid)
        state = self.state_at(key, lsn)
        if state is None:
            return self.spark.createDataFrame([], columns(relation))
        frame = self.tables[key].frame(state)
        return frame.select(*[F.col(quoted(column.name)) for column in relation.columns])

    # transactions

    def begin(self, database: int) -> Transaction:
        """Begin a transaction in a database (its oid)."""
        from headgate.storage.transaction.transaction import Transaction

        transaction = Transaction(self, database)
        self.running.begin(transaction)
        return transaction

    @contextlib.contextmanager
    def locked(self, key: Key, lock_timeout: float) -> Iterator[int]:
        """Hold a table's lock in the context, as a running transaction that writes nothing. Return its number (`RunningTransactions.ids`).

        Raise 55P03 after `lock_timeout` seconds.
        """
        xid, owner = self.log.next_xid(), object()
        self.running.begin(owner)
        try:
            self.locks.acquire(key, xid, lock_timeout=lock_timeout, beside_claims=True)
            yield id(owner)
        finally:
            self.locks.release(xid)
            self.running.ended(owner)

    def ended(self, transaction: object) -> None:
        """Unregister a transaction that has ended, so that the versions that only it could read may be removed."""
        self.running.ended(transaction)
        self.isolation.ended(transaction)

    def oldest(self, database: int | None = None) -> Lsn:
        """Return the LSN from which on slots (of one database, or of all), exported snapshots and running transactions can read."""
        return min(self.running.oldest_end(), self.oldest_needed(database))

    def claim_removal(self, database: int | None = None) -> Lsn:
        """Return `oldest` for a removal of everything before it. From now on, `oldest_readable` is not before it."""
        with self._removal:
            oldest = self.oldest(database)
            self._removed[database] = max(oldest, self._removed.get(database, oldest))
            return oldest

    def oldest_readable(self, database: int) -> Lsn:
        """Return the LSN from which on the tables of a database can still be read.

        A reader that first holds its LSN (`Snapshots.holding`), and then finds it not before this one, keeps it readable.
        """
        with self._removal:
            removed = [lsn for name, lsn in self._removed.items() if name in (None, database)]
        return max([self.log.oldest_kept(), *removed])

    def clean(self) -> None:
        """Remove the directories of dropped tables that neither a slot nor a running transaction can read."""
        dropped = self.log.dropped()
        # a slot decodes the tables of its own database only
        oldest = {database: self.claim_removal(database) for database, _, _ in dropped}
        for database, relation, lsn in dropped:
            # a directory that cannot be removed completely now stays recorded as dropped until it can
            if lsn <= oldest[database] and self.tables.forget((database, relation)):
                self.log.forget_dropped(database, relation)

    def emit(self, database: int, prefix: str, content: bytes) -> Lsn:
        """Log a logical decoding message outside a transaction. Return its LSN."""
        message = TableWrite(0, 0, "message", 0, 1, 0, bytes=len(content), seen=self.log.end, emitted=Emitted(prefix, content))
        with self.commit_lock:
            entry = self.log.place(0, database, [message], None, kind=EntryKind.MESSAGE)
            self.catalog.change(lambda cursor: self.log.insert(cursor, entry, {}), Step.ENTRY)
            self.log.append(entry)
        return entry.writes[0].lsn

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
        self._is_claimed = True
        self._take_lease(tables)
        if not data_location.is_local(self.exchange):
            result_spool.clear(self.exchange)
        self.reserve.fill()
        done = self._set_torn_aside(tables)
        lost_commits.refuse(self)
        self.prepared.restore()
        done += self.intents.recover()
        logged = self.log.versions()
        newest = self.tables.newest_versions(logged)
        done += self._lost(logged, newest)
        adopt = self._recover_folders(logged, newest, done)
        self._make_all_visible()
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
                self.forget_created(key)
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

    def stop(self) -> None:
        """Wake the waiters for the log and release the lease. The Spark session belongs to the caller."""
        self.log.wake()
        if self.lease is not None:
            self.lease.release()
