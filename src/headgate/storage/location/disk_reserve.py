"""Disk space that is reserved for undoing: a transaction that a full disk has stopped can be undone, so that its locks are released.

A file of SIZE bytes, `headgate.reserve`, in the data directory, and another where the tables are if that is elsewhere. To undo a commit
takes a row in the catalog's log, and an inverse version for each table that already has its version: a few kilobytes. `Intents` does that
inside `spending`: if the disk is full, the file is truncated by PIECE bytes and the work is retried. `fill` restores the file as soon as
there is plenty of space again. On a full disk it takes free space back at once, so that other programs do not. A start on a full disk needs
some of the reserve, too (`make_room`): for files of the process and of Spark, and for DuckDB's writes when it opens the catalog.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from headgate.errors import disk_full

T = TypeVar("T")

SIZE, PIECE = 1 << 20, 64 << 10
_NAME = "headgate.reserve"


class Reserve:
    """The reserve of one engine. All methods are thread-safe."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Restore the files to their full size as far as there is space. Called at the start and periodically."""
        with self._lock:
            for folder in self._on_disks():
                with contextlib.suppress(OSError):
                    _fill(folder / _NAME)

    def spending(self, work: Callable[[], T]) -> T:
        """Run `work`, which must be repeatable. If the disk is full, free a piece of the reserve and retry while there is one."""
        while True:
            try:
                return work()
            except Exception as error:
                if disk_full(error) is None or not self._spend():
                    raise

    def _spend(self) -> bool:
        """Free a piece on each disk. Return whether there was one."""
        with self._lock:
            shortened = [_shorten(folder / _NAME) for folder in self._on_disks()]
        return any(shortened)

    def _on_disks(self) -> list[Path]:
        """Return one folder for each file system."""
        return list({folder.stat().st_dev: folder for folder in reversed(self._folders) if folder.is_dir()}.values())


def make_room(folder: Path) -> None:
    """Free half of a folder's reserve before a start if its disk is full."""
    status = os.statvfs(folder)
    path = folder / _NAME
    if status.f_bavail * status.f_frsize < SIZE // 2 and path.exists():
        os.truncate(path, min(path.stat().st_size, SIZE // 2))


def _fill(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for offset in range(os.fstat(handle).st_size, SIZE, PIECE):
            os.posix_fallocate(handle, offset, PIECE)
    finally:
        os.close(handle)


def _shorten(path: Path) -> bool:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size:
        os.truncate(path, max(0, size - PIECE))
    return size > 0
