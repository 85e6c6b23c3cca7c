"""The folder of a Delta table: its path, and how Spark names the files in it. Holds nothing of Java's, so that tasks get it too.

`delta_table.DeltaTable` is one that can be written through Delta. Kernels that run in the driver and in tasks alike (`changes.net`,
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
        """`raw_path` is the folder as Spark's URIs have it."""
        self.path = path
        self._base = raw_path + "/"
        self._root = data_location.root(path)

    @property
    def folder(self) -> TableFolder:
        """The same without what only the driver has."""
        return TableFolder(self.path, self._base[:-1])

    def name(self, uri: str) -> str:
        """The path in the log of a file that Spark names by its URI."""
        return uri[uri.index(self._base) + len(self._base) :]

    def uri(self, name: str) -> str:
        """The URI of a file by its path in the log, as Spark's metadata columns have it."""
        return f"{self._root}{self._base}{name}"

    def touched(self, state: TableState, files: Iterable[str]) -> dict[str, Action]:
        """The `add` actions of files (URIs) by path. 40001 if one is not the table's any more."""
        names = [self.name(uri) for uri in files]
        if any(name not in state.files for name in names):
            raise PostgresError("40001", "could not serialize access due to concurrent update")
        return {name: state.files[name] for name in names}
