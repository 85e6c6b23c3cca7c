"""The folders of a node's tables: below the folder of the tables by number, or at the location of an external table.

    <base>/<database>/<relation>/                     a table
    <base>/_headgate/external/<database>.<relation>   names the folder of an external table, and the version that it was opened at
    <location>/_headgate/owner                        names the node and the relation that write to the folder of an external table

`engine`, `backup` and ``headgate tables`` compute paths here. An external table is the result of CREATE TABLE … WITH (location = …). The
file that names its folder is written before the folder is claimed, and both before the transaction commits. So a start finds the external
tables of transactions that did not commit, and gives their folders back (`release`). The files of the table itself stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headgate.errors import PostgresError
from headgate.storage.location import data_location, directory_owner
from headgate.storage.location.data_location import DataPath

Key = tuple[int, int]
"""Database and relation."""

OWN = "_headgate"
"""The folder of the node's own files, below that of the tables and in each table's folder."""
_EXTERNAL, _OWNER = "external", "owner"
_OF_A_TABLE = re.compile(r"/(\d+)/(\d+)/")
_MARKS = (directory_owner.FILE, "HG_VERSION")
"""Files of a node's folder of tables, and of its data directory."""


class TableFolders:
    """The folders of the tables below one data location."""

    def __init__(self, base: DataPath) -> None:
        self.base = base
        self._names = base / OWN / _EXTERNAL
        self._external: dict[Key, tuple[DataPath, int]] = {}
        for name in data_location.names_if_any(self._names):
            database, _, relation = name.partition(".")
            if database.isdigit() and relation.isdigit():
                location, version = data_location.read_text(self._names / name).splitlines()
                self._external[int(database), int(relation)] = data_location.absolute(base, location), int(version)

    def path(self, key: Key) -> DataPath:
        external = self._external.get(key)
        return self.base / str(key[0]) / str(key[1]) if external is None else external[0]

    def name(self, key: Key) -> str:
        """Return the folder relative to that of the tables, or the location of an external table."""
        external = self._external.get(key)
        return f"{key[0]}/{key[1]}" if external is None else str(external[0])

    def opened_at(self, key: Key) -> int | None:
        """Return the version at which an external table was opened, or None if the table is not external."""
        external = self._external.get(key)
        return None if external is None else external[1]

    def existing(self) -> list[tuple[Key, DataPath]]:
        """Return the folders of tables in order, whether or not the log names them."""
        folders = [(key, path) for key, (path, _) in list(self._external.items())]
        databases = [self.base / name for name in _numbers(self.base)]
        for path, tables in zip(databases, data_location.together(self.base, _numbers, databases), strict=True):
            folders += [((int(path.name), int(name)), path / name) for name in tables]
        return sorted(folders, key=lambda item: item[0])

    def external(self) -> list[tuple[Key, DataPath]]:
        return [(key, path) for key, (path, _) in list(self._external.items())]

    def sizes(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the disk usage of the tables: (database, relation, bytes of data files, bytes with Delta's log)."""
        sizes: dict[Key, tuple[int, int]] = {}
        for file in data_location.below(self.base):
            database, _, name = file.name.partition("/")
            relation, _, name = name.partition("/")
            if database.isdigit() and relation.isdigit():
                data, total = sizes.get((int(database), int(relation)), (0, 0))
                logged = name.startswith("_delta_log/")
                sizes[int(database), int(relation)] = data + (0 if logged else file.size), total + file.size
        for key, path in self.external():
            files = list(data_location.below(path))
            sizes[key] = sum(file.size for file in files if not file.name.startswith("_delta_log/")), sum(file.size for file in files)
        for key, (data, total) in sizes.items():
            yield *key, data, total

    def named_in(self, text: str) -> Key | None:
        """Return the table of the first file that a message names, or None if it names no file of a table."""
        for key, path in self.external():
            if f"{path}/" in text:
                return key
        start = text.find(f"{self.base}/")
        match = None if start < 0 else _OF_A_TABLE.search(text, start + len(str(self.base)))
        return None if match is None else (int(match[1]), int(match[2]))

    # ---- external tables --------------------------------------------------------------------------------

    def located(self, location: str) -> DataPath:
        """Return the path of a location that a statement names.

        Raise 22023 if it is not in the store of the node's own tables, is not canonical, or is inside of, or contains, another table or a
        node's own folder. Raise 58P01 if it is not a Delta table.
        """
        path = self._canonical(location)
        if not data_location.has_any(path / "_delta_log"):
            raise PostgresError("58P01", f'"{location}" is not a Delta table', detail="It has no folder _delta_log.")
        folders = [self.base, *(table_folder for _, table_folder in self.external())]
        if any(path == folder or data_location.is_inside(folder, path) or data_location.is_inside(path, folder) for folder in folders):
            raise _in_use(location)
        for parent in path.parents:
            if data_location.has_any(parent / "_delta_log") or any(data_location.has_file(parent / mark) for mark in _MARKS):
                raise PostgresError("22023", f'location "{location}" is inside another table or node', detail=f'See "{parent}".')
        return path

    def _canonical(self, location: str) -> DataPath:
        if isinstance(self.base, Path):
            if "://" in location:
                raise _elsewhere(location)
            path = Path(location)
            if not path.is_absolute() or not location.isprintable() or str(path) != location:
                raise _not_canonical(location)
            for folder in (path, path / "_delta_log", path / OWN):
                if folder.exists() and folder.resolve() != folder:
                    raise PostgresError("22023", f'location "{location}" contains a symbolic link', detail=f'See "{folder}".')
            return path
        root = data_location.root(self.base) + "/"
        if not location.startswith(root):
            raise _elsewhere(location)
        parts = location.removeprefix(root).split("/")
        if any(part in ("", ".", "..") for part in parts) or not location.isprintable() or set(location) & set("?#%*[]"):
            raise _not_canonical(location)
        return data_location.absolute(self.base, location)

    def claim(self, key: Key, path: DataPath, version: int, owner: str) -> None:
        """Make a folder that of an external table, opened at a version. `owner`: the node. Raise 55006 if it belongs to another table."""
        data_location.make_folder(self._names)
        data_location.make_folder(path / OWN)
        self._external[key] = path, version
        data_location.write_whole(self._names / f"{key[0]}.{key[1]}", f"{path}\n{version}\n")
        try:
            data_location.write_new(path / OWN / _OWNER, _owner(owner, key), synced=True)
        except FileExistsError as error:
            raise _in_use(str(path)) from error

    def release(self, key: Key, owner: str) -> None:
        """Give the folder of an external table back: remove the node's own files from it, and keep the table."""
        path, _ = self._external[key]
        try:
            is_own = data_location.read_text(path / OWN / _OWNER) == _owner(owner, key)
        except FileNotFoundError:
            is_own = False
        if is_own:
            data_location.remove_tree(path / OWN)
        data_location.remove(self._names / f"{key[0]}.{key[1]}")
        del self._external[key]


def _owner(owner: str, key: Key) -> str:
    return f"{owner} {key[0]}.{key[1]}\n"


def _in_use(location: str) -> PostgresError:
    return PostgresError(
        "55006",
        f'location "{location}" belongs to another table',
        hint="If that table was dropped, a replication slot or a transaction may still read it.",
    )


def _elsewhere(location: str) -> PostgresError:
    hint = "A node whose tables are on a local disk accepts absolute paths. Others accept URIs of the bucket that data_location names."
    return PostgresError("22023", f'location "{location}" is not in the store of the node\'s tables', hint=hint)


def _not_canonical(location: str) -> PostgresError:
    return PostgresError("22023", f'location "{location}" is not an absolute path in canonical form')


def _numbers(folder: DataPath) -> list[str]:
    try:
        return [name for name in data_location.names(folder) if name.isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return []
