"""The checkpoints of the tables' Delta logs, written beside the commits: for one, Delta replays the log, which takes a second and more.

Tables are made with an interval that no version reaches (`delta_log.create`), so that no commit writes a checkpoint. `write_due` is
called by the checkpointer every few seconds, and writes one for each table that has EVERY versions since its last. A reader of the
node's does not notice; a start, another reader and `cleaning` begin at the newest.

What must hold: a checkpoint is synchronized before it is announced (``_last_checkpoint``), and before `cleaning` removes what is older. A
power failure may leave a torn one that is not announced: Delta finds it by its name all the same, and fails; so a start sets it aside
(`set_torn_aside`), and the versions before it, which are there, tell the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import PostgresError, disk_full
from headgate.failpoint import Step, step
from headgate.storage.delta import delta_log, fsync, parquet
from headgate.storage.location.data_location import DataPath
from headgate.storage.lock import Key

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

_log = logging.getLogger("headgate.storage")

EVERY = 100
"""Versions from one checkpoint of a table to the next."""


class DeltaCheckpoints:
    """Those of one engine's tables. Not for several threads."""

    def __init__(self, engine: Engine, every: int = EVERY) -> None:
        self._engine = engine
        self._every = every
        self._last: dict[Key, int] = {}

    def write_due(self, check: Callable[[], None] = lambda: None) -> None:
        """Writes those that are due. One that fails is told in the log and tried again when as many versions have come.

        `check` raises where one has failed because the work is to end.
        """
        for key, shown in self._engine.visible.items():
            version = shown.loaded_version
            if version is None or version - self._last.get(key, 0) < self._every:
                continue
            path = self._engine.path(key)
            written = newest(path, version)
            if version - written >= self._every:
                try:
                    self._write(key, version)
                except Exception as error:  # noqa: BLE001 (Delta's, Spark's and the disk's; the table is as good without)
                    check()
                    full = disk_full(error)
                    _log.warning(
                        "could not write a Delta checkpoint of relation %d: %s", key[1], full or error, exc_info=None if full else error
                    )
                written = version
            self._last[key] = written

    @step(Step.DELTA_CHECKPOINT)
    def _write(self, key: Key, version: int) -> None:
        table = self._engine.table(key)
        info = table.write_checkpoint(version)
        if self._engine.durable:
            fsync.sync_checkpoint(delta_log.checkpoint_files(table.path, version))
        table.announce_checkpoint(info)


def newest(path: DataPath, limit: int) -> int:
    """The newest version, at most `limit`, that has a checkpoint with all its parts; 0 where there is none."""
    return max(delta_log.newest_checkpoint(path, limit), 0)


def set_torn_aside(path: DataPath, limit: int) -> list[Path]:
    """After a power failure: renames a newest checkpoint that cannot be read; the files as they are called now.

    An object store has no torn file.
    """
    if not isinstance(path, Path):
        return []
    version = newest(path, limit)
    found = [file for file in delta_log.checkpoint_files(path, version) if isinstance(file, Path)] if version else []
    if all(_is_whole(file) for file in found):
        return []
    (path / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)  # it may announce the one that goes
    return [file.rename(file.with_name(f"{file.name}.damaged")) for file in found]


def _is_whole(file: Path) -> bool:
    try:
        parquet.verify(str(file))
    except PostgresError:
        return False
    return True
