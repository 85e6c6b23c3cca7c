"""Room on the disk that is kept for undoing: what a full disk has stopped is taken back with it, so that no lock has to wait for space.

A file of SIZE bytes, `headgate.reserve`, in the data directory, and one more where the tables lie elsewhere. To undo a commit takes a row
of the catalog's log, and an inverse version for each table that has its version already: a few kilobytes. `Intents` does that inside
`spending`: where the disk is full, the file is made shorter by PIECE and it is tried again. `fill` makes it whole as soon as there is
plenty of room again; what it finds free on a full disk it takes back at once, so that others do not. A start on a full disk needs some of
it, too (`make_room`): files of the process and of Spark, what DuckDB writes when it opens the catalog.
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
    """The reserve of one engine; any thread may call anything."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Makes the files as large as they should be, as far as there is room; called at the start and now and then."""
        with self._lock:
            for folder in self._on_disks():
                with contextlib.suppress(OSError):
                    _fill(folder / _NAME)

    def spending(self, work: Callable[[], T]) -> T:
        """Does `work`, which may be done again; room is made for it while there is a reserve."""
        while True:
            try:
                return work()
            except Exception as error:
                if disk_full(error) is None or not self._spend():
                    raise

    def _spend(self) -> bool:
        """Gives up a piece on each disk; whether there was one."""
        with self._lock:
            shortened = [_shorten(folder / _NAME) for folder in self._on_disks()]
        return any(shortened)

    def _on_disks(self) -> list[Path]:
        """One folder for each file system."""
        return list({folder.stat().st_dev: folder for folder in reversed(self._folders) if folder.is_dir()}.values())


def make_room(folder: Path) -> None:
    """Before a start: gives up half of a folder's reserve where its disk is full."""
    found = os.statvfs(folder)
    path = folder / _NAME
    if found.f_bavail * found.f_frsize < SIZE // 2 and path.exists():
        os.truncate(path, min(path.stat().st_size, SIZE // 2))


def _fill(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for place in range(os.fstat(handle).st_size, SIZE, PIECE):
            os.posix_fallocate(handle, place, PIECE)
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
