"""What a Delta version names reaches the disk before the transaction log names the version.

Spark and pyarrow leave their files to the operating system's cache; only DuckDB's commit is synchronized. So that a log
entry never survives a power failure that its data did not, `sync` is called for every version written, before COMMIT.
The setting `fsync` switches it off, as PostgreSQL's does. Called by `transaction`; only the local file system is
synchronized here, shared storage answers for itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from headgate.storage import delta_log, vector


def sync(table: Path, version: int) -> None:
    """Synchronizes the data, change and deletion-vector files that a version adds, its commit, and their folders."""
    commit = table / "_delta_log" / f"{version:020d}.json"
    files = {commit, *_files(table, version)}
    for path in files:
        _sync(path)
    for folder in {path.parent for path in files}:
        _sync(folder)


def _files(table: Path, version: int) -> Iterator[Path]:
    for action in delta_log.read_version(table, version):
        named = action.get("add") or action.get("cdc")
        if named is None:
            continue
        yield table / unquote(named["path"])
        deleted = vector.file_of(table, named.get("deletionVector"))
        if deleted is not None:
            yield deleted


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
