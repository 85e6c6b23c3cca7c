"""A relation's changes as read from the table's files, and the cache of them that streams share.

`DecodedChanges` is immutable, except for the frames encoded from all its changes, which streams share (`rendering`). The node has one
`ChangeCache`: streams of one database that read the same writes at about the same time read and render them once. Invariant: cached values
depend only on the log and on the description of the relation, both of which are in the key. A stream that comes late reads them itself.

Traced: eight slots of one database wake up for the write 7 of t. The first stream requests (5, t, (7,)) and reads. The others wait for it,
then each takes the frames that its own filter lets pass. 64 MB of such changes are cached; with only one stream, none.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.pgoutput.encode import Frames
from headgate.publisher.publication_statistics import Tally
from headgate.storage.spark import job_group
from headgate.storage.transaction.log import TableWrite
from headgate.types import buffers

Numbers = npt.NDArray[np.int64]
LSN_PER_CHANGE = 8
LOOK_SECONDS = 0.1
"""The interval at which a stream that waits for another's read checks whether it must end."""
KEPT_BYTES = 64 << 20
"""The most bytes of memory of cached changes, as Arrow. The frames encoded from them are not counted."""
_ENTRY_BYTES = 1 << 10
"""The bytes of memory that an entry takes beside its value."""


@dataclass(frozen=True, eq=False)
class DecodedChanges:
    """Changes of one relation (see `storage.feed`), ascending in `lsn`."""

    table: pa.Table
    lsn: Numbers
    frames: dict[Hashable, Frames] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def op(self) -> npt.NDArray[np.uint8]:
        return letters(self.table["op"])

    @cached_property
    def old(self) -> pa.StructArray:
        return buffers.whole(self.table["old"])

    @cached_property
    def new(self) -> pa.StructArray:
        return buffers.whole(self.table["new"])

    @cached_property
    def commit_lsn(self) -> Numbers:
        return np.asarray(self.table["commit_lsn"].to_numpy(), np.int64)

    def column(self, side: str, name: str) -> pa.Array:
        return buffers.field(self.old if side == "old" else self.new, name)

    def take(self, places: Numbers, ops: npt.NDArray[np.uint8]) -> DecodedChanges:
        op_column = buffers.letters(ops)
        if len(places) == len(self):
            return DecodedChanges(self.table.set_column(self.table.schema.get_field_index("op"), "op", op_column), self.lsn)
        table = self.table.take(pa.array(places))
        return DecodedChanges(table.set_column(table.schema.get_field_index("op"), "op", op_column), self.lsn[places])


def decoded(table: pa.Table, writes: Sequence[TableWrite]) -> DecodedChanges:
    """Return the changes of these writes in log order."""
    lsn = _lsns(table, writes)
    if len(lsn) > 1 and not (np.diff(lsn) > 0).all():
        order = np.argsort(lsn, kind="stable")
        table, lsn = table.take(pa.array(order)), lsn[order]
    return DecodedChanges(table, lsn)


def letters(ops: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint8]:
    return buffers.packed(buffers.whole(ops))[0]


def _lsns(table: pa.Table, writes: Sequence[TableWrite]) -> Numbers:
    """Return the LSN of each change: that of its write, plus 8 for each change before it."""
    position = table["position"].to_numpy()
    if len(writes) == 1:
        return np.asarray(int(writes[0].lsn) + LSN_PER_CHANGE * position, np.int64)
    commits = np.unique(np.array([int(write.commit_lsn) for write in writes], np.int64))
    most = max(write.seq for write in writes) + 1
    keys = np.searchsorted(commits, [int(write.commit_lsn) for write in writes]) * most + np.array([write.seq for write in writes])
    order = np.argsort(keys)
    begins = np.array([int(write.lsn) for write in writes], np.int64)[order]
    write_keys = np.searchsorted(commits, table["commit_lsn"].to_numpy()) * most + table["seq"].to_numpy()
    return np.asarray(begins[np.searchsorted(keys[order], write_keys)] + LSN_PER_CHANGE * position, np.int64)


class _Entry:
    """A cached value, or one that is being read."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.value: DecodedChanges | None = None
        self.size = 0
        """The bytes of memory that it takes. 0 while it is being read."""
        self.failed = False


class ChangeCache:
    """The cache. All methods are thread-safe."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._lock = threading.Lock()
        self._streams: Counter[int] = Counter()
        self._entries: OrderedDict[tuple[int, Hashable], _Entry] = OrderedDict()
        self._kept_bytes, self._bytes = kept_bytes, 0
        self.tally = Tally()
        self.read = 0
        """The number of reads."""

    def enter(self, database: int) -> None:
        with self._lock:
            self._streams[database] += 1

    def leave(self, database: int) -> None:
        """Unregister a stream. Nothing stays cached for a single stream."""
        with self._lock:
            self._streams[database] -= 1
            if self._streams[database] < 2:
                for key in [key for key, entry in self._entries.items() if key[0] == database and entry.size]:
                    self._bytes -= self._entries.pop(key).size

    def several(self, database: int) -> bool:
        return self._streams[database] > 1

    def get(self, database: int, key: Hashable, read: Callable[[], DecodedChanges | None]) -> DecodedChanges | None:
        """Return the result of `read`, which is called once for all streams that request the key together. None is cached like a value."""
        if not self.several(database):
            self.read += 1
            return read()
        cache_key = (database, key)
        with self._lock:
            entry = self._entries.get(cache_key)
            is_first = entry is None
            if entry is None:
                entry = self._entries[cache_key] = _Entry()
            self._entries.move_to_end(cache_key)
        if is_first:
            return self._fill(cache_key, entry, read)
        while not entry.ready.wait(LOOK_SECONDS):
            job_group.check()  # this stream may end before the read that it waits for
        return read() if entry.failed else entry.value

    def _fill(self, cache_key: tuple[int, Hashable], entry: _Entry, read: Callable[[], DecodedChanges | None]) -> DecodedChanges | None:
        try:
            self.read += 1
            entry.value = read()
        except BaseException:
            entry.failed = True
            with self._lock:
                self._entries.pop(cache_key, None)
            raise
        finally:
            entry.ready.set()
        with self._lock:
            entry.size = _ENTRY_BYTES + (0 if entry.value is None else buffers.memory(entry.value.table))
            self._bytes += entry.size
            self._shrink()
        return entry.value

    def _shrink(self) -> None:
        """Evict the least recently used values, but not the last one."""
        while self._bytes > self._kept_bytes:
            cache_key = next(key for key, entry in self._entries.items() if entry.size)
            if cache_key == next(reversed(self._entries)):
                return
            self._bytes -= self._entries.pop(cache_key).size
