"""Checkpoints of the tables' Delta logs, written in the background and not by commits. `checkpoint_file` has their content.

Tables are created with an interval that no version reaches (`delta_log.create`), so that no commit writes a checkpoint. The checkpointer
calls `write_due` every few seconds, which writes one for each table that has EVERY versions since its last. Readers in the node are not
affected. A start, another reader and `cleaning` begin at the newest checkpoint.

Invariant: a checkpoint is fsynced before it is announced (``_last_checkpoint``), and before `cleaning` removes older versions. A power
failure may leave a torn checkpoint that is not announced. Delta finds it by its name nevertheless, and fails. So a start renames it
(`set_torn_aside`); the versions before it still exist and have the same content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from headgate.errors import PostgresError, disk_full
from headgate.failpoint import Step, step
from headgate.storage.delta import delta_log, fsync, parquet
from headgate.storage.delta.delta_table import DeltaTable
from headgate.storage.delta.tables import Tables
from headgate.storage.location.data_location import DataPath
from headgate.storage.location.table_folders import Key

_log = logging.getLogger("headgate.storage")

EVERY = 100
"""Number of versions from one checkpoint of a table to the next."""


class DeltaCheckpoints:
    """The checkpoints of one engine's tables. Not thread-safe."""

    def __init__(self, tables: Tables, *, durable: bool, every: int = EVERY) -> None:
        self._tables, self._durable = tables, durable
        self._every = every
        self._last: dict[Key, int] = {}

    def write_due(self, check: Callable[[], None] = lambda: None) -> None:
        """Write the checkpoints that are due. A failure is logged, and retried after as many versions again.

        `check` is called after a failure. It raises if that happened because the work is to end.
        """
        for key, shown in self._tables.visible.items():
            version = shown.loaded_version
            if version is None or version - self._last.get(key, 0) < self._every:
                continue
            path = self._tables.path(key)
            last = newest(path, version)
            if version - last >= self._every:
                try:
                    write(self._tables[key], version, durable=self._durable)
                except Exception as error:  # noqa: BLE001 (from Delta, Spark or the disk; the table works without a checkpoint)
                    check()
                    full = disk_full(error)
                    _log.warning(
                        "could not write a Delta checkpoint of relation %d: %s", key[1], full or error, exc_info=None if full else error
                    )
                last = version
            self._last[key] = last


@step(Step.DELTA_CHECKPOINT)
def write(table: DeltaTable, version: int, *, durable: bool) -> None:
    """Write the checkpoint of a version, fsync it if the node is durable, and then announce it."""
    announce = table.write_checkpoint(version)
    if durable:
        fsync.sync_checkpoint(delta_log.checkpoint_files(table.path, version))
    announce()


def newest(path: DataPath, limit: int) -> int:
    """Return the newest version, at most `limit`, that has a checkpoint with all its parts, or 0."""
    return max(delta_log.newest_checkpoint(path, limit), 0)


def set_torn_aside(path: DataPath, limit: int) -> list[Path]:
    """After a power failure, rename the newest checkpoint if it cannot be read. Return the new paths of its files.

    An object store has no torn files.
    """
    if not isinstance(path, Path):
        return []
    version = newest(path, limit)
    files = [file for file in delta_log.checkpoint_files(path, version) if isinstance(file, Path)] if version else []
    if all(_is_whole(file) for file in files):
        return []
    (path / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)  # it may announce the damaged one
    return [file.rename(file.with_name(f"{file.name}.damaged")) for file in files]


def _is_whole(file: Path) -> bool:
    try:
        parquet.verify(str(file))
    except PostgresError:
        return False
    return True
