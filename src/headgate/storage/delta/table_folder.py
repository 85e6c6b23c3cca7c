"""The folder of a Delta table: its path, and how Spark names the files in it. It has no Java objects, so that Spark's tasks can use it.

`delta_table.DeltaTable` is a folder that can be written through Delta. Kernels that run both in the driver and in tasks (`changes.net`,
`changes.lookup`, `storage.write`) take a folder and a `TableState`, and need nothing else of the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.errors import PostgresError
from headgate.storage.delta.file_action import Action
from headgate.storage.delta.table_state import TableState
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath


class TableFolder:
    """The folder of one table."""

    def __init__(self, path: DataPath, raw_path: str) -> None:
        """`raw_path`: the folder as it appears in Spark's URIs."""
        self.path = path
        self._base = raw_path + "/"
        self._root = data_location.root(path)

    @property
    def folder(self) -> TableFolder:
        """Return a copy without the driver's objects."""
        return TableFolder(self.path, self._base[:-1])

    def name(self, uri: str) -> str:
        """Return the path in the Delta log of a file that Spark names by its URI."""
        return uri[uri.index(self._base) + len(self._base) :]

    def uri(self, name: str) -> str:
        """Return the URI of a file by its path in the Delta log, as Spark's metadata columns have it."""
        return f"{self._root}{self._base}{name}"

    def touched(self, state: TableState, files: Iterable[str]) -> dict[str, Action]:
        """Return the `add` actions of files (URIs) by path. Raise 40001 if a file is no longer part of the table."""
        names = [self.name(uri) for uri in files]
        if any(name not in state.files for name in names):
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        return {name: state.files[name] for name in names}
