"""Keeps data files decoded in memory if keys are looked up in them repeatedly: the sorted key column, with the rows beside it.

A lookup of one key in a file of 100,000 rows takes DuckDB 5 to 15 ms. Most of that time goes into unpacking pages for one row. A
transaction of a thousand statements, or a stream of small ones, unpacks the same pages a thousand times. Files never change, so a cached
file is never stale. Called by `lookup`, for a key of one column of integers, or of texts of one length (uuid).

Invariant: all cached files together take at most `MOST_BYTES`. A file is cached only after `AFTER` lookups, and after it was evicted
only after as many again. So files that evict each other cost a fraction of the lookups, not a multiple. Files that are not cached are
read as usual.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.storage.delta import parquet
from headgate.types import buffers

AFTER = 8
"""The number of lookups in a file before it is cached."""
FILE_BYTES = 32 << 20
"""The size in bytes (in Parquet, or decoded) above which a file is not cached."""
MOST_BYTES = 96 << 20
"""The maximum size in bytes of all cached files, decoded."""
_NOTED = 4_096
"""The number of files whose lookups are counted."""
_LONGEST = 64
"""The maximum length in bytes of a text key."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HeldFile:
    """The rows of a file, and one of its columns in order: ``keys[i]`` is the key of row ``places[i]`` (if `places` is None: of row i)."""

    rows: pa.Table
    keys: npt.NDArray[np.generic]
    places: Numbers | None

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + self.keys.nbytes + (0 if self.places is None else self.places.nbytes)

    def find(self, keys: pa.Array) -> tuple[Numbers, Numbers]:
        """Return (index in `keys`, row of the file) for each row that has one of the keys. `keys` contains no NULL."""
        indexes = np.arange(len(keys), dtype=np.int64)
        if self.keys.dtype != np.int64:  # texts of another length are none of these
            indexes = np.flatnonzero(pc.binary_length(keys).to_numpy(zero_copy_only=False) == self.keys.itemsize)
            keys = keys.take(pa.array(indexes))
        values = _comparable(keys)
        if values is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first, behind = np.searchsorted(self.keys, values, "left"), np.searchsorted(self.keys, values, "right")
        counts = behind - first
        before = np.cumsum(counts) - counts
        at = np.arange(counts.sum(), dtype=np.int64) + np.repeat(first - before, counts)
        return np.repeat(indexes, counts), at if self.places is None else self.places[at]


class HeldFiles:
    """The cache of decoded files. Thread-safe. See the module."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], HeldFile] = OrderedDict()
        self._looks: OrderedDict[tuple[str, str], int | None] = OrderedDict()
        """How often a file that is not held was looked at; None: it is none that can be held."""
        self.nbytes = 0

    def get(self, place: str, column: str, size: int) -> HeldFile | None:
        """Return the cached form of a local file with a key column, or None if it is not cached and not yet due.

        `size`: its bytes in Parquet. Raises XX001 if the file is damaged.
        """
        key = (place, column)
        with self._lock:
            if (held := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                return held
            if size > FILE_BYTES or not self._is_due(key):
                return None
        held = _read(place, column)
        with self._lock:
            if held is None:
                self._looks[key] = None
            elif key not in self._held:
                self._held[key] = held
                self.nbytes += held.nbytes
            while self.nbytes > self._most:
                self.nbytes -= self._held.popitem(last=False)[1].nbytes
        return held

    def _is_due(self, key: tuple[str, str]) -> bool:
        """Count a lookup. Return whether the file must be read now. Only one of several concurrent lookups reads it."""
        looks = self._looks.pop(key, 0)
        self._looks[key] = None if looks is None else (looks + 1) % AFTER
        if len(self._looks) > _NOTED:
            self._looks.popitem(last=False)
        return looks == AFTER - 1


def _read(place: str, column: str) -> HeldFile | None:
    """Read and decode a file. Return None if its key has an unsupported type, or if it is too large."""
    with parquet.opened(Path(place)) as file:
        decoded = sum(int(file.metadata.row_group(number).total_byte_size) for number in range(file.num_row_groups))
        if column not in file.schema_arrow.names or decoded > FILE_BYTES:
            return None
        rows = file.read().combine_chunks()
    if rows.nbytes > FILE_BYTES:
        return None
    named = buffers.whole(rows.column(column))
    keys = None if named.null_count else _comparable(named)
    if keys is None:
        return None
    if bool(np.all(np.less_equal(keys[:-1], keys[1:]))):
        return HeldFile(rows, keys, None)
    places = np.argsort(keys, kind="stable")
    return HeldFile(rows, keys[places], places)


def _comparable(column: pa.Array) -> npt.NDArray[np.generic] | None:
    """Return a column without NULLs in NumPy's form: integers as int64, texts of one length as bytes. None for others."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    if not pa.types.is_string(column.type) or not len(column):
        return None
    data, offsets = buffers.view(column)
    lengths = np.diff(offsets)
    length = int(lengths[0])
    if not 0 < length <= _LONGEST or bool(np.any(lengths != length)):
        return None
    return np.ascontiguousarray(data).view(f"S{length}")
