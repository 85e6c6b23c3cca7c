"""Fsync of the files that an intent names before the intent, and of a Delta version before the log entry that names it.

Spark and pyarrow leave their files in the operating system's cache; only DuckDB's commit is fsynced. So that neither survives a power
failure that its data did not survive, `sync_files` is called for a transaction's staged files, `sync_version` for a version's own files,
`sync_checkpoint` for a checkpoint of its log, and `sync_new_folder` for the differences that another writer's version makes. Spark writes
a checksum next to each file (``.<name>.crc``), without which the file cannot be read: it is fsynced too. The setting `fsync` disables this,
as in PostgreSQL. Called by `transaction`, `intent`, `foreign_writer`, `delta_checkpoint` and, for single files, `backup`. Only local files
are fsynced here; a write that an object store has acknowledged is durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headgate.storage.delta import file_action
from headgate.storage.delta.file_action import Action
from headgate.storage.location.data_location import DataPath

FEW, AT_ONCE = 8, 16
"""From FEW files on, several threads fsync them, at most AT_ONCE."""


def sync_files(table: DataPath, actions: Iterable[Action]) -> None:
    """Fsync the data, change and deletion-vector files that actions add, and the folders from theirs up to the table's.

    A folder below the table's may be new with the file: _change_data, or the random prefix that Spark gives files of a mapped table.
    """
    if not isinstance(table, Path):
        return
    files = {file for file in file_action.files_of(table, actions) if isinstance(file, Path)}
    _sync_all(files, {folder for path in files for folder in path.parents if folder.is_relative_to(table)})


def sync_version(table: DataPath, version: int) -> None:
    """Fsync the commit file of a version and its checksum, and for a new table the parent folders."""
    if not isinstance(table, Path):
        return
    log = table / "_delta_log"
    checksum = log / f"{version:020d}.crc"
    _sync_all({log / f"{version:020d}.json", *([checksum] if checksum.exists() else [])})
    if version == 0:
        for folder in (table, table.parent, table.parent.parent):
            sync(folder)


def sync_checkpoint(files: Iterable[DataPath]) -> None:
    """Fsync the files of a checkpoint of a Delta log, and their folder."""
    _sync_all(file for file in files if isinstance(file, Path))


def sync_new_folder(table: DataPath, folder: DataPath) -> None:
    """Fsync the files of a new folder below a table's, and the folders from it up to the table's."""
    if isinstance(table, Path) and isinstance(folder, Path):
        files = [file for file in folder.iterdir() if not file.name.startswith(".")]
        _sync_all(files, {above for above in (folder, *folder.parents) if above.is_relative_to(table)})


def _sync_all(files: Iterable[Path], above: Iterable[Path] = ()) -> None:
    files = list(files)
    folders = {*above, *(path.parent for path in files)}
    if len(files) < FEW:
        for path in files:
            _sync_file(path)
    else:  # the disk combines concurrent requests
        with ThreadPoolExecutor(AT_ONCE, "synchronize") as pool:
            for _ in pool.map(_sync_file, files):
                pass
    for folder in folders:
        sync(folder)


def _sync_file(path: Path) -> None:
    sync(path)
    beside = path.with_name(f".{path.name}.crc")
    if beside.exists():
        sync(beside)


def sync(path: Path) -> None:
    """Fsync a file, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
