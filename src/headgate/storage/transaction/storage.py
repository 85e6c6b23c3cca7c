"""The storage of a node that all of its transactions share: the catalog, the log, the locks, the running transactions and the tables.

`Engine` extends it by the parts that begin and end transactions. These parts take a `Storage`, or parts of it, and do not know the engine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.catalog.catalog import Catalog
from headgate.catalog.relation.relation import Relation
from headgate.lsn import Lsn
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.tables import Tables
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.disk_reserve import Reserve
from headgate.storage.location.table_folders import Key, TableFolders
from headgate.storage.lock import TableLocks
from headgate.storage.spark.application.spark_session import is_cluster
from headgate.storage.spark.column_name import quoted
from headgate.storage.statistics import Statistics
from headgate.storage.transaction.log import TransactionLog
from headgate.storage.transaction.running import RunningTransactions
from headgate.storage.write import columns
from headgate.supervision import Obstacles

SMALL_BATCH_ROWS = 75_000
"""The default of `small_batch_rows`: from this size on a Spark job is not slower than the driver on two cores (docs/cluster.md)."""


class Storage:
    """The storage of a node (see the module)."""

    def __init__(self, settings: Mapping[str, str], catalog: Catalog, data_dir: Path, *, session: SparkSession) -> None:
        self.catalog = catalog
        self.data_dir = Path(data_dir)
        self._open_location(settings)
        self.is_claimed = False
        """Whether the folder of the tables has been claimed, which recovery does."""
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
        self.oldest_needed: Callable[[int | None], Lsn] = lambda database: self.log.end
        """Returns the LSN from which on slots and exported snapshots still need the log. Set by the node."""
        self._removal = threading.Lock()
        self._removed: dict[int | None, Lsn] = {}
        """By database (None: all), the LSN before which log entries and files may have been removed since the start."""
        self.make_all_visible()

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

    @property
    def is_location_gone(self) -> bool:
        """Return whether the folder of the tables has gone since the start. Nothing may create another one in its place.

        An object store has no folders that could be gone.
        """
        return self.is_claimed and data_location.is_local(self.base) and not directory_owner.is_marked(self.base)

    @property
    def small_batch_rows(self) -> int:
        """Return the size up to which a batch is written without a Spark job, as set now. 0: all batches and row filters use tasks."""
        return int(self.settings.get("small_batch_rows", SMALL_BATCH_ROWS))

    def make_all_visible(self) -> None:
        """Make every table visible as the log names it."""
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
