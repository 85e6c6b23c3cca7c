"""The Delta tables of a node by their keys, and the version of each that is visible.

The engine has one `Tables`. Invariant: the *visible* state of a table is the one that the newest log entry names. It changes only under the
log's commit lock, for all tables of a transaction at once, by replacing the whole mapping. So a reader that keeps the mapping reads all
tables as of one LSN.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from headgate.catalog.catalog import Catalog
from headgate.catalog.relation import relation as relations
from headgate.errors import PostgresError
from headgate.failpoint import Step, step
from headgate.storage.delta import delta_log
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.internals.log_cache import Delta
from headgate.storage.delta.table_state import TableState
from headgate.storage.delta.visible_state import Visible
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key, TableFolders


class Tables:
    """The tables of a node (see the module)."""

    def __init__(self, catalog: Catalog, delta: Delta, folders: TableFolders) -> None:
        self._catalog, self._delta = catalog, delta
        self.folders = folders
        self._tables: dict[Key, DeltaTable] = {}
        self._lock = threading.Lock()
        self.visible: Mapping[Key, Visible] = {}

    def path(self, key: Key) -> DataPath:
        """Return the directory of a relation's Delta table."""
        return self.folders.path(key)

    def __getitem__(self, key: Key) -> DeltaTable:
        with self._lock:
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = DeltaTable(self._delta, self.path(key))
            return table

    def forget(self, key: Key) -> bool:
        """Remove a table's directory, or give that of an external table back. Return whether that is done."""
        table = self._pop(key)
        if self.folders.opened_at(key) is None:
            return table.remove()
        table.forget()
        with step(Step.CLEANING):
            self.folders.release(key, self._catalog.system_identifier())
        return True

    def read_anew(self, key: Key) -> int:
        """Make Delta read a table's log again from its newest checkpoint. Return that version. The caller holds the table's lock.

        Running transactions may continue with the state that they have read.
        """
        version = self.visible[key].state.version
        self[key].forget()
        return delta_log.newest_checkpoint(self.path(key), version)

    def set_aside(self, key: Key) -> DataPath:
        """Move a table's directory that the log does not name out of the way. Return its new path."""
        self._pop(key).forget()
        return directory_owner.set_aside(self.folders.base, self.path(key))

    def _pop(self, key: Key) -> DeltaTable:
        with self._lock:
            return self._tables.pop(key, None) or DeltaTable(self._delta, self.path(key))

    def publish(self, states: Mapping[Key, TableState], gone: set[Key]) -> None:
        """Make new states visible, all at once. Call under the commit lock."""
        others = {key: shown for key, shown in self.visible.items() if key not in gone}
        self.visible = others | {key: Visible(state=state) for key, state in states.items() if key not in gone}

    def empty_state(self, key: Key) -> TableState:
        """Return the table without rows, as a transaction sees one that was created after its snapshot."""
        state = self.visible[key].state
        return replace(state, files={}, staged=state.staged + 1)

    # versions

    def make_visible(self, logged: Mapping[Key, int]) -> None:
        """Make the versions visible that the log names. If own versions above were undone, use the equal version that undid them."""
        newest = self.newest_versions(logged)
        self.visible = {key: self.at(key, max(version, newest[key] or 0)) for key, version in logged.items()}

    def at(self, key: Key, version: int) -> Visible:
        """Return a table's state at a version, to be loaded when it is first needed."""
        return Visible(self._loader(key, version), known=version)

    def newest_versions(self, keys: Collection[Key]) -> dict[Key, int | None]:
        """Return the newest existing version of each table."""
        return dict(zip(keys, data_location.together(self.folders.base, delta_log.newest_version, map(self.path, keys)), strict=True))

    def _loader(self, key: Key, version: int) -> Callable[[], TableState]:
        def load() -> TableState:
            if self._lacks(key, version):
                raise self.missing_version(key, version)
            try:
                return self[key].state(version)
            except Exception:
                path = self.path(key)
                needed = range(delta_log.newest_checkpoint(path, version) + 1, version)
                if (missing := next((candidate for candidate in needed if not delta_log.has_version(path, candidate)), None)) is not None:
                    raise self.missing_version(key, missing) from None
                raise

        return load

    def _lacks(self, key: Key, version: int) -> bool:
        """Return whether the version that the log names, and all above it, are missing: removed by hand, or lost with the disk."""
        newest = delta_log.newest_version(self.path(key))
        return newest is None or newest < version

    def missing_version(self, key: Key, version: int) -> PostgresError:
        """Return the error for a version that the log names and the table does not have."""
        name = self.title(key)
        file = self.path(key) / "_delta_log" / f"{version:020d}.json"
        hint = "Restore it from a backup, with the files that it names; the other tables are not affected."
        return PostgresError("XX001", f"version {version} of {name} is missing", detail=f'There is no file "{file}".', hint=hint)

    def title(self, key: Key) -> str:
        """Return the name of a relation for messages."""
        with contextlib.closing(self._catalog.cursor()) as cursor:
            relation = relations.find(cursor, *key)
        return f"relation {key[1]} of database {key[0]}" if relation is None else f'table "{relation.schema}.{relation.name}"'
