"""Local copies of an object store's immutable files: those that were read, and those that this process has written.

`data_location` looks here before it sends a request to the store. The engine opens the cache of its store (`open_cache`) in a folder of the
data directory. It is empty at each start and has a size limit (setting `data_location_cache_size`), above which the least recently used
copies are evicted. Invariant: a copy that was used within the last KEPT_SECONDS stays, because a thread may be about to open it. In a
process that has not opened a cache (a Spark worker, a command), the copies are in a temporary folder that is removed at exit.
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
"""Limit of the number of copies, regardless of their size."""
BLOCK = 4096
"""Size in bytes of a disk block, the unit in which the size of a copy is counted."""


class FileCache:
    """The copies in one folder. All methods are thread-safe."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self._files: OrderedDict[str, tuple[Path, int, float]] = OrderedDict()
        """By name in the store: the copy, its size, and the time of its last use. The most recently used is last."""
        self._size = 0
        self._lock = threading.Lock()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)

    def find(self, name: str) -> Path | None:
        with self._lock:
            copy = self._files.pop(name, None)
            if copy is None:
                return None
            self._files[name] = copy[0], copy[1], time.monotonic()
            return copy[0]

    def keep(self, name: str, draft: Path) -> Path:
        """Move a file into the cache as the copy. Return its new path."""
        path = self.folder / (hashlib.sha256(name.encode()).hexdigest()[:40] + Path(name).suffix)
        size = -(-draft.stat().st_size // BLOCK) * BLOCK
        draft.replace(path)
        with self._lock:
            before = self._files.pop(name, None)
            self._size += size - (before[1] if before is not None else 0)
            self._files[name] = path, size, time.monotonic()
            self._shrink()
        return path

    def forget(self, name: str) -> None:
        """Remove the copy of a file that was removed from the store."""
        with self._lock:
            copy = self._files.pop(name, None)
            if copy is not None:
                self._size -= copy[1]
                copy[0].unlink(missing_ok=True)

    def _shrink(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        while self._files and (self._size > self.limit or len(self._files) > MOST_FILES):
            name, (path, size, used) = next(iter(self._files.items()))
            if used > oldest:
                return
            del self._files[name]
            self._size -= size
            path.unlink(missing_ok=True)


_caches: dict[AbstractFileSystem, FileCache] = {}
_lock = threading.Lock()


def open_cache(store: AbstractFileSystem, folder: Path, limit: int) -> FileCache:
    cache = FileCache(folder, limit)
    with _lock:
        _caches[store] = cache
    return cache


def get(store: AbstractFileSystem, name: str, download: Callable[[Path], None]) -> Path:
    cache = _of(store)
    copy = cache.find(name)
    if copy is not None:
        return copy
    part = draft(store)
    try:
        download(part)
        return cache.keep(name, part)
    finally:
        part.unlink(missing_ok=True)


def has(store: AbstractFileSystem, name: str) -> bool:
    return _of(store).find(name) is not None


def draft(store: AbstractFileSystem) -> Path:
    """Return a new path for a file that will become a copy."""
    return _of(store).folder / f".{uuid.uuid4()}.tmp"


def keep(store: AbstractFileSystem, name: str, file: Path) -> None:
    """Move a file that was written at a `draft` path into the cache, as the copy of one in the store."""
    _of(store).keep(name, file)


def put(store: AbstractFileSystem, name: str, content: bytes) -> None:
    """Add a small file to the cache, as the copy of one in the store."""
    path = draft(store)
    path.write_bytes(content)
    _of(store).keep(name, path)


def forget(store: AbstractFileSystem, name: str) -> None:
    """Remove the copy of a file that was removed from the store."""
    _of(store).forget(name)


def _of(store: AbstractFileSystem) -> FileCache:
    with _lock:
        cache = _caches.get(store)
        if cache is None:
            cache = _caches[store] = FileCache(_temporary() / uuid.uuid4().hex)
        return cache


@functools.cache
def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"headgate-files-{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
