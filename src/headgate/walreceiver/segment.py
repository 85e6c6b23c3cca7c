"""Segments: what a stream delivered, cut into runs of whole transactions, in memory while small and on disk when large.

The receiver thread adds frames to a `Spool`; the applier takes a `Segment` of all whole transactions that have arrived (up to a
limit), applies it and releases it. A transaction of any size goes through: its frames lie in files, a Spark task reads a `Range`.

    DIR/pg_replication/<subscription>/<n>.segment   XLogData contents laid end to end
    DIR/pg_replication/<subscription>/<n>.index     their lengths, uint32 of the machine

Nothing here is durable and nothing is synced to disk: what is in segments has not been confirmed to the publisher, which sends
it again after a crash. A spool clears its directory when it opens it.
"""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from headgate.errors import PostgresError
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import Bytes, Numbers, Outline, Transactions, frames_of, pair, scan, starts_of

Lengths = npt.NDArray[np.uint32]

IN_MEMORY = 8 << 20
"""Bytes of frames that a spool keeps in memory before it writes them to a file."""
FILE_SIZE = 256 << 20
"""A new file begins at this size."""


@dataclass(frozen=True)
class Range:
    """Consecutive frames of one file: what one Spark task reads. `first_seq` is the number of its first frame in the stream."""

    path: str
    offset: int
    index_offset: int
    frames: int
    size: int
    first_seq: int

    def read(self) -> tuple[Bytes, Numbers, Numbers]:
        """(data, starts, lengths) for `decode`."""
        lengths = np.fromfile(f"{self.path}.index", np.uint32, self.frames, offset=self.index_offset * 4)
        data = np.fromfile(f"{self.path}.segment", np.uint8, self.size, offset=self.offset)
        return data, starts_of(lengths), lengths.astype(np.int64)


@dataclass(frozen=True)
class Piece:
    """Consecutive frames, in memory (`data`) or in a file from byte `offset` and frame `index_offset` on."""

    first_seq: int
    lengths: Lengths
    size: int
    data: Bytes | None = None
    path: str | None = None
    offset: int = 0
    index_offset: int = 0

    def cut(self, frame: int) -> tuple[Piece, Piece]:
        """The first `frame` frames, and the others."""
        size = int(self.lengths[:frame].sum(dtype=np.int64))
        head = Piece(
            self.first_seq, self.lengths[:frame], size, None if self.data is None else self.data[:size], self.path, self.offset,
            self.index_offset,
        )  # fmt: skip
        tail = Piece(
            self.first_seq + frame, self.lengths[frame:], self.size - size, None if self.data is None else self.data[size:], self.path,
            self.offset + size, self.index_offset + frame,
        )  # fmt: skip
        return head, tail

    def read(self) -> Bytes:
        """The bytes."""
        if self.data is not None:
            return self.data
        return np.fromfile(f"{self.path}.segment", np.uint8, self.size, offset=self.offset)


@dataclass(frozen=True)
class Segment:
    """A run of whole transactions. `others` are (seq, lsn, message) of all messages but B, C, I, U and D."""

    pieces: tuple[Piece, ...]
    transactions: Transactions
    others: tuple[tuple[int, int, m.Message], ...]
    size: int
    touched: frozenset[int]
    """OIDs of the relations that are changed (of a part of a segment: some that the other part changes may be among them)."""

    @property
    def first_seq(self) -> int:
        """Number of the first frame."""
        return self.pieces[0].first_seq if self.pieces else 0

    @property
    def frames(self) -> int:
        """Number of frames."""
        return sum(len(piece.lengths) for piece in self.pieces)

    @property
    def on_disk(self) -> bool:
        """Whether all of it lies in files, so that Spark tasks can read it."""
        return all(piece.path is not None for piece in self.pieces)

    def read(self) -> tuple[Bytes, Numbers, Numbers]:
        """(data, starts, lengths) for `decode`, all in memory: for small segments."""
        lengths = np.concatenate([np.zeros(0, np.uint32), *(piece.lengths for piece in self.pieces)])
        data = np.concatenate([np.zeros(0, np.uint8), *(piece.read() for piece in self.pieces)])
        return data, starts_of(lengths), lengths.astype(np.int64)

    def split(self, count: int) -> tuple[Segment, Segment]:
        """The first `count` transactions, and the others."""
        border = int(self.transactions.commit[count - 1]) + 1
        left, right = _cut(self.pieces, border)
        return (
            _segment(left, self.transactions.slice(0, count), [o for o in self.others if o[0] < border], self.touched),
            _segment(
                right, self.transactions.slice(count, len(self.transactions)), [o for o in self.others if o[0] >= border], self.touched
            ),
        )

    def ranges(self, size: int) -> list[Range]:
        """Ranges of about `size` bytes that make up the segment (which must be on disk)."""
        found: list[Range] = []
        for whole in self.pieces:
            piece = whole
            while len(piece.lengths):
                places = np.cumsum(piece.lengths, dtype=np.int64)
                count = max(1, int(np.searchsorted(places, size, side="right")))
                head, piece = piece.cut(count)
                assert head.path is not None
                found.append(Range(head.path, head.offset, head.index_offset, count, head.size, head.first_seq))
        return found


def _segment(
    pieces: Sequence[Piece], transactions: Transactions, others: Sequence[tuple[int, int, m.Message]], touched: frozenset[int]
) -> Segment:
    return Segment(tuple(pieces), transactions, tuple(others), sum(piece.size for piece in pieces), touched)


def _cut(pieces: Sequence[Piece], seq: int) -> tuple[list[Piece], list[Piece]]:
    left: list[Piece] = []
    right: list[Piece] = []
    for piece in pieces:
        end = piece.first_seq + len(piece.lengths)
        if end <= seq:
            left.append(piece)
        elif piece.first_seq >= seq:
            right.append(piece)
        else:
            head, tail = piece.cut(seq - piece.first_seq)
            left.append(head)
            right.append(tail)
    return left, right


@dataclass
class _File:
    """The file that is being written."""

    path: str
    data: IO[bytes]
    index: IO[bytes]
    size: int = 0
    frames: int = 0

    def append(self, piece: Piece) -> Piece:
        """Writes a piece that is in memory; the piece as it lies in the file."""
        assert piece.data is not None
        try:
            self.data.write(piece.data.data)
            self.index.write(piece.lengths.data)
            self.data.flush()
            self.index.flush()
        except OSError as error:
            sqlstate = "53100" if error.errno == errno.ENOSPC else "58030"
            raise PostgresError(sqlstate, f'could not write to file "{self.path}.segment": {error.strerror}') from error
        written = Piece(piece.first_seq, piece.lengths, piece.size, None, self.path, self.size, self.frames)
        self.size += piece.size
        self.frames += len(piece.lengths)
        return written

    def close(self) -> None:
        self.data.close()
        self.index.close()


@dataclass
class _Arrived:
    """What has arrived and has not been taken."""

    pieces: list[Piece] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    committed: int = 0
    """seq behind the last Commit."""
    in_memory: int = 0


class Spool:
    """The hand-over between the receiver and the applier of one stream; one thread on each side."""

    def __init__(self, directory: Path, *, in_memory: int = IN_MEMORY, file_size: int = FILE_SIZE) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        self.directory = directory
        self.in_memory, self.file_size = in_memory, file_size
        self._changed = threading.Condition()
        self._arrived = _Arrived()
        self._file: _File | None = None
        self._files = 0
        self._seq = 0
        self._taken: deque[tuple[int, set[str]]] = deque()
        self._error: BaseException | None = None
        self._closed = False
        self.outstanding = 0
        """Bytes that have been added and not released."""

    # the receiver's side

    def add(self, frames: Sequence[bytes | memoryview]) -> bool:
        """Adds XLogData contents in the order of the stream; whether a transaction was completed. 08P01 for malformed ones."""
        data, starts, lengths = frames_of(frames)
        outline = scan(data, starts, lengths, self._seq)
        piece = Piece(self._seq, lengths.astype(np.uint32), len(data), data)
        with self._changed:
            self._seq += len(frames)
            self.outstanding += piece.size
            arrived = self._arrived
            arrived.pieces.append(piece)
            arrived.outlines.append(outline)
            arrived.in_memory += piece.size
            if arrived.in_memory > self.in_memory:
                self._write_out()
            if len(outline.commits):
                arrived.committed = int(outline.commits[-1]) + 1
                self._changed.notify_all()
                return True
            return False

    @property
    def has_whole_transactions(self) -> bool:
        """Whether something is waiting to be taken."""
        return self._arrived.committed > 0

    @property
    def inside_transaction(self) -> bool:
        """Whether the last frame belongs to a transaction whose Commit is still to come."""
        with self._changed:
            return bool(self._arrived.pieces) and self._arrived.committed < self._seq

    def fail(self, error: BaseException) -> None:
        """The stream has ended: the applier gets what is complete, then this error."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    # the applier's side

    def take(self, timeout: float, limit: int, *, wanted: threading.Event | None = None) -> Segment | None:
        """All whole transactions that have arrived, the first ones of about `limit` bytes; None after `timeout` seconds or when woken.

        Raises the error of `fail` once everything complete has been taken.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._arrived.committed:
                if self._error is not None:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0 or self._closed or (wanted is not None and wanted.is_set()):
                    return None
                self._changed.wait(left)
            return self._take(limit)

    def wake(self) -> None:
        """Ends a wait of `take`."""
        with self._changed:
            self._changed.notify_all()

    def _take(self, limit: int) -> Segment:
        arrived = self._arrived
        if arrived.committed and sum(piece.size for piece in arrived.pieces) > self.in_memory:
            self._write_out()
        pieces, rest = _cut(arrived.pieces, arrived.committed)
        transactions = pair(arrived.outlines)
        done = len(transactions) - int(len(transactions) > 0 and transactions.commit[-1] < 0)
        others = [other for outline in arrived.outlines for other in outline.others]
        touched = frozenset(np.unique(np.concatenate([outline.relations for outline in arrived.outlines])).tolist())
        whole = _segment(_joined(pieces), transactions.slice(0, done), [o for o in others if o[0] < arrived.committed], touched)
        left_over = [] if not rest else [_rest_of(arrived.outlines, arrived.committed)]
        self._arrived = _Arrived(rest, left_over, 0, sum(p.size for p in rest if p.data is not None))
        if whole.size > limit and len(whole.transactions) > 1:
            whole = self._give_back(whole, limit)
        files = {piece.path for piece in whole.pieces if piece.path is not None}
        self._taken.append((whole.size, files))
        return whole

    def _give_back(self, whole: Segment, limit: int) -> Segment:
        """Cuts a segment that is too large; what is behind the cut becomes the beginning of what has arrived."""
        lengths = np.concatenate([piece.lengths for piece in whole.pieces])
        behind = np.cumsum(lengths, dtype=np.int64)[whole.transactions.commit - whole.first_seq]
        count = max(1, int(np.searchsorted(behind, limit, side="right")))
        if count >= len(whole.transactions):
            return whole
        head, tail = whole.split(count)
        self._arrived.pieces[:0] = tail.pieces
        self._arrived.outlines[:0] = [_outline_of(tail)]
        self._arrived.committed = int(tail.transactions.commit[-1]) + 1
        self._arrived.in_memory += sum(p.size for p in tail.pieces if p.data is not None)
        return head

    def release(self, segment: Segment) -> None:
        """The oldest segment that was taken has been applied: its disk space is free."""
        with self._changed:
            size, files = self._taken.popleft()
            self.outstanding -= size
            needed = {piece.path for piece in self._arrived.pieces} | {path for _, held in self._taken for path in held}
            if self._file is not None:
                if self._file.size >= self.file_size:
                    self._file.close()
                    self._file = None
                else:
                    needed.add(self._file.path)
            if self._file is not None and self._file.path in files and self._file.path not in {p.path for p in self._arrived.pieces}:
                self._file.close()
                needed.discard(self._file.path)
                self._file = None
            for path in files - needed:
                _remove(path)
            self._changed.notify_all()

    def close(self) -> None:
        """Removes everything."""
        with self._changed:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
            self._changed.notify_all()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write_out(self) -> None:
        """Writes what is in memory to files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        arrived = self._arrived
        for place, piece in enumerate(arrived.pieces):
            if piece.data is not None:
                arrived.pieces[place] = self._writable().append(piece)
        arrived.pieces[:] = _joined(arrived.pieces)
        arrived.in_memory = 0

    def _writable(self) -> _File:
        if self._file is not None and self._file.size >= self.file_size:
            self._file.close()
            self._file = None
        if self._file is None:
            path = str(self.directory / str(self._files))
            self._files += 1
            self._file = _File(path, Path(f"{path}.segment").open("wb"), Path(f"{path}.index").open("wb"))  # noqa: SIM115 (closed by _File)
        return self._file


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces that are neighbours in one file, or in memory, become one."""
    found: list[Piece] = []
    for group in _neighbours(pieces):
        first = group[0]
        if len(group) == 1:
            found.append(first)
            continue
        lengths = np.concatenate([piece.lengths for piece in group])
        data = None if first.data is None else np.concatenate([piece.read() for piece in group])
        size = sum(piece.size for piece in group)
        found.append(Piece(first.first_seq, lengths, size, data, first.path, first.offset, first.index_offset))
    return found


def _neighbours(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    for piece in pieces:
        if group and (group[-1].path != piece.path or (piece.path is not None and group[-1].offset + group[-1].size != piece.offset)):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _rest_of(outlines: Sequence[Outline], seq: int) -> Outline:
    """What the outlines say of the frames from `seq` on: at most one Begin, no Commit."""
    begins = np.concatenate([outline.begins for outline in outlines])
    kept = begins >= seq

    def of(name: str) -> Numbers:
        chosen: Numbers = np.concatenate([getattr(outline, name) for outline in outlines])[kept]
        return chosen

    none = np.zeros(0, np.int64)
    others = tuple(other for outline in outlines for other in outline.others if other[0] >= seq)
    touched = np.unique(outlines[-1].relations) if len(outlines) == 1 else np.unique(np.concatenate([o.relations for o in outlines]))
    return Outline(begins[kept], of("begin_lsn"), of("begin_time"), of("begin_xid"), none, none, none, none, others, none, touched)


def _outline_of(segment: Segment) -> Outline:
    """The outline of a segment of whole transactions."""
    t = segment.transactions
    return Outline(
        t.begin, t.commit_lsn, t.commit_time, t.xid, t.commit, t.commit_lsn, t.end_lsn, t.commit_time, segment.others,
        np.zeros(0, np.int64), np.array(sorted(segment.touched), np.int64),
    )  # fmt: skip


def _remove(path: str) -> None:
    for suffix in (".segment", ".index"):
        Path(path + suffix).unlink(missing_ok=True)
