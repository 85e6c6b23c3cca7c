"""The watch of the tables' files: reports a table that cannot be read as an obstacle while the node runs, until it can be read again.

One thread of the node. It checks the log and the data files of each table's visible version: whether they exist, have the right size and
may be read. It does not read data. A file that a statement or a worker has found damaged (`Engine.note_unreadable`) is read completely
at each look until it is intact. A problem becomes an obstacle of the work `READING`, which status, metrics and alerts show.

On a local disk one look checks `FILES` files. A table's log counts as `VERSION_FILES`, because its latest version is read, or as
`LOG_FILES` if the table has not been used yet, because then the whole log is read. So a look takes about 0.1 s. In an object store each
table costs a billed request, so one look checks `STORE_TABLES` tables.
"""

from __future__ import annotations

import os
from urllib.parse import unquote

from headgate.check import files
from headgate.errors import PostgresError
from headgate.storage.delta import deletion_vector, delta_log
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.visible_state import Visible
from headgate.storage.engine import READING, Engine
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key
from headgate.supervision import Periodic

LOOK_SECONDS = 10.0
FILES = 20_000
"""The number of files that one look checks. The next look continues with the next table."""
VERSION_FILES, LOG_FILES = 20, 100
STORE_TABLES = 1
"""The number of tables of an object store that one look checks."""
LOCATION = "data location"


class TableWatch(Periodic):
    """The thread that watches the tables' files, as the module describes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("table watch", LOOK_SECONDS, patience=30)
        self._engine = engine
        self._place = 0
        """The index of the table at which the next look begins."""

    def look(self) -> None:
        """Check the data location, all tables that could not be read, and some of the others."""
        obstacles, base = self._engine.obstacles, self._engine.base
        problem = _wrong_location(base)
        if problem is not None:
            obstacles.note(READING, LOCATION, f'"{base}": {problem}')
            return
        obstacles.clear(READING, LOCATION)
        known = {subject: text for work, subject, text in obstacles.all() if work == READING and isinstance(subject, tuple)}
        for key, text in known.items():
            self._look_at(key, text)
        budget = FILES if data_location.is_local(base) else STORE_TABLES
        others = [key for key in self._engine.tables.visible if key not in known]
        for index in range(len(others)):
            if budget <= 0:
                self._place += index
                return
            budget -= self._look_at(others[(self._place + index) % len(others)])

    def _look_at(self, key: Key, known: str = "") -> int:
        """Record or clear the table's problem and return the cost of the check. `known`: the earlier problem, which may name a file."""
        shown = self._engine.tables.visible.get(key)
        if shown is None:
            self._engine.obstacles.clear(READING, key)
            return 0
        path = self._engine.tables.path(key)
        adds: list[Action] = []
        try:
            if not delta_log.has_version(path, shown.version):
                problem: str | None = f'there is no file "{path}/_delta_log/{shown.version:020d}.json"'
            else:
                adds = _adds(path, shown)
                problem = _wrong_files(path, adds) or next((text for add in adds if (text := _wrong_within(path, add, known))), None)
        except (OSError, PostgresError, KeyError, ValueError) as error:
            problem = str(error) or type(error).__name__
        if problem is None:
            self._engine.obstacles.clear(READING, key)
        elif self._engine.tables.visible.get(key) is shown:  # otherwise files of an earlier version may have been removed in the meantime
            self._engine.obstacles.note(READING, key, problem)
        if not data_location.is_local(path):
            return 1
        return len(adds) + (VERSION_FILES if shown.loaded is not None else LOG_FILES)


def _wrong_location(base: DataPath) -> str | None:
    try:
        return None if directory_owner.is_marked(base) else f'there is no file "{directory_owner.FILE}"'
    except (OSError, PostgresError) as error:
        return str(error)


def _adds(path: DataPath, shown: Visible) -> list[Action]:
    """Return the `add` actions of the visible version. The log of a table that is not in use is read but not cached."""
    if shown.loaded is not None:
        delta_log.read_version(path, shown.version)
        return list(shown.loaded.files.values())
    return list(delta_log.files_at(path, shown.version).values())


def _wrong_files(path: DataPath, adds: list[Action]) -> str | None:
    """Return the problem of the first file that is missing, has the wrong size or may not be read, or None."""
    sizes = None if data_location.is_local(path) else {file.name: file.size for file in data_location.below(path)}
    for add in adds:
        name = unquote(add["path"])
        if name.startswith("/") or "://" in name:  # a file of a shallow clone's source
            continue
        file_path = f"{path}/{name}"
        try:
            size = os.stat(file_path).st_size if sizes is None else sizes[name]  # noqa: PTH116 (thousands of files)
        except (FileNotFoundError, KeyError):
            return f'file "{file_path}" is missing'
        if size != add["size"]:
            return f'file "{file_path}" has {size} bytes, not {add["size"]}'
        if sizes is None and not os.access(file_path, os.R_OK):
            return f'file "{file_path}" may not be read'
        vector = deletion_vector.file_of(path, add["deletionVector"]) if "deletionVector" in add else None
        if vector is not None and sizes is None and not vector.exists():
            return f'file "{vector}" is missing'
    return None


def _wrong_within(path: DataPath, add: Action, known: str) -> str | None:
    """Return the problem of a file that is still damaged, or None."""
    vector = deletion_vector.file_of(path, add["deletionVector"]) if "deletionVector" in add else None
    file_path = path / unquote(add["path"])
    if str(file_path) not in known and (vector is None or str(vector) not in known):
        return None
    wrong = files.wrong(path, files.Named("file", file_path, add["size"], None, add.get("deletionVector")))
    return None if wrong is None else f'file "{file_path}": {wrong}'
