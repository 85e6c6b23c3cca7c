"""The transaction log for everybody: beside the tables lies a Delta table, `_headgate/log`, that says which versions belong together.

    position     bigint     the end of the log's entry, by which rows compare; `lsn` is the same as text
    commit_time  timestamp  of the entry
    origin       string     whose transaction it was, NULL for the node's own
    database, schema, name  of the table, when the row was written; NULL for one that is no longer there
    path         string     of the table, below the data location
    version      bigint     of the table from this position on; NULL where it was dropped

A reader who wants all tables as of one moment takes, for each path, the row with the greatest position up to the one that he chose, and
reads the path at its version (docs/object-storage.md has the query). A thread writes what has been committed, PAUSE seconds behind the
first entry at most: statements do not wait for it. What must hold: the rows of an entry are in one version of the table, so that nobody
sees a part; and the table is made of the catalog's rows, so that one that was lost, torn or is of another history is made again from
them.

Started by the node. Where an object store holds the tables, the lease covers this one too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headgate.catalog import database as databases
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
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.catalog.cursor import CatalogCursor
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

PAUSE = 0.6
"""What is committed within so many seconds is one version of the table."""
LONGEST_PAUSE = 60.0
"""Between two attempts on a full disk."""
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
    """The table of one engine. `catch_up` is called by one thread at a time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("log table", self._follow, patience=30)
        self._engine = engine
        self._table = DeltaTable(engine.delta, inventory.log_table(engine.base))
        self._state: TableState | None = None
        self._has_looked = False
        """Whether files have been looked for that a killed process, or a failed attempt, has left."""
        self._anew = engine.settings.get(lost_commits.SETTING, "off") == "on"
        """Whether the table may tell of commits that were given up."""
        self._names: _Names | None = None
        self._there: set[str] = set()
        """The paths whose last row says that they are there."""
        self.written = Lsn(0)
        """How far the table goes."""

    def stop(self) -> None:
        """Write what is committed, and end the thread."""
        self.stopping.set()
        self._engine.log.wake()
        super().stop()

    def _follow(self) -> None:
        pause = PAUSE
        while not self.stopping.is_set():
            if self._engine.log.wait(self.written, 1.0):
                self.stopping.wait(pause)
                pause = PAUSE if self._attempt() else min(2 * pause, LONGEST_PAUSE)

    def _attempt(self) -> bool:
        """Catches up; False where a resource is used up (disk, handles, memory), which is no fault of the thread's: tried again later."""
        try:
            self.catch_up()
        except BaseException as error:
            self._state, self._has_looked = None, False  # it is read again
            known = used_up(error)
            if known is None:
                raise
            _log.warning("could not write the table of the transaction log, it is tried again: %s", known.message)
            self._engine.obstacles.note("writing", "table of the transaction log", known.message)
            return False
        self._engine.obstacles.clear("writing", "table of the transaction log")
        return True

    def catch_up(self) -> None:
        """Writes the versions of all entries up to now."""
        state = self._opened()
        if not self._has_looked:
            self._remove_unnamed(state)
        end, rows = self._rows()
        if rows.num_rows:
            with step(Step.LOG_TABLE):
                state = self._commit(state, [parquet.write(self._table.path, rows, {})])
            state = self._tidied(state)
        self._state, self.written = state, end

    def _opened(self) -> TableState:
        """The table as it is; made anew where it cannot be read, or goes further than the log."""
        if self._state is not None:
            return self._state
        try:
            if not self._anew and delta_log.newest_version(self._table.path) is not None:
                state = self._table.state()
                self.written = max((_last(add) for add in state.files.values()), default=Lsn(0))
                self._there = self._last_rows(state)
                if self.written <= self._engine.log.end:
                    return state
        except (PostgresError, OSError) as error:
            if used_up(error) is not None:
                raise  # the table is good
            _log.warning("the table of the transaction log cannot be read and is made again: %s", error)
        self._table.remove()
        delta_log.create(self._table.path, _SCHEMA, description="the versions of the tables, by position in the log", vectors=False)
        self._anew, self.written, self._there = False, Lsn(0), set()
        return self._table.state(0)

    def _last_rows(self, state: TableState) -> set[str]:
        """The paths that are there by the last row of each."""
        batches = list(self._table.pieces(state, ["position", "path", "version"]))
        if not batches:
            return set()
        whole = pc.ScalarAggregateOptions(skip_nulls=False)
        rows = (
            pa.Table.from_batches(batches).sort_by("position").group_by("path", use_threads=False).aggregate([("version", "last", whole)])
        )
        return {
            path for path, version in zip(rows["path"].to_pylist(), rows["version_last"].to_pylist(), strict=True) if version is not None
        }

    def _rows(self) -> tuple[Lsn, pa.Table]:
        """What has been committed since, and up to where."""
        engine = self._engine
        with engine.commit_lock:
            end, definitions, visible = engine.log.end, engine.definitions, engine.visible
        with contextlib.closing(engine.catalog.cursor()) as cursor:
            found = cursor.execute(_ROWS, [int(self.written), int(end)]).fetchall()
            if self._names is None or self._names.definitions != definitions:
                self._names = _Names(cursor, definitions)
            names = self._names
            columns: dict[str, list[Any]] = {name: [] for name in _ARROW.names}
            for lsn, database, relation, version, dropped, committed, origin in found:
                schema, name, temporary = names.of(cursor, database, relation)
                if temporary:
                    continue
                moment = None if committed is None else committed + POSTGRES_EPOCH * 1_000_000
                row = (lsn, str(Lsn(lsn)), origin, names.database(database), schema, name, f"{database}/{relation}", moment)
                _append(columns, *row, None if dropped else version)
                (self._there.discard if dropped else self._there.add)(row[6])
            # what is dropped the catalog forgets at once, unless a slot needs it
            for path in sorted(self._there - {f"{database}/{relation}" for database, relation in visible}):
                _append(columns, int(end), str(end), None, None, None, None, path, time.time_ns() // 1000, None)
                self._there.discard(path)
        return end, pa.table(columns, schema=_ARROW)

    def _commit(self, state: TableState, actions: list[Action]) -> TableState:
        if self._engine.durable:
            fsync.sync_files(self._table.path, actions)
        return self._table.commit_version(state, actions, _MARK)

    def _remove_unnamed(self, state: TableState) -> None:
        """Removes files that no version names; nobody else writes here, and this thread has none under way."""
        path = self._table.path
        left = cleaning.unnamed_files(path, state.files)
        if left:
            named = cleaning.named_files(path, -1)
            data_location.remove_all(path / file.name for file in left if file.name not in named)
        self._has_looked = True

    def _tidied(self, state: TableState) -> TableState:
        """The table with its small files in one, a checkpoint now and then, and without the versions of long ago."""
        chosen = compaction.small_files(state)
        if len(chosen) >= compaction.MOST:
            state = self._commit(state, compaction.rewrite(self._table, state, chosen).actions())
        path = self._table.path
        if state.version % delta_checkpoint.EVERY == 0:
            info = self._table.write_checkpoint(state.version)
            if self._engine.durable:
                fsync.sync_checkpoint(delta_log.checkpoint_files(path, state.version))
            self._table.announce_checkpoint(info)
            first = min(delta_log.versions(path), default=0)
            upto = delta_checkpoint.newest(path, max(state.version - KEPT_VERSIONS, 0))
            if upto > first:
                gone = cleaning.removed_files(path, first, upto - 1, 0) - set(state.files)
                data_location.remove_all(path / name for name in gone)
                cleaning.forget_versions(path, upto)
        return state


class _Names:
    """The names of databases and tables, as the catalog has them at one number of `Engine.definitions`."""

    def __init__(self, cursor: CatalogCursor, definitions: int) -> None:
        self.definitions = definitions
        self._databases = {each.oid: each.name for each in databases.all_databases(cursor)}
        self._known: dict[tuple[int, int], tuple[str | None, str | None, bool]] = {}

    def database(self, oid: int) -> str | None:
        """Of a database."""
        return self._databases.get(oid)

    def of(self, cursor: CatalogCursor, database: int, oid: int) -> tuple[str | None, str | None, bool]:
        """Schema and name of a table, and whether it is temporary."""
        if (database, oid) not in self._known:
            found = relations.find(cursor, database, oid)
            self._known[database, oid] = (None, None, False) if found is None else (found.schema, found.name, found.persistence == "t")
        return self._known[database, oid]


def _append(columns: Mapping[str, list[Any]], *row: Any) -> None:
    for column, value in zip(columns.values(), row, strict=True):
        column.append(value)


def _last(add: Action) -> Lsn:
    """The greatest position in a file."""
    return Lsn(int(json.loads(add["stats"])["maxValues"]["position"]))
