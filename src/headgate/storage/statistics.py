"""What a node has counted of each database and table since it started (pg_stat_database, pg_stat_all_tables; manual, 28.2).

Held by the engine. A transaction's commit counts, a session's rollback (`server.session.transaction_block`), and `lock` counts its
deadlocks. Any thread may call anything.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.storage.lock import Key
    from headgate.storage.transaction.log import TableWrite
    from headgate.storage.transaction.staged import StagedTable


@dataclass(frozen=True)
class DatabaseCounts:
    """Transactions of one database by their end, and waits that `lock` refused."""

    commits: int = 0
    rollbacks: int = 0
    deadlocks: int = 0


@dataclass(frozen=True)
class TableCounts:
    """Rows of one table by what transactions that have committed did to them; those that TRUNCATE took are not counted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: TableCounts) -> TableCounts:
        return TableCounts(self.inserted + other.inserted, self.updated + other.updated, self.deleted + other.deleted)


def table_counts(staged: StagedTable, writes: Sequence[TableWrite]) -> TableCounts:
    """What a transaction has done to a table, out of what it notes of its writes.

    Files of added rows are inserts. Change files have two rows for an update and one for an insert or a delete: which of these, by how many
    more or less rows the table has.
    """
    changes = sum(each.changes for each in writes)
    files = [file for each in writes for file in each.files or ()]
    added = sum(file.rows for file in files if not file.paired)
    updated = max(sum(file.rows for file in files if file.paired) - (changes - added), 0)
    inserted = added
    if (changed := changes - added - updated) and not staged.emptied:
        grown = staged.growth
        inserted = min(max((changes - updated + grown) // 2, added), added + changed)
    return TableCounts(inserted, updated, changes - updated - inserted)


@dataclass
class Shares:
    """How much of a kind of work the driver has done by itself, and tasks of Spark have."""

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
        """Batches of changes that were merged, segments of streams that were decoded, and the changes in these segments."""

    def of(self, database: int) -> DatabaseCounts:
        """What has been counted of a database."""
        with self._lock:
            return self._counts.get(database, DatabaseCounts())

    def of_table(self, key: Key) -> TableCounts:
        """What has been counted of a table."""
        with self._lock:
            return self._tables.get(key, TableCounts())

    def wrote(self, counts: Mapping[Key, TableCounts]) -> None:
        """A transaction has committed that did this to tables."""
        with self._lock:
            for key, each in counts.items():
                self._tables[key] = self._tables.get(key, TableCounts()) + each

    def dropped(self, keys: Collection[Key]) -> None:
        """These tables are no more."""
        with self._lock:
            for key in keys:
                self._tables.pop(key, None)

    def reset(self, database: int) -> None:
        """The database and its tables are counted from now on."""
        with self._lock:
            self._counts.pop(database, None)
            self._tables = {key: counts for key, counts in self._tables.items() if key[0] != database}

    def committed(self, database: int) -> None:
        """A transaction has committed."""
        self._add(database, commits=1)

    def rolled_back(self, database: int) -> None:
        """A transaction has rolled back."""
        self._add(database, rollbacks=1)

    def deadlock(self, database: int) -> None:
        """A transaction was refused a lock because it would have waited for itself."""
        self._add(database, deadlocks=1)

    def compacted(self, files: int) -> None:
        """That many small files of a table have become one."""
        with self._lock:
            self.compactions += 1
            self.compacted_files += files

    def merged(self, *, by_spark: bool) -> None:
        """A batch of changes has been merged into a table."""
        self._count(self.batches, by_spark=by_spark)

    def decoded(self, changes: int, *, by_spark: bool) -> None:
        """A segment of a stream, with so many changes, has been decoded."""
        self._count(self.segments, by_spark=by_spark)
        self._count(self.changes, changes, by_spark=by_spark)

    def _count(self, work: Shares, more: int = 1, *, by_spark: bool) -> None:
        with self._lock:
            if by_spark:
                work.spark += more
            else:
                work.driver += more

    def state(self, databases: Collection[int]) -> dict[str, dict[str, int]]:
        """The counts of these databases, for JSON."""
        with self._lock:
            return {str(oid): asdict(counts) for oid, counts in self._counts.items() if oid in databases}

    def state_of_tables(self, databases: Collection[int]) -> list[list[int]]:
        """The counts of the tables of these databases, for JSON."""
        with self._lock:
            return [[*key, *astuple(counts)] for key, counts in self._tables.items() if key[0] in databases]

    def restore(self, state: Mapping[str, Mapping[str, int]], tables: Sequence[Sequence[int]]) -> None:
        """Takes what `state` and `state_of_tables` gave, before anything is counted."""
        with self._lock:
            self._counts = {int(oid): DatabaseCounts(**counts) for oid, counts in state.items()}
            self._tables = {(database, relation): TableCounts(*counts) for database, relation, *counts in tables}

    def _add(self, database: int, *, commits: int = 0, rollbacks: int = 0, deadlocks: int = 0) -> None:
        with self._lock:
            old = self._counts.get(database, DatabaseCounts())
            self._counts[database] = replace(
                old, commits=old.commits + commits, rollbacks=old.rollbacks + rollbacks, deadlocks=old.deadlocks + deadlocks
            )
