"""The transaction log as a Delta table for other readers: `_headgate/log`, next to the tables, lists the versions that belong together.

    position     bigint     the end of the log's entry, by which rows compare; `lsn` is the same as text
    commit_time  timestamp  of the entry
    origin       string     the replication origin of the transaction, NULL for the node's own
    database, schema, name  of the table, when the row was written; NULL if it no longer exists
    path         string     of the table, below the data location
    version      bigint     of the table from this position on; NULL if it was dropped

To read all tables as of one moment, a reader takes, for each path, the row with the greatest position up to the chosen one, and reads the
path at its version (docs/object-storage.md has the query). A thread writes the committed entries, at most PAUSE seconds after the first
one. Statements do not wait for it. Invariant: the rows of an entry are in one version of the table, so that no reader sees a part. The
table is derived from the catalog's rows, so that one that was lost, torn or belongs to another history is rebuilt from them. Cleaning keeps
entries in the catalog until they are in the table, because a superseded version that it removes may belong to one of them.

Started by the node. If an object store holds the tables, the lease covers this one too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headgate.catalog import database as databases
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.relation import relation as relations
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.lsn import Lsn
from headgate.storage import cleaning, inventory, lost_commits
from headgate.storage.delta import compaction, delta_checkpoint, delta_log, fsync, parquet
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.spark.failure import used_up
from headgate.storage.transaction.log import POSTGRES_EPOCH
from headgate.storage.transaction.storage import Storage
from headgate.supervision import Supervised

_log = logging.getLogger("headgate.storage")

PAUSE = 0.6
"""Time in seconds in which commits are collected into one version of the table."""
LONGEST_PAUSE = 60.0
"""The longest pause in seconds between two attempts on a full disk."""
KEPT_VERSIONS = 1_000
_MARK = "headgate log"
_NAMES = ("lsn", "origin", "database", "schema", "name", "path")
_SCHEMA = StructType([
    StructField("position", LongType()), *(StructField(name, StringType()) for name in _NAMES),
    StructField("commit_time", TimestampType()), StructField("version", LongType()),
])  # fmt: skip
_ARROW = pa.schema([
    ("position", pa.int64()), *((name, pa.string()) for name in _NAMES), ("commit_time", pa.timestamp("us", "UTC")), ("version", pa.int64())
])  # fmt: skip
_ROWS = (
    "SELECT v.lsn, v.dbid, v.relid, v.version, v.dropped, e.commit_time, e.origin FROM hg.table_version v"
    " LEFT JOIN hg.log_entry e ON e.end_lsn = v.lsn WHERE v.lsn > ? AND v.lsn <= ? ORDER BY v.lsn, v.dbid, v.relid"
)


class LogTable(Supervised):
    """The log table of a node, and its thread. One thread at a time calls `catch_up`."""

    def __init__(self, storage: Storage) -> None:
        super().__init__("log table", self._follow, patience=30)
        self._storage = storage
        self._table = DeltaTable(storage.delta, inventory.log_table(storage.base))
        self._state: TableState | None = None
        self._has_looked = False
        """Whether files that a killed process, or a failed attempt, left have been looked for."""
        self._anew = storage.settings.get(lost_commits.SETTING, "off") == "on"
        """Whether the table may have rows of commits that were given up."""
        self._names: _Names | None = None
        self._there: set[str] = set()
        """The paths of tables that exist according to their last row."""
        self.written = Lsn(0)
        """The position up to which the table has been written."""
        self._moved = threading.Condition()

    def wait(self, lsn: Lsn, seconds: float) -> bool:
        """Wait until the table has the entries up to this position. Return whether it has them."""
        with self._moved:
            return self._moved.wait_for(lambda: self.written >= lsn, seconds)

    def stop(self) -> None:
        """Write the committed entries, and end the thread."""
        self.stopping.set()
        self._storage.log.wake()
        super().stop()

    def _follow(self) -> None:
        pause = PAUSE
        while not self.stopping.is_set():
            if self._storage.log.wait(self.written, 1.0):
                self.stopping.wait(pause)
                pause = PAUSE if self._attempt() else min(2 * pause, LONGEST_PAUSE)

    def _attempt(self) -> bool:
        """Catch up. Return False if a resource (disk, handles, memory) is exhausted, or the data location is gone; it is retried later."""
        if self._storage.is_location_gone:  # the table watch reports it; a write would create the folder again
            self._state = None
            return False
        try:
            self.catch_up()
        except BaseException as error:
            self._state, self._has_looked = None, False  # the next attempt reads it again
            exhausted = used_up(error)
            if exhausted is None:
                raise
            _log.warning("could not write the table of the transaction log, it is tried again: %s", exhausted.message)
            self._storage.obstacles.note("writing", "table of the transaction log", exhausted.message)
            return False
        self._storage.obstacles.clear("writing", "table of the transaction log")
        return True

    def catch_up(self) -> None:
        """Write the versions of all entries up to now."""
        state = self._open_or_create()
        if not self._has_looked:
            self._remove_unnamed(state)
        end, rows = self._rows()
        if rows.num_rows:
            with step(Step.LOG_TABLE):
                state = self._commit(state, [parquet.write(self._table.path, rows, {})])
            state = self._compact(state)
        with self._moved:
            self._state, self.written = state, end
            self._moved.notify_all()

    def _open_or_create(self) -> TableState:
        """Return the table's state. Create it again if it cannot be read or goes further than the log."""
        if self._state is not None:
            return self._state
        try:
            if not self._anew and delta_log.newest_version(self._table.path) is not None:
                state = self._table.state()
                self.written = max((_last(add) for add in state.files.values()), default=Lsn(0))
                self._there = self._last_rows(state)
                if self.written <= self._storage.log.end:
                    return state
        except (PostgresError, OSError) as error:
            if used_up(error) is not None:
                raise  # the table is not damaged
            _log.warning("the table of the transaction log cannot be read and is made again: %s", error)
        self._table.remove()
        delta_log.create(self._table.path, _SCHEMA, description="the versions of the tables, by position in the log", vectors=False)
        self._anew, self.written, self._there = False, Lsn(0), set()
        return self._table.state(0)

    def _last_rows(self, state: TableState) -> set[str]:
        """Return the paths of tables that exist according to their last row."""
        batches = list(self._table.pieces(state, ["position", "path", "version"]))
        if not batches:
            return set()
        keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
        rows = (
            pa.Table.from_batches(batches)
            .sort_by("position")
            .group_by("path", use_threads=False)
            .aggregate([("version", "last", keep_nulls)])
        )
        return {
            path for path, version in zip(rows["path"].to_pylist(), rows["version_last"].to_pylist(), strict=True) if version is not None
        }

    def _rows(self) -> tuple[Lsn, pa.Table]:
        """Return the rows of the versions committed since `written`, and the end of the log."""
        storage = self._storage
        with storage.commit_lock:
            end, definitions, visible = storage.log.end, storage.running.definitions, storage.tables.visible
        with contextlib.closing(storage.catalog.cursor()) as cursor:
            versions = cursor.execute(_ROWS, [int(self.written), int(end)]).fetchall()
            if self._names is None or self._names.definitions != definitions:
                self._names = _Names(cursor, definitions)
            names = self._names
            columns: dict[str, list[object]] = {name: [] for name in _ARROW.names}
            for lsn, database, relation, version, dropped, committed, origin in versions:
                schema, name, temporary = names.of(cursor, database, relation)
                if temporary:
                    continue
                moment = None if committed is None else committed + POSTGRES_EPOCH * 1_000_000
                path = storage.folders.name((database, relation))
                row = (lsn, str(Lsn(lsn)), origin, names.database(database), schema, name, path, moment)
                _append(columns, *row, None if dropped else version)
                (self._there.discard if dropped else self._there.add)(row[6])
            # the catalog removes dropped tables at once, unless a slot needs them
            for path in sorted(self._there - set(map(storage.folders.name, visible))):
                _append(columns, int(end), str(end), None, None, None, None, path, time.time_ns() // 1000, None)
                self._there.discard(path)
        return end, pa.table(columns, schema=_ARROW)

    def _commit(self, state: TableState, actions: list[Action]) -> TableState:
        if self._storage.durable:
            fsync.sync_files(self._table.path, actions)
        return self._table.commit_version(state, actions, _MARK)

    def _remove_unnamed(self, state: TableState) -> None:
        """Remove files that no version names. Only this thread writes here, and it has no write in progress."""
        path = self._table.path
        unnamed = cleaning.unnamed_files(path, state.files)
        if unnamed:
            named = cleaning.named_files(path, -1)
            data_location.remove_all(path / file.name for file in unnamed if file.name not in named)
        self._has_looked = True

    def _compact(self, state: TableState) -> TableState:
        """Compact the table's small files, write a checkpoint every `EVERY` versions, and remove old versions. Return the state."""
        before = state.version - 1
        chosen = compaction.small_files(state)
        if len(chosen) >= compaction.MOST:
            state = self._commit(state, compaction.rewrite(self._table, state, chosen).actions())
        path = self._table.path
        if state.version // delta_checkpoint.EVERY > before // delta_checkpoint.EVERY:
            delta_checkpoint.write(self._table, state.version, durable=self._storage.durable)
            first = min(delta_log.versions(path), default=0)
            upto = delta_checkpoint.newest(path, max(state.version - KEPT_VERSIONS, 0))
            if upto > first:
                unneeded = cleaning.removed_files(path, first, upto - 1, 0) - set(state.files)
                data_location.remove_all(path / name for name in unneeded)
                cleaning.forget_versions(path, upto)
        return state


class _Names:
    """The names of databases and tables, as the catalog has them at one number of `RunningTransactions.definitions`."""

    def __init__(self, cursor: CatalogCursor, definitions: int) -> None:
        self.definitions = definitions
        self._databases = {database.oid: database.name for database in databases.all_databases(cursor)}
        self._known: dict[tuple[int, int], tuple[str | None, str | None, bool]] = {}

    def database(self, oid: int) -> str | None:
        return self._databases.get(oid)

    def of(self, cursor: CatalogCursor, database: int, oid: int) -> tuple[str | None, str | None, bool]:
        """Return the schema and name of a table, and whether it is temporary."""
        if (database, oid) not in self._known:
            table = relations.find(cursor, database, oid)
            self._known[database, oid] = (None, None, False) if table is None else (table.schema, table.name, table.persistence == "t")
        return self._known[database, oid]


def _append(columns: Mapping[str, list[object]], *row: object) -> None:
    for column, value in zip(columns.values(), row, strict=True):
        column.append(value)


def _last(add: Action) -> Lsn:
    """Return the greatest position in a file, from its statistics."""
    return Lsn(int(json.loads(add["stats"])["maxValues"]["position"]))
