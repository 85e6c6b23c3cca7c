"""The content of small data files, kept in memory between statements.

Statements on a small table read all of its files (`rows.read`), and a lookup by key reads the small ones of a large table
(`changes.lookup`). A function or a trigger that changes a table row by row does so for each row, and reads what it has just written, so a
small write adds its rows here. Data files never change. A file that was damaged or replaced by hand has another time or size, and is read
again. At most `LIMIT` bytes are kept in a process, those used last. All functions are thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from headgate.storage.delta import parquet
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath
from headgate.types import buffers

LIMIT = 16 << 20
"""The bytes that all files together may take in memory."""
_LARGEST = LIMIT // 16
"""The bytes of the largest file that is kept."""
_Key = tuple[str, int, int]


class KeptFiles:
    """The content of files by path, time and size, the file used last at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[_Key, pa.Table] = OrderedDict()
        self._bytes = 0

    def rows(self, path: DataPath) -> pa.Table:
        """Return all rows of a data file. Raise XX001 if it is damaged."""
        with parquet.reading(path):
            key = _key(path)
        with self._lock:
            if key in self._files:
                self._files.move_to_end(key)
                return self._files[key]
        with parquet.opened(path) as file:
            content = file.read(use_threads=False)  # to wake Arrow's threads would take longer
        if buffers.memory(content) <= _LARGEST:
            self._keep(key, content)
        return content

    def add(self, path: DataPath, content: pa.Table) -> None:
        """Keep the rows of a data file that was just written, unless they are many or part of a larger table in memory."""
        if content.get_total_buffer_size() <= _LARGEST and buffers.memory(content) <= _LARGEST:
            self._keep(_key(path), content)

    def _keep(self, key: _Key, content: pa.Table) -> None:
        with self._lock:
            if key in self._files:
                return
            self._files[key] = content
            self._bytes += buffers.memory(content)
            while self._bytes > LIMIT:
                self._bytes -= buffers.memory(self._files.popitem(last=False)[1])


def _key(path: DataPath) -> _Key:
    state = data_location.local(path).stat()
    return str(path), state.st_mtime_ns, state.st_size
