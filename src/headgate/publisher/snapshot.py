"""Exported snapshots: names for the state of a node's tables at an LSN (manual, 9.27.5; CREATE_REPLICATION_SLOT … export).

A snapshot is a position in the node's log, so only the position is stored. The log and the files after it are retained while the snapshot
is exported. It belongs to the backend that exported it and ends with that backend's next command.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.errors import PostgresError
from headgate.lsn import Lsn


@dataclass(frozen=True)
class Exported:
    """One exported snapshot."""

    position: Lsn
    database: int
    pid: int


class Snapshots:
    """The exported snapshots of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._exported: dict[str, Exported] = {}
        self._held: dict[int, Lsn] = {}

    def export(self, position: Lsn, database: int, pid: int) -> str:
        """Export a snapshot and return its name, in PostgreSQL's format ``00000004-0000138E-1``."""
        with self._lock:
            name = f"{pid & 0xFFFFFFFF:08X}-{next(self._numbers) & 0xFFFFFFFF:08X}-1"
            self._exported[name] = Exported(position, database, pid)
            return name

    def find(self, name: str, database: int) -> Lsn:
        """Return the position of a snapshot. Raise 22023 if it does not exist, 0A000 if it belongs to another database."""
        with self._lock:
            snapshot = self._exported.get(name)
        if snapshot is None:
            raise PostgresError("22023", f'invalid snapshot identifier: "{name}"')
        if snapshot.database != database:
            raise PostgresError("0A000", "cannot import a snapshot from a different database")
        return snapshot.position

    def forget(self, pid: int) -> None:
        """Remove the snapshots that a backend has exported."""
        with self._lock:
            for name in [name for name, snapshot in self._exported.items() if snapshot.pid == pid]:
                del self._exported[name]

    @contextlib.contextmanager
    def holding(self, position: Lsn) -> Iterator[None]:
        """Retain the log and the tables' files from `position` on inside the context, without an exported name."""
        with self._lock:
            number = next(self._numbers)
            self._held[number] = position
        try:
            yield
        finally:
            with self._lock:
                del self._held[number]

    def positions(self) -> list[Lsn]:
        with self._lock:
            return [*(snapshot.position for snapshot in self._exported.values()), *self._held.values()]
