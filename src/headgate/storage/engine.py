"""The storage of a node: its Spark session, its tables, its log.

One `Engine` per node, made by `server.node` (and by tests on a bare directory). What must hold: a table's *visible* state is
the one that the newest log entry names; it changes only under `commit_lock`, for all tables of a transaction at once, by
replacing the whole mapping, so that a reader that keeps the mapping reads all tables as of one LSN.

    base/<database>/<relation>/           the Delta table of a relation
    _delta_log/…7.json   logged           visible
    _delta_log/…8.json   written by an open transaction, not logged: only that transaction reads it
    _delta_log/…9.json   after ROLLBACK or recovery: the inverse of 8, equal to 7 in content

Versions that other Spark jobs commit are adopted as transactions of their own (`foreign`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import spark, warmup
from headgate.storage.delta import Delta, DeltaTable
from headgate.storage.foreign import ForeignWriters
from headgate.storage.lock import Key, TableLocks
from headgate.storage.log import Emitted, EntryKind, TableWrite, TransactionLog
from headgate.storage.mark import MARK
from headgate.storage.prepared import PreparedTransactions
from headgate.storage.statistics import Statistics
from headgate.storage.table_state import TableState
from headgate.storage.visible import Visible
from headgate.storage.write import columns, quoted

if TYPE_CHECKING:
    from headgate.storage.transaction import Transaction


SEGMENT = 16 << 20
"""What PostgreSQL calls a WAL segment."""


class Engine:
    """Begins transactions, knows what is visible, recovers after a crash."""

    def __init__(self, settings: Mapping[str, str], catalog: Any, data_dir: Path, *, session: SparkSession | None = None) -> None:
        """`catalog` is the node's Catalog (`.cursor()`, `.begin()`); `session` an existing Spark session, else one is started."""
        self.catalog = catalog
        self.data_dir = Path(data_dir)
        self.base = self._base(settings)
        self.spark = session if session is not None else spark.start(settings, scratch=self.data_dir / "pgsql_tmp" / "spark")
        self.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", MARK)
        self._owns_session = session is None
        if self._owns_session:
            warmup.start(self.spark, self.data_dir / "pgsql_tmp")
        self.settings = settings
        self.durable = settings.get("fsync", "on") == "on"
        self.delta = Delta(self.spark)
        self.log = TransactionLog(catalog)
        self.statistics = Statistics()
        self.locks = TableLocks(self.statistics)
        self.commit_lock = threading.RLock()
        self._tables: dict[Key, DeltaTable] = {}
        self._active: dict[int, Lsn] = {}
        self._registry = threading.Lock()
        self.visible: Mapping[Key, Visible] = {}
        self.prepared = PreparedTransactions(self)
        self.foreign = ForeignWriters(self)
        self.oldest_needed: Callable[[], Lsn] = lambda: self.log.end
        """The LSN from which on slots and exported snapshots still need the log; set by the publisher."""
        self._see_all()

    def _base(self, settings: Mapping[str, str]) -> Path:
        """The folder of the tables: what data_location says, else base/ in the data directory."""
        given = settings.get("data_location", "")
        if "://" in given:
            raise PostgresError("22023", f'data_location "{given}" is no folder of a file system', hint="Object stores are not supported.")
        return Path(given) if given else self.data_dir / "base"

    def _see_all(self, prepared: set[Key] = frozenset()) -> None:  # type: ignore[assignment]
        """Everything as logged; of tables that a prepared transaction has written to, not what it wrote."""
        logged = self.log.versions()
        self.visible = {key: Visible(self._loader(key, logged[key].version if key in prepared else None)) for key in logged}

    def _loader(self, key: Key, version: int | None) -> Callable[[], TableState]:
        return lambda: self.table(key).state(version)

    # tables

    def path(self, key: Key) -> Path:
        """The directory of a relation's Delta table."""
        return self.base / str(key[0]) / str(key[1])

    def sizes(self) -> Iterator[tuple[int, int, int, int]]:
        """What the relations take on disk: (database, relation, bytes of data files, bytes with Delta's log)."""
        for directory in self.base.glob("*/*/"):
            database, relation = directory.parent.name, directory.name
            if database.isdigit() and relation.isdigit():
                log = _bytes(directory / "_delta_log")
                whole = _bytes(directory)
                yield int(database), int(relation), whole - log, whole

    def table(self, key: Key) -> DeltaTable:
        """The Delta table of a relation."""
        with self._registry:
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = DeltaTable(self.delta, self.path(key))
            return table

    def forget(self, key: Key) -> None:
        """Removes a table's directory."""
        with self._registry:
            table = self._tables.pop(key, None) or DeltaTable(self.delta, self.path(key))
        table.remove()

    def publish(self, states: Mapping[Key, TableState], gone: set[Key]) -> None:
        """Makes new states visible, all at once. Call under the commit lock."""
        seen = {key: shown for key, shown in self.visible.items() if key not in gone}
        self.visible = seen | {key: Visible(state=state) for key, state in states.items() if key not in gone}

    def state_at(self, key: Key, lsn: Lsn) -> TableState | None:
        """A table as of an LSN; None where it did not exist."""
        with self.commit_lock:
            version = self.log.version_at(*key, lsn)
            if version is None:
                return None
            if key in self.visible and version == self.log.version_at(*key, self.log.end):
                return self.visible[key].state
        return self.table(key).state(version)

    def frame_at(self, relation: Any, lsn: Lsn, *, in_order: bool = False) -> DataFrame:
        """The rows of a relation as of an LSN, live columns in order (`in_order`: so are the rows, see `Transaction.frame`)."""
        key = (relation.database, relation.oid)
        state = self.state_at(key, lsn)
        if state is None:
            return self.spark.createDataFrame([], columns(relation))
        frame = self.table(key).frame(state, in_order=in_order)
        return frame.select(*[F.col(quoted(c.name)) for c in relation.columns])

    # transactions

    def begin(self, database: int) -> Transaction:
        """Begins a transaction in a database (its oid)."""
        from headgate.storage.transaction import Transaction

        transaction = Transaction(self, database)
        with self._registry:
            self._active[id(transaction)] = self.log.end
        return transaction

    def ended(self, transaction: object) -> None:
        """A transaction ended: its locks are free, what only it could still read may go."""
        with self._registry:
            self._active.pop(id(transaction), None)

    def oldest(self) -> Lsn:
        """The LSN from which on slots, exported snapshots and running transactions can read."""
        with self._registry:
            running = min([*self._active.values(), self.log.end])
        return min(running, self.oldest_needed())

    def clean(self) -> None:
        """Removes directories of dropped tables that neither a slot nor a running transaction can read."""
        oldest = self.oldest()
        for database, relation, lsn in self.log.dropped():
            if lsn <= oldest:
                if self.path((database, relation)).exists():
                    self.forget((database, relation))
                self.log.forget_dropped(database, relation)

    def emit(self, database: int, prefix: str, content: bytes) -> Lsn:
        """A logical decoding message outside of a transaction; its LSN."""
        said = TableWrite(0, 0, "message", 0, 1, 0, bytes=len(content), seen=self.log.end, emitted=Emitted(prefix, content))
        with self.commit_lock:
            entry = self.log.place(0, database, [said], None, kind=EntryKind.MESSAGE)
            self.catalog.change(lambda cursor: self.log.insert(cursor, entry, {}))
            self.log.append(entry)
        return entry.writes[0].lsn

    def switch(self, database: int) -> Lsn:
        """pg_switch_wal: moves the end of the log to the next multiple of 16 MB, unless it is at one; the end before."""
        with self.commit_lock:
            before = self.log.end
            end = Lsn(-(-before // SEGMENT) * SEGMENT)
            if end != before:
                entry = self.log.place(0, database, (), None, kind=EntryKind.MESSAGE)
                entry = replace(entry, commit_lsn=Lsn(end - (entry.end_lsn - entry.commit_lsn)), end_lsn=end)
                if entry.commit_lsn > before:
                    self.catalog.change(lambda cursor: self.log.insert(cursor, entry, {}))
                    self.log.append(entry)
        return before

    # start and stop

    def recover(self) -> list[str]:
        """Makes the directory agree with the log after a crash: half-made tables go, unlogged versions are undone or adopted.

        Returns what was done, a line each.
        """
        done = []
        logged = self.log.versions()
        dropped = {(database, relation) for database, relation, _ in self.log.dropped()}
        prepared = {key for one in self.prepared.all() for key in one.keys}
        self.prepared.restore()
        adopt = []
        for path in sorted(self.base.glob("*/*")):
            if not (path.name.isdigit() and path.parent.name.isdigit()):
                continue
            key = (int(path.parent.name), int(path.name))
            if key in prepared:
                continue
            if key in logged:
                found = self.foreign.recover(key, logged[key].version)
                if found.undone:
                    done.append(f"undid uncommitted writes of relation {key[1]} in database {key[0]}")
                if found.others:
                    adopt.append((key, found))
            elif key not in dropped:
                self.forget(key)
                done.append(f"removed uncommitted relation {key[1]} of database {key[0]}")
        self._see_all(prepared)
        for key, found in adopt:
            self.foreign.adopt_recovered(key, found)
            done.append(f"adopted {len(found.others)} versions of other writers of relation {key[1]} in database {key[0]}")
        self.clean()
        return done

    def stop(self) -> None:
        """Ends the Spark session, if this engine started it."""
        self.log.wake()
        if self._owns_session:
            self.spark.stop()


def _bytes(directory: Path) -> int:
    """The size of the files below a directory; one that is removed meanwhile counts nothing."""
    whole = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                whole += (Path(folder) / name).stat().st_size
    return whole
