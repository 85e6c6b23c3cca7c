"""A relation's changes as they were read from the table's files, and the readers' common store of them.

`DecodedChanges` is immutable but for the frames that were made of all its changes, which streams share (`rendering`). `Shared` is the
node's: streams of one database that read the same writes at about the same time read and render them once. What must hold: what is
shared depends on the log and on the description of the relation alone, both of which are in the key; a stream that comes late reads
for itself.

Traced: eight slots of one database wake for the write 7 of t. The first stream asks for (5, t, (7,)) and reads; the others wait
for it, then each takes the frames that its own filter lets pass. 64 MB of such changes are kept; with one stream, none.
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
"""How often one that waits for another's read looks whether it is to end."""
KEPT_BYTES = 64 << 20
"""Of changes in the store, as Arrow holds them; the frames made of them come on top."""


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
        """The letters of the operations."""
        return letters(self.table["op"])

    @cached_property
    def old(self) -> pa.StructArray:
        """The rows before."""
        return buffers.whole(self.table["old"])

    @cached_property
    def new(self) -> pa.StructArray:
        """The rows after."""
        return buffers.whole(self.table["new"])

    def column(self, side: str, name: str) -> pa.Array:
        """A column of the old or new rows."""
        return buffers.field(self.old if side == "old" else self.new, name)

    def take(self, places: Numbers, ops: npt.NDArray[np.uint8]) -> DecodedChanges:
        """Some of the changes, as these operations."""
        words = pa.Array.from_buffers(
            pa.string(), len(ops), [None, pa.py_buffer(np.arange(len(ops) + 1, dtype=np.int32)), pa.py_buffer(np.ascontiguousarray(ops))]
        )
        if len(places) == len(self):
            return DecodedChanges(self.table.set_column(self.table.schema.get_field_index("op"), "op", words), self.lsn)
        table = self.table.take(pa.array(places))
        return DecodedChanges(table.set_column(table.schema.get_field_index("op"), "op", words), self.lsn[places])


def decoded(table: pa.Table, writes: Sequence[TableWrite]) -> DecodedChanges:
    """The changes of these writes in the order of the log."""
    lsn = _lsns(table, writes)
    if len(lsn) > 1 and not (np.diff(lsn) > 0).all():
        order = np.argsort(lsn, kind="stable")
        table, lsn = table.take(pa.array(order)), lsn[order]
    return DecodedChanges(table, lsn)


def letters(ops: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint8]:
    """The letters of the operations as bytes."""
    return buffers.packed(buffers.whole(ops))[0]


def _lsns(table: pa.Table, writes: Sequence[TableWrite]) -> Numbers:
    """The LSN of each change: that of its write, and 8 for each change before it."""
    position = table["position"].to_numpy()
    if len(writes) == 1:
        return np.asarray(int(writes[0].lsn) + LSN_PER_CHANGE * position, np.int64)
    commits = np.unique(np.array([int(write.commit_lsn) for write in writes], np.int64))
    most = max(write.seq for write in writes) + 1
    keys = np.searchsorted(commits, [int(write.commit_lsn) for write in writes]) * most + np.array([write.seq for write in writes])
    order = np.argsort(keys)
    begins = np.array([int(write.lsn) for write in writes], np.int64)[order]
    wanted = np.searchsorted(commits, table["commit_lsn"].to_numpy()) * most + table["seq"].to_numpy()
    return np.asarray(begins[np.searchsorted(keys[order], wanted)] + LSN_PER_CHANGE * position, np.int64)


class _Entry:
    """What is in the store, or is being read for it."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.value: DecodedChanges | None = None
        self.failed = False


class Shared:
    """The store. Safe for many threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._lock = threading.Lock()
        self._streams: Counter[int] = Counter()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._kept_bytes = kept_bytes
        self.tally = Tally()
        self.read = 0
        """How often something was read."""

    def enter(self, database: int) -> None:
        """A stream of the database begins."""
        with self._lock:
            self._streams[database] += 1

    def leave(self, database: int) -> None:
        """It ends; nothing is kept for one that is alone."""
        with self._lock:
            self._streams[database] -= 1
            if self._streams[database] < 2:
                for key in [key for key, entry in self._entries.items() if key[0] == database and entry.ready.is_set()]:  # type: ignore[index]
                    del self._entries[key]

    def several(self, database: int) -> bool:
        """Whether several streams read this database."""
        return self._streams[database] > 1

    def get(self, database: int, key: Hashable, read: Callable[[], DecodedChanges | None]) -> DecodedChanges | None:
        """What `read` gives, read once by the streams that ask for it together. None is kept like a value."""
        if not self.several(database):
            self.read += 1
            return read()
        place = (database, key)
        with self._lock:
            entry = self._entries.get(place)
            mine = entry is None
            if entry is None:
                entry = self._entries[place] = _Entry()
            self._entries.move_to_end(place)
        if mine:
            return self._fill(place, entry, read)
        while not entry.ready.wait(LOOK_SECONDS):
            job_group.check()  # the stream may end before the job that another one waits for
        return read() if entry.failed else entry.value

    def _fill(self, place: Hashable, entry: _Entry, read: Callable[[], DecodedChanges | None]) -> DecodedChanges | None:
        try:
            self.read += 1
            entry.value = read()
        except BaseException:
            entry.failed = True
            with self._lock:
                self._entries.pop(place, None)
            raise
        finally:
            entry.ready.set()
        with self._lock:
            self._shrink()
        return entry.value

    def _shrink(self) -> None:
        """Forgets what was asked for longest ago."""
        total = 0
        for place, entry in reversed(list(self._entries.items())):
            total += entry.value.table.nbytes if entry.value is not None else 0
            if total > self._kept_bytes and entry.ready.is_set() and place != next(reversed(self._entries)):
                del self._entries[place]
