"""What a node has counted of each database since it started (pg_stat_database; manual, 28.2).

Held by the engine. A transaction's commit counts, a session's rollback (`server.block`), and `lock` counts its deadlocks. Any thread may
call anything.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class DatabaseCounts:
    """Transactions of one database by their end, and waits that `lock` refused."""

    commits: int = 0
    rollbacks: int = 0
    deadlocks: int = 0


class Statistics:
    """The counts of all databases (their oids)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, DatabaseCounts] = {}
        self.compactions = self.compacted_files = 0

    def of(self, database: int) -> DatabaseCounts:
        """What has been counted of a database."""
        with self._lock:
            return self._counts.get(database, DatabaseCounts())

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

    def state(self, databases: Collection[int]) -> dict[str, dict[str, int]]:
        """The counts of these databases, for JSON."""
        with self._lock:
            return {str(oid): asdict(counts) for oid, counts in self._counts.items() if oid in databases}

    def restore(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Takes what `state` gave, before anything is counted."""
        with self._lock:
            self._counts = {int(oid): DatabaseCounts(**counts) for oid, counts in state.items()}

    def _add(self, database: int, *, commits: int = 0, rollbacks: int = 0, deadlocks: int = 0) -> None:
        with self._lock:
            old = self._counts.get(database, DatabaseCounts())
            self._counts[database] = replace(
                old, commits=old.commits + commits, rollbacks=old.rollbacks + rollbacks, deadlocks=old.deadlocks + deadlocks
            )
