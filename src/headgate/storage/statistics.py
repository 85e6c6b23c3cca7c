"""Counters of a node by database and table since it started (pg_stat_database, pg_stat_all_tables; manual, 28.2).

Held by the engine. A transaction's commit, a session's rollback (`server.session.transaction_block`) and a deadlock in `lock` count
themselves. All methods are thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace

from headgate.storage.location.table_folders import Key


@dataclass(frozen=True)
class DatabaseCounts:
    """The committed and rolled back transactions of one database, and its deadlocks."""

    commits: int = 0
    rollbacks: int = 0
    deadlocks: int = 0


@dataclass(frozen=True)
class TableCounts:
    """The rows of one table that committed transactions inserted, updated and deleted. Rows that TRUNCATE removed are not counted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: TableCounts) -> TableCounts:
        return TableCounts(self.inserted + other.inserted, self.updated + other.updated, self.deleted + other.deleted)


@dataclass
class Shares:
    """The amount of a kind of work that the driver has done itself, and that Spark's tasks have done."""

    driver: int = 0
    spark: int = 0


class Statistics:
    """The counts of all databases (their oids) and of their tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, DatabaseCounts] = {}
        self._tables: dict[Key, TableCounts] = {}
        self.compactions = self.compacted_files = 0
        self.batches, self.segments, self.changes = Shares(), Shares(), Shares()
        """Merged batches of changes, decoded segments of streams, and the changes in these segments."""

    def of(self, database: int) -> DatabaseCounts:
        with self._lock:
            return self._counts.get(database, DatabaseCounts())

    def of_table(self, key: Key) -> TableCounts:
        with self._lock:
            return self._tables.get(key, TableCounts())

    def wrote(self, counts: Mapping[Key, TableCounts]) -> None:
        """Count the changes of a committed transaction to tables."""
        with self._lock:
            for key, more in counts.items():
                self._tables[key] = self._tables.get(key, TableCounts()) + more

    def dropped(self, keys: Collection[Key]) -> None:
        """Remove the counts of dropped tables."""
        with self._lock:
            for key in keys:
                self._tables.pop(key, None)

    def reset(self, database: int) -> None:
        with self._lock:
            self._counts.pop(database, None)
            self._tables = {key: counts for key, counts in self._tables.items() if key[0] != database}

    def committed(self, database: int) -> None:
        self._add(database, commits=1)

    def rolled_back(self, database: int) -> None:
        self._add(database, rollbacks=1)

    def deadlock(self, database: int) -> None:
        self._add(database, deadlocks=1)

    def compacted(self, files: int) -> None:
        """Count a compaction of that many small files of a table into one."""
        with self._lock:
            self.compactions += 1
            self.compacted_files += files

    def merged(self, *, by_spark: bool) -> None:
        """Count a batch of changes that was merged into a table."""
        self._count(self.batches, by_spark=by_spark)

    def decoded(self, changes: int, *, by_spark: bool) -> None:
        """Count a decoded segment of a stream, and its changes."""
        self._count(self.segments, by_spark=by_spark)
        self._count(self.changes, changes, by_spark=by_spark)

    def _count(self, work: Shares, more: int = 1, *, by_spark: bool) -> None:
        with self._lock:
            if by_spark:
                work.spark += more
            else:
                work.driver += more

    def state(self, databases: Collection[int]) -> dict[str, dict[str, int]]:
        with self._lock:
            return {str(oid): asdict(counts) for oid, counts in self._counts.items() if oid in databases}

    def state_of_tables(self, databases: Collection[int]) -> list[list[int]]:
        """Return the counts of the tables of these databases, for JSON."""
        with self._lock:
            return [[*key, *astuple(counts)] for key, counts in self._tables.items() if key[0] in databases]

    def restore(self, state: Mapping[str, Mapping[str, int]], tables: Sequence[Sequence[int]]) -> None:
        """Restore the output of `state` and `state_of_tables`, before anything is counted."""
        with self._lock:
            self._counts = {int(oid): DatabaseCounts(**counts) for oid, counts in state.items()}
            self._tables = {(database, relation): TableCounts(*counts) for database, relation, *counts in tables}

    def _add(self, database: int, *, commits: int = 0, rollbacks: int = 0, deadlocks: int = 0) -> None:
        with self._lock:
            old = self._counts.get(database, DatabaseCounts())
            self._counts[database] = replace(
                old, commits=old.commits + commits, rollbacks=old.rollbacks + rollbacks, deadlocks=old.deadlocks + deadlocks
            )
