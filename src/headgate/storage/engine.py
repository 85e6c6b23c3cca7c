"""The storage of a node: its Spark session, its tables, its log.

One `Engine` per node, made by `server.node` (and by tests on a bare directory). What must hold: a table's *visible* state is
the one that the newest log entry names; it changes only under `commit_lock`, for all tables of a transaction at once, by
replacing the whole mapping, so that a reader that keeps the mapping reads all tables as of one LSN.

    base/<database>/<relation>/           the Delta table of a relation
    _delta_log/…7.json   logged           visible
    _delta_log/…8.json   written by an open transaction, not logged: only that transaction reads it
    _delta_log/…9.json   after ROLLBACK or recovery: the inverse of 8, equal to 7 in content
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from headgate.errors import PostgresError
from headgate.lsn import Lsn
from headgate.storage import delta, spark, warmup
from headgate.storage.delta import Delta, DeltaTable, TableState
from headgate.storage.lock import Key, TableLocks
from headgate.storage.log import TransactionLog
from headgate.storage.write import columns

if TYPE_CHECKING:
    from headgate.storage.transaction import Transaction

MARK = "headgate"
"""First word of the user metadata of the node's Delta commits; the xid follows, or ``undo``."""


class Visible:
    """A table's visible state, read from Delta when first asked for."""

    def __init__(self, load: Callable[[], TableState] | None = None, state: TableState | None = None) -> None:
        self._load = load
        self._state = state
        self._lock = threading.Lock()

    @property
    def state(self) -> TableState:
        """The state; loading it is a Spark job, once."""
        if self._state is None:
            with self._lock:
                if self._state is None:
                    assert self._load is not None
                    self._state = self._load()
        return self._state


class Engine:
    """Begins transactions, knows what is visible, recovers after a crash."""

    def __init__(self, settings: Mapping[str, str], catalog: Any, data_dir: Path, *, session: SparkSession | None = None) -> None:
        """`catalog` is the node's Catalog (`.cursor()`, `.begin()`); `session` an existing Spark session, else one is started."""
        self.catalog = catalog
        self.data_dir = Path(data_dir)
        self.base = self._base(settings)
        self.spark = session if session is not None else spark.start(settings, scratch=self.data_dir / "pgsql_tmp" / "spark")
        self._owns_session = session is None
        if self._owns_session:
            warmup.start(self.spark, self.data_dir / "pgsql_tmp")
        self.settings = settings
        self.durable = settings.get("fsync", "on") == "on"
        self.delta = Delta(self.spark)
        self.log = TransactionLog(catalog)
        self.locks = TableLocks()
        self.commit_lock = threading.RLock()
        self._tables: dict[Key, DeltaTable] = {}
        self._active: dict[int, Lsn] = {}
        self._registry = threading.Lock()
        self.visible: Mapping[Key, Visible] = {}
        self.oldest_needed: Callable[[], Lsn] = lambda: self.log.end
        """The LSN from which on slots and exported snapshots still need the log; set by the publisher."""
        self._see_all()

    def _base(self, settings: Mapping[str, str]) -> Path:
        """The folder of the tables: what data_location says, else base/ in the data directory."""
        given = settings.get("data_location", "")
        if "://" in given:
            raise PostgresError("22023", f'data_location "{given}" is no folder of a file system', hint="Object stores are not supported.")
        return Path(given) if given else self.data_dir / "base"

    def _see_all(self) -> None:
        self.visible = {key: Visible(self._loader(key)) for key in self.log.versions()}

    def _loader(self, key: Key) -> Callable[[], TableState]:
        return lambda: self.table(key).state()

    # tables

    def path(self, key: Key) -> Path:
        """The directory of a relation's Delta table."""
        return self.base / str(key[0]) / str(key[1])

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

    def frame_at(self, relation: Any, lsn: Lsn) -> DataFrame:
        """The rows of a relation as of an LSN, live columns in order."""
        key = (relation.database, relation.oid)
        state = self.state_at(key, lsn)
        if state is None:
            return self.spark.createDataFrame([], columns(relation))
        return self.table(key).frame(state).select(*[c.name for c in relation.columns])

    # transactions

    def begin(self, database: int) -> Transaction:
        """Begins a transaction in a database (its oid)."""
        from headgate.storage.transaction import Transaction

        transaction = Transaction(self, database)
        with self._registry:
            self._active[id(transaction)] = self.log.end
        return transaction

    def ended(self, transaction: Transaction) -> None:
        """A transaction ended: its locks are free, what only it could still read may go."""
        with self._registry:
            self._active.pop(id(transaction), None)

    def clean(self) -> None:
        """Removes directories of dropped tables that neither a slot nor a running transaction can read."""
        with self._registry:
            oldest = min([*self._active.values(), self.log.end])
        oldest = min(oldest, self.oldest_needed())
        for database, relation, lsn in self.log.dropped():
            if lsn <= oldest and self.path((database, relation)).exists():
                self.forget((database, relation))

    # start and stop

    def recover(self) -> list[str]:
        """Makes the directory agree with the log after a crash: half-made tables go, unlogged versions are undone.

        Returns what was done, a line each.
        """
        done = []
        logged = self.log.versions()
        dropped = {(database, relation) for database, relation, _ in self.log.dropped()}
        for path in sorted(self.base.glob("*/*")):
            if not (path.name.isdigit() and path.parent.name.isdigit()):
                continue
            key = (int(path.parent.name), int(path.name))
            if key in logged:
                if self._undo_unlogged(key, logged[key].version):
                    done.append(f"undid uncommitted writes of relation {key[1]} in database {key[0]}")
            elif key not in dropped:
                self.forget(key)
                done.append(f"removed uncommitted relation {key[1]} of database {key[0]}")
        self._see_all()
        self.clean()
        return done

    def _undo_unlogged(self, key: Key, version: int) -> bool:
        """Undoes the versions above the logged one; whether there was anything to undo."""
        path = self.path(key)
        newest = delta.newest_version(path)
        if newest is None or newest <= version:
            return False
        info: dict[str, Any] = next((a["commitInfo"] for a in delta.read_version(path, newest) if "commitInfo" in a), {})
        if info.get("userMetadata") == undo_mark(version):
            return False
        table = self.table(key)
        table.undo(table.state(), table.state(version), undo_mark(version))
        return True

    def stop(self) -> None:
        """Ends the Spark session, if this engine started it."""
        self.log.wake()
        if self._owns_session:
            self.spark.stop()


def undo_mark(version: int) -> str:
    """User metadata of the commit that makes a table equal to `version` again."""
    return f"{MARK} undo to {version}"
