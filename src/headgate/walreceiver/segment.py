"""Segments: the received stream, divided into runs of whole transactions, in memory while small and on disk when large.

The receiver thread adds frames to a `Spool` (`walreceiver.spool`). The applier takes a `Segment` of all whole transactions that have
arrived (up to a limit), applies it and releases it. Transactions of any size are supported: their frames are in files, which are read one
`SegmentPart` at a time. Messages of two-phase commit (prepared, committed, rolled back) are the `mark` of a separate segment.

    DIR/pg_replication/<subscription>/<n>.segment   XLogData contents, concatenated
    DIR/pg_replication/<subscription>/<n>.index     their lengths, uint32 in native byte order

Nothing here is durable and nothing is synced to disk: the contents of segments have not been confirmed to the publisher, which sends
them again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headgate.lsn import Lsn
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import Bytes, Numbers, Transactions, starts_of

Lengths = npt.NDArray[np.uint32]
Mark = m.Prepare | m.CommitPrepared | m.RollbackPrepared


@dataclass(frozen=True)
class SegmentPiece:
    """Consecutive frames, in memory (`data` and `held_lengths`) or in a file from byte `offset` and frame `index_offset` on.

    A piece in a file does not hold the lengths of its frames: a transaction may have billions of them.
    """

    first_seq: int
    frames: int
    size: int
    data: Bytes | None = None
    held_lengths: Lengths | None = None
    path: str | None = None
    offset: int = 0
    index_offset: int = 0

    @classmethod
    def of(cls, first_seq: int, data: Bytes, lengths: Lengths) -> SegmentPiece:
        """Return a piece in memory."""
        return cls(first_seq, len(lengths), len(data), data, lengths)

    @property
    def lengths(self) -> Lengths:
        """The lengths of the frames, read from the file if they are not in memory."""
        return self._first_lengths(self.frames)

    def _first_lengths(self, count: int) -> Lengths:
        if self.held_lengths is not None:
            return self.held_lengths[:count]
        return np.fromfile(f"{self.path}.index", np.uint32, count, offset=4 * self.index_offset)

    def cut(self, frame: int) -> tuple[SegmentPiece, SegmentPiece]:
        """Return the first `frame` frames, and the others."""
        size = int(self._first_lengths(frame).sum(dtype=np.int64))
        rest = replace(
            self, first_seq=self.first_seq + frame, frames=self.frames - frame, size=self.size - size, offset=self.offset + size,
            index_offset=self.index_offset + frame,
        )  # fmt: skip
        head = replace(self, frames=frame, size=size)
        if self.data is None or self.held_lengths is None:
            return head, rest
        lengths = self.held_lengths
        return (
            replace(head, data=self.data[:size], held_lengths=lengths[:frame]),
            replace(rest, data=self.data[size:], held_lengths=lengths[frame:]),
        )

    def read(self) -> Bytes:
        if self.data is not None:
            return self.data
        return np.fromfile(f"{self.path}.segment", np.uint8, self.size, offset=self.offset)


@dataclass(frozen=True)
class SegmentPart:
    """Consecutive frames of a segment that are read and decoded together. It may begin and end inside a transaction."""

    pieces: tuple[SegmentPiece, ...]

    @property
    def first_seq(self) -> int:
        """The number of the first frame."""
        return self.pieces[0].first_seq

    @property
    def end_seq(self) -> int:
        """The number after that of the last frame."""
        return self.pieces[-1].first_seq + self.pieces[-1].frames

    def read(self) -> tuple[Bytes, Numbers, Numbers]:
        """Return (data, starts, lengths) for `decode`."""
        if len(self.pieces) == 1:
            data, lengths = self.pieces[0].read(), self.pieces[0].lengths
        else:
            lengths = np.concatenate([np.zeros(0, np.uint32), *(piece.lengths for piece in self.pieces)])
            data = np.concatenate([np.zeros(0, np.uint8), *(piece.read() for piece in self.pieces)])
        return data, starts_of(lengths), lengths.astype(np.int64)

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    def parts(self, size: int) -> Iterator[SegmentPart]:
        """Yield parts of about `size` bytes, each with at least one frame."""
        return parts(self.pieces, size)


@dataclass(frozen=True)
class Segment:
    """A run of whole transactions. `others` are (seq, lsn, message) of all messages except B, C, I, U and D."""

    pieces: tuple[SegmentPiece, ...]
    transactions: Transactions
    others: tuple[tuple[int, int, m.Message], ...]
    size: int
    touched: frozenset[int]
    """OIDs of the changed relations. For a part of a segment they may include some that only the other part changes."""
    only_inserts: bool = False
    """Whether all changes are INSERTs. False for a part of a segment with other changes."""
    mark: Mark | None = None
    """Prepare: the one transaction is prepared, not committed. Otherwise the outcome of a prepared one; there is no transaction."""

    @property
    def end(self) -> Lsn:
        """The publisher's LSN that is reached with the segment."""
        match self.mark:
            case m.Prepare() | m.CommitPrepared():
                return Lsn(self.mark.end_lsn)
            case m.RollbackPrepared():
                return Lsn(self.mark.rollback_end_lsn)
            case None:
                return Lsn(self.transactions.end_lsn[-1])

    @property
    def first_seq(self) -> int:
        """The number of the first frame."""
        return self.pieces[0].first_seq if self.pieces else 0

    @property
    def frames(self) -> int:
        return sum(piece.frames for piece in self.pieces)

    @property
    def changes(self) -> int:
        """The number of changes: of frames that are neither Begin nor Commit nor among `others`."""
        return self.frames - 2 * len(self.transactions) - len(self.others)

    def read(self) -> tuple[Bytes, Numbers, Numbers]:
        """Return (data, starts, lengths) for `decode`, all in memory, for small segments."""
        return SegmentPart(self.pieces).read()

    def split(self, count: int) -> tuple[Segment, Segment]:
        """Return a segment of the first `count` transactions, and one of the others."""
        border = int(self.transactions.commit[count - 1]) + 1
        left, right = cut(self.pieces, border)
        return (
            segment_of(
                left,
                self.transactions.slice(0, count),
                [message for message in self.others if message[0] < border],
                self.touched,
                only_inserts=self.only_inserts,
            ),
            segment_of(
                right,
                self.transactions.slice(count, len(self.transactions)),
                [message for message in self.others if message[0] >= border],
                self.touched,
                only_inserts=self.only_inserts,
            ),
        )

    def parts(self, size: int) -> Iterator[SegmentPart]:
        """Yield parts of about `size` bytes, each with at least one frame."""
        return parts(self.pieces, size)


def parts(pieces: Sequence[SegmentPiece], size: int) -> Iterator[SegmentPart]:
    """Yield the pieces in parts of about `size` bytes, each with at least one frame."""
    group: list[SegmentPiece] = []
    room = size
    for whole in pieces:
        remaining = whole
        ends = np.cumsum(whole.lengths, dtype=np.int64)
        while remaining.frames:
            first = len(ends) - remaining.frames
            count = int(np.searchsorted(ends, whole.size - remaining.size + room, side="right")) - first
            if not count and not group:
                count = 1
            head, remaining = remaining.cut(count)
            if count:
                group.append(head)
                room -= head.size
            if remaining.frames:
                yield SegmentPart(tuple(group))
                group, room = [], size
    if group:
        yield SegmentPart(tuple(group))


def segment_of(
    pieces: Sequence[SegmentPiece], transactions: Transactions, others: Sequence[tuple[int, int, m.Message]], touched: frozenset[int],
    *, only_inserts: bool,
) -> Segment:  # fmt: skip
    return Segment(tuple(pieces), transactions, tuple(others), sum(piece.size for piece in pieces), touched, only_inserts)


def cut(pieces: Sequence[SegmentPiece], seq: int) -> tuple[list[SegmentPiece], list[SegmentPiece]]:
    """Return the pieces before frame `seq`, and the others."""
    left: list[SegmentPiece] = []
    right: list[SegmentPiece] = []
    for piece in pieces:
        end = piece.first_seq + piece.frames
        if end <= seq:
            left.append(piece)
        elif piece.first_seq >= seq:
            right.append(piece)
        else:
            head, tail = piece.cut(seq - piece.first_seq)
            left.append(head)
            right.append(tail)
    return left, right


def joined(pieces: Sequence[SegmentPiece]) -> list[SegmentPiece]:
    """Join pieces that are adjacent in one file, or in memory."""
    result: list[SegmentPiece] = []
    for group in _neighbours(pieces):
        first = group[0]
        if len(group) == 1:
            result.append(first)
            continue
        whole = replace(first, frames=sum(piece.frames for piece in group), size=sum(piece.size for piece in group))
        if first.data is not None:
            data, lengths = np.concatenate([piece.read() for piece in group]), np.concatenate([piece.lengths for piece in group])
            whole = replace(whole, data=data, held_lengths=lengths)
        result.append(whole)
    return result


def _neighbours(pieces: Sequence[SegmentPiece]) -> Iterator[list[SegmentPiece]]:
    group: list[SegmentPiece] = []
    for piece in pieces:
        if group and (group[-1].path != piece.path or (piece.path is not None and group[-1].offset + group[-1].size != piece.offset)):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group
