"""Exported snapshots: a name for "the node's tables as of this LSN" (manual, 9.27.5; CREATE_REPLICATION_SLOT … export).

A snapshot is a position in the node's log, so nothing has to be kept but the position; the log and the files behind it are
kept as long as the snapshot is exported. It belongs to the backend that exported it and ends with that backend's next command.
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
        """A new name, in PostgreSQL's form ``00000004-0000138E-1``."""
        with self._lock:
            name = f"{pid & 0xFFFFFFFF:08X}-{next(self._numbers) & 0xFFFFFFFF:08X}-1"
            self._exported[name] = Exported(position, database, pid)
            return name

    def find(self, name: str, database: int) -> Lsn:
        """The position; 22023 if there is no such snapshot, 0A000 if it is another database's."""
        with self._lock:
            found = self._exported.get(name)
        if found is None:
            raise PostgresError("22023", f'invalid snapshot identifier: "{name}"')
        if found.database != database:
            raise PostgresError("0A000", "cannot import a snapshot from a different database")
        return found.position

    def forget(self, pid: int) -> None:
        """Ends the snapshots that a backend has exported."""
        with self._lock:
            for name in [name for name, one in self._exported.items() if one.pid == pid]:
                del self._exported[name]

    @contextlib.contextmanager
    def holding(self, position: Lsn) -> Iterator[None]:
        """Inside, the log and the tables' files from `position` on are kept, without a name that others can use."""
        with self._lock:
            number = next(self._numbers)
            self._held[number] = position
        try:
            yield
        finally:
            with self._lock:
                del self._held[number]

    def positions(self) -> list[Lsn]:
        """The positions that are still needed."""
        with self._lock:
            return [*(one.position for one in self._exported.values()), *self._held.values()]
