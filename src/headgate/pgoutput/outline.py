"""Outlines a run of XLogData frames without its changes: transactions as arrays, and the few other messages one by one.

The receiver calls it for each piece that arrives, so that the transactions of a segment on disk are known without reading it; `decode`
calls it too. Begin and Commit are read with NumPy, because they are half of a stream of small transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.pgoutput import message as m
from headgate.pgoutput.codec import read, violation
from headgate.types import buffers

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

XLOG_HEADER = 25
"""The number of bytes of XLogData before the message: w, start, end, send time."""

_BEGIN_SIZE, _COMMIT_SIZE = 21, 26
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Transactions:
    """The transactions of a run in commit order, as arrays of the same length.

    `begin` and `commit` are frame numbers (seq) of Begin and Commit; `commit` is -1 and `end_lsn` 0 while the Commit has not been
    seen. `commit_time` is in microseconds since 2000-01-01.
    """

    begin: Numbers = field(default_factory=lambda: _NONE)
    commit: Numbers = field(default_factory=lambda: _NONE)
    xid: Numbers = field(default_factory=lambda: _NONE)
    commit_lsn: Numbers = field(default_factory=lambda: _NONE)
    end_lsn: Numbers = field(default_factory=lambda: _NONE)
    commit_time: Numbers = field(default_factory=lambda: _NONE)

    def __len__(self) -> int:
        return len(self.begin)

    def slice(self, first: int, last: int) -> Transactions:
        """Return transactions `first` (included) to `last` (excluded)."""
        return Transactions(*(getattr(self, name)[first:last] for name in self.__dataclass_fields__))

    def then(self, later: Transactions) -> Transactions:
        return Transactions(*(np.concatenate([getattr(self, name), getattr(later, name)]) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Outline:
    """Begin and Commit messages as arrays, other messages as (seq, lsn, message), and which frames are changes."""

    begins: Numbers
    begin_lsn: Numbers
    begin_time: Numbers
    begin_xid: Numbers
    commits: Numbers
    commit_lsn: Numbers
    commit_end: Numbers
    commit_time: Numbers
    others: tuple[tuple[int, int, m.Message], ...]
    changes: Numbers
    """The indexes (not seqs) of the frames with I, U and D."""
    relations: Numbers
    """The OID of the relation of each of these."""
    only_inserts: bool
    """Whether all of these are I."""

    def transactions(self) -> Transactions:
        """Pair Begins with Commits. Raise 08P01 if they do not alternate.

        A Commit before the first Begin ends an earlier run's transaction.
        """
        return pair([self])


def starts_of(lengths: npt.NDArray[np.uint32]) -> Numbers:
    """Return the starts of frames that are laid end to end."""
    return buffers.offsets_of(lengths.astype(np.int64))[:-1]


def frames_of(contents: Sequence[bytes]) -> tuple[Bytes, Numbers, Numbers]:
    """Return (data, starts, lengths) of frames that are separate objects."""
    lengths = np.fromiter(map(len, contents), np.int64, len(contents))
    data = np.frombuffer(b"".join(contents), np.uint8)
    return data, buffers.offsets_of(lengths)[:-1], lengths


def scan(data: Bytes, starts: Numbers, lengths: Numbers, first_seq: int = 0) -> Outline:
    """Read everything but the changes of the XLogData frames ``data[starts[i]:starts[i] + lengths[i]]``.

    Raises 08P01 for frames that are truncated, are not XLogData, or contain messages of streamed or prepared transactions.
    """
    if len(starts):
        if (lengths <= XLOG_HEADER).any() or starts.min() < 0 or int((starts + lengths).max()) > len(data):
            raise violation("insufficient data left in message")
        if (data[starts] != ord("w")).any():
            raise violation("invalid standby message type in a run of XLogData")
    bodies = starts + XLOG_HEADER
    tags = data[bodies]
    is_change = (tags == ord("I")) | (tags == ord("U")) | (tags == ord("D"))
    begins, commits = np.flatnonzero(tags == ord("B")), np.flatnonzero(tags == ord("C"))
    _check_size(lengths[begins], _BEGIN_SIZE)
    _check_size(lengths[commits], _COMMIT_SIZE)
    if data[bodies[commits] + 1].any():
        raise violation("unrecognized flags in commit message")
    rest = np.flatnonzero(~(is_change | (tags == ord("B")) | (tags == ord("C"))))
    others = []
    for frame in rest.tolist():
        message = read(data[bodies[frame] : starts[frame] + lengths[frame]].tobytes())
        if not isinstance(message, m.Origin | m.Relation | m.Type | m.Truncate | m.LogicalMessage):
            raise violation(f"unexpected message {type(message).__name__} in a run of whole transactions")
        others.append((first_seq + frame, int.from_bytes(data[starts[frame] + 1 : starts[frame] + 9].tobytes()), message))
    changes = np.flatnonzero(is_change)
    if (lengths[changes] < XLOG_HEADER + 6).any():
        raise violation("insufficient data left in message")
    at_begin, at_commit = bodies[begins], bodies[commits]
    return Outline(
        begins + first_seq,
        int64(data, at_begin + 1),
        int64(data, at_begin + 9),
        uint32(data, at_begin + 17),
        commits + first_seq,
        int64(data, at_commit + 2),
        int64(data, at_commit + 10),
        int64(data, at_commit + 18),
        tuple(others),
        changes,
        uint32(data, bodies[changes] + 1),
        bool((tags[changes] == ord("I")).all()),
    )


def pair(outlines: Sequence[Outline]) -> Transactions:
    """Return the transactions of consecutive outlines."""

    def joined(name: str) -> Numbers:
        return np.concatenate([_NONE, *(getattr(outline, name) for outline in outlines)])

    begins, commits, commit_lsn = joined("begins"), joined("commits"), joined("commit_lsn")
    early = int(len(commits) > 0 and (len(begins) == 0 or commits[0] < begins[0]))
    commits, commit_lsn = commits[early:], commit_lsn[early:]
    ends, begin_lsn = joined("commit_end")[early:], joined("begin_lsn")
    open_last = len(begins) - len(commits)
    if open_last not in (0, 1):
        raise violation("Begin and Commit messages do not alternate")
    closed = len(commits)
    if (commits < begins[:closed]).any() or (begins[1:] < commits[: max(len(begins) - 1, 0)]).any():
        raise violation("Begin and Commit messages do not alternate")
    if (wrong := np.flatnonzero(commit_lsn != begin_lsn[:closed])).size:
        got, expected = int(commit_lsn[wrong[0]]), int(begin_lsn[wrong[0]])
        raise violation(f"incorrect commit LSN {lsn_text(got)} in commit message (expected {lsn_text(expected)})")
    times = np.concatenate([joined("commit_time")[early:], joined("begin_time")[closed:]])
    unseen = np.full(open_last, -1, np.int64)
    return Transactions(
        begins, np.concatenate([commits, unseen]), joined("begin_xid"), begin_lsn, np.concatenate([ends, unseen + 1]), times
    )  # fmt: skip


def _check_size(lengths: Numbers, size: int) -> None:
    if (lengths < XLOG_HEADER + size).any():
        raise violation("insufficient data left in message")
    if (lengths > XLOG_HEADER + size).any():
        raise violation("invalid message format")


def uint32(data: Bytes, places: Numbers) -> Numbers:
    """Return the unsigned int32 at each place. The caller has checked that they are inside."""
    return buffers.rows_at(data, places, 4).view(">u4").reshape(-1).astype(np.int64)


def int64(data: Bytes, places: Numbers) -> Numbers:
    """Return the int64 at each place. The caller has checked that they are inside."""
    return buffers.rows_at(data, places, 8).view(">i8").reshape(-1).astype(np.int64)


def lsn_text(value: int) -> str:
    """Return an LSN in PostgreSQL's form ``%X/%X``."""
    return f"{(value >> 32) & 0xFFFFFFFF:X}/{value & 0xFFFFFFFF:X}"
