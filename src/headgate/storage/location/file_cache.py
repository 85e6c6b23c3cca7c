"""Local copies of an object store's files that never change: those that were read, and those that this process has written.

`data_location` asks here before it asks the store. The engine opens the cache of its store (`open_cache`) in a folder of the data
directory, empty at each start, with a limit of size (setting `data_location_cache_size`): beyond it those go that were asked for longest
ago. What must hold: a file that was asked for within the last KEPT_SECONDS stays, as somebody may be about to open it. Without a cache
that was opened (a worker of Spark's, a command) the files lie in a temporary folder that goes with the process.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

DEFAULT_LIMIT = 1 << 30
KEPT_SECONDS = 60.0
MOST_FILES = 20_000
"""Copies that are kept at most, however small they are."""
BLOCK = 4096
"""What the smallest takes on disk."""


class FileCache:
    """The copies in one folder; any thread may call anything."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self._files: OrderedDict[str, tuple[Path, int, float]] = OrderedDict()
        """By name in the store: the copy, its size, when it was last asked for; that asked for last is the last."""
        self._size = 0
        self._lock = threading.Lock()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)

    def find(self, name: str) -> Path | None:
        """The copy of a file, if there is one."""
        with self._lock:
            found = self._files.pop(name, None)
            if found is None:
                return None
            self._files[name] = found[0], found[1], time.monotonic()
            return found[0]

    def keep(self, name: str, draft: Path) -> Path:
        """Takes a file as the copy; where it is now."""
        place = self.folder / (hashlib.sha256(name.encode()).hexdigest()[:40] + Path(name).suffix)
        size = -(-draft.stat().st_size // BLOCK) * BLOCK
        draft.replace(place)
        with self._lock:
            before = self._files.pop(name, None)
            self._size += size - (before[1] if before is not None else 0)
            self._files[name] = place, size, time.monotonic()
            self._shrink()
        return place

    def forget(self, name: str) -> None:
        """The file is no longer in the store."""
        with self._lock:
            found = self._files.pop(name, None)
            if found is not None:
                self._size -= found[1]
                found[0].unlink(missing_ok=True)

    def _shrink(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        while self._files and (self._size > self.limit or len(self._files) > MOST_FILES):
            name, (place, size, asked) = next(iter(self._files.items()))
            if asked > oldest:
                return
            del self._files[name]
            self._size -= size
            place.unlink(missing_ok=True)


_caches: dict[AbstractFileSystem, FileCache] = {}
_lock = threading.Lock()


def open_cache(store: AbstractFileSystem, folder: Path, limit: int) -> FileCache:
    """The cache of a store from now on, in a folder that is emptied."""
    made = FileCache(folder, limit)
    with _lock:
        _caches[store] = made
    return made


def get(store: AbstractFileSystem, name: str, download: Callable[[Path], None]) -> Path:
    """The copy of a file, which `download` brings where there is none."""
    cache = _of(store)
    found = cache.find(name)
    if found is not None:
        return found
    part = draft(store)
    try:
        download(part)
        return cache.keep(name, part)
    finally:
        part.unlink(missing_ok=True)


def has(store: AbstractFileSystem, name: str) -> bool:
    """Whether there is a copy of a file."""
    return _of(store).find(name) is not None


def draft(store: AbstractFileSystem) -> Path:
    """A new place for a file that is to become a copy."""
    return _of(store).folder / f".{uuid.uuid4()}.tmp"


def keep(store: AbstractFileSystem, name: str, made: Path) -> None:
    """Takes a file that lies at a `draft` as the copy of one that is in the store."""
    _of(store).keep(name, made)


def put(store: AbstractFileSystem, name: str, content: bytes) -> None:
    """The same of a small file."""
    made = draft(store)
    made.write_bytes(content)
    _of(store).keep(name, made)


def forget(store: AbstractFileSystem, name: str) -> None:
    """A file is no longer in the store."""
    _of(store).forget(name)


def _of(store: AbstractFileSystem) -> FileCache:
    with _lock:
        found = _caches.get(store)
        if found is None:
            found = _caches[store] = FileCache(_temporary() / uuid.uuid4().hex)
        return found


@functools.cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"headgate-files-{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
