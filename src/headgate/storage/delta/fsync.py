"""What an intent names reaches the disk before the intent, and a Delta version before the log entry that names it.

Spark and pyarrow leave their files to the operating system's cache; only DuckDB's commit is synchronized. So that neither survives a
power failure that its data did not, `sync_files` is called for what a transaction has staged, `sync_version` for a version's own files,
`sync_checkpoint` for a checkpoint of its log. Beside a file lies, where Spark wrote it, its checksum (``.<name>.crc``), without which the
file cannot be read: it is synchronized too. The setting `fsync` switches it off, as PostgreSQL's does. Called by `transaction`, `intent`,
`delta_checkpoint`; only the local file system is synchronized here, what an object store has answered for is durable.
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
"""From FEW files on they are synchronized by several threads; never more than AT_ONCE."""


def sync_files(table: DataPath, actions: Iterable[Action]) -> None:
    """Synchronizes the data, change and deletion-vector files that actions add, and the folders from theirs up to the table's.

    A folder below the table's may be new with the file: _change_data, or the random prefix that Spark gives files of a mapped table.
    """
    if not isinstance(table, Path):
        return
    files = {file for file in file_action.files_of(table, actions) if isinstance(file, Path)}
    _sync_all(files, {folder for path in files for folder in path.parents if folder.is_relative_to(table)})


def sync_version(table: DataPath, version: int) -> None:
    """Synchronizes the commit file of a version and its checksum; of a new table the folders above too."""
    if not isinstance(table, Path):
        return
    log = table / "_delta_log"
    checksum = log / f"{version:020d}.crc"
    _sync_all({log / f"{version:020d}.json", *([checksum] if checksum.exists() else [])})
    if version == 0:
        for folder in (table, table.parent, table.parent.parent):
            _sync(folder)


def sync_checkpoint(files: Iterable[DataPath]) -> None:
    """Synchronizes the files of a checkpoint of a Delta log, and their folder."""
    _sync_all(file for file in files if isinstance(file, Path))


def _sync_all(files: Iterable[Path], above: Iterable[Path] = ()) -> None:
    files = list(files)
    folders = {*above, *(path.parent for path in files)}
    if len(files) < FEW:
        for path in files:
            _sync_file(path)
    else:  # the disk takes those that wait for it together
        with ThreadPoolExecutor(AT_ONCE, "synchronize") as pool:
            for _ in pool.map(_sync_file, files):
                pass
    for folder in folders:
        _sync(folder)


def _sync_file(path: Path) -> None:
    _sync(path)
    beside = path.with_name(f".{path.name}.crc")
    if beside.exists():
        _sync(beside)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
