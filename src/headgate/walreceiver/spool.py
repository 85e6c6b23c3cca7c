"""The spool between the receiver of a stream, which adds frames, and its applier, which takes segments.

Received frames are in a queue of runs. The last run is open and grows. A run that ends with a prepared transaction, or that only contains
the outcome of one, is closed with its mark and taken alone, at its position in the stream. A spool clears its directory when it opens.
Called by `receiver` (add, begin_marked, end_marked, fail) and by the subscriber's workers (take, release_oldest, close).
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np

from headgate.errors import PostgresError, cannot_write
from headgate.failpoint import Step, step
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput.outline import Numbers, Outline, frames_of, pair, scan
from headgate.walreceiver.segment import Mark, Segment, SegmentPiece, cut, joined, segment_of

IN_MEMORY = 8 << 20
"""The most bytes of frames that a spool holds in memory before it writes them to a file."""
FILE_SIZE = 256 << 20
"""The size in bytes at which a new file begins."""
GATHER_SECONDS = 2.0
"""The longest time for which `take` waits for enough frames of a backlog."""
PAUSE_SECONDS = 0.05
"""If no transaction ends for this time, the stream has no backlog."""
BACKLOG_PAUSE_SECONDS = 0.5
"""The same for a stream that has not reached the position at which the publisher was when it began."""


@dataclass
class _File:
    """The file that is being written."""

    path: str
    data: IO[bytes]
    index: IO[bytes]
    size: int = 0
    frames: int = 0
    failure: PostgresError | None = None
    """The first failed write. After it the contents of the file are unknown."""

    def append(self, piece: SegmentPiece) -> SegmentPiece:
        """Write a piece that is in memory. Return it with its location in the file."""
        assert piece.data is not None
        if self.failure is not None:
            raise self.failure
        try:
            with step(Step.SEGMENT):
                self.data.write(piece.data.data)
                self.index.write(piece.lengths.data)
                self.data.flush()
                self.index.flush()
        except OSError as error:
            self.failure = cannot_write(error, f"{self.path}.segment")
            raise self.failure from error
        written_piece = SegmentPiece(piece.first_seq, piece.frames, piece.size, None, None, self.path, self.size, self.frames)
        self.size += piece.size
        self.frames += piece.frames
        return written_piece

    def close(self) -> None:
        for file in (self.data, self.index):
            with contextlib.suppress(OSError):  # closing retries a write that failed on a full disk
                file.close()


@dataclass
class _Run:
    """A run of received frames that has not been taken."""

    pieces: list[SegmentPiece] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    committed: int = 0
    """The sequence number after the last Commit."""
    in_memory: int = 0
    mark: Mark | None = None


class Spool:
    """The spool of one stream, used by one thread on each side."""

    def __init__(self, directory: Path, *, in_memory: int = IN_MEMORY, file_size: int = FILE_SIZE) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        self.directory = directory
        self.in_memory, self.file_size = in_memory, file_size
        self._changed = threading.Condition()
        self._closed_runs: deque[_Run] = deque()
        self._open_run = _Run()
        self._marking = False
        self._file: _File | None = None
        self._files = 0
        self._seq = 0
        self._taken: deque[tuple[int, set[str]]] = deque()
        self._error: BaseException | None = None
        self._closed = False
        self.outstanding = 0
        """The bytes that have been added and not released."""
        self.backlog_end = INVALID
        """The publisher's position when the stream began. The transactions up to it are a backlog."""
        self._first = self._reached = INVALID
        """The LSN of the first frame that was added, and the end of the last Commit or the position of a later keepalive."""
        self._changes = 0
        """The number of changes that have been added."""

    # the receiver's side

    def add(self, frames: Sequence[bytes]) -> bool:
        """Add XLogData contents in stream order. Return whether a transaction was completed. Raise 08P01 for malformed ones."""
        data, starts, lengths = frames_of(frames)
        outline = scan(data, starts, lengths, self._seq)
        changes = len(outline.changes)
        outline = replace(outline, changes=np.zeros(0, np.int64), relations=np.unique(outline.relations))  # not 16 bytes for each change
        piece = SegmentPiece.of(self._seq, data, lengths.astype(np.uint32))
        with self._changed:
            self._seq += len(frames)
            self.outstanding += piece.size
            run = self._open_run
            run.pieces.append(piece)
            run.outlines.append(outline)
            run.in_memory += piece.size
            if run.in_memory > self.in_memory:
                self._write_out(run)
            self._changes += changes
            self._first = self._first or Lsn(int.from_bytes(frames[0][1:9]))
            if len(outline.commits):
                self._reached = Lsn(outline.commit_end[-1])
            if len(outline.commits) and not self._marking:
                run.committed = int(outline.commits[-1]) + 1
                self._changed.notify_all()
                return True
            return False

    def begin_marked(self) -> None:
        """Begin a run: the data added up to `end_marked` are one transaction that gets a mark. Must be called between transactions."""
        with self._changed:
            if self._open_run.pieces:
                self._closed_runs.append(self._open_run)
                self._open_run = _Run()
            self._marking = True

    def end_marked(self, mark: Mark) -> None:
        """Close the run begun by `begin_marked`, which is empty or one whole transaction."""
        with self._changed:
            run = self._open_run
            run.committed, run.mark = self._seq, mark
            self._closed_runs.append(run)
            self._open_run = _Run()
            self._marking = False
            self._changed.notify_all()

    @property
    def has_whole_transactions(self) -> bool:
        """Whether whole transactions are waiting to be taken."""
        return bool(self._closed_runs) or self._open_run.committed > 0

    @property
    def inside_transaction(self) -> bool:
        """Whether the last frame belongs to a transaction whose Commit has not arrived."""
        with self._changed:
            return self._marking or (bool(self._open_run.pieces) and self._open_run.committed < self._seq)

    def reach(self, position: Lsn) -> None:
        """Record the position of a keepalive: no transaction before it follows."""
        with self._changed:
            self._reached = max(self._reached, position)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the stream with an error. The applier gets all complete transactions first."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    # the applier's side

    def take(
        self, timeout: float, limit: int, *, rows: int = 1 << 40, delay: float = 0, enough: int = 0, news: threading.Event | None = None
    ) -> Segment | None:
        """Return all whole transactions that have arrived, up to about `limit` bytes, or None after `timeout` seconds or when woken.

        It has at most `rows` changes, unless a single transaction has more. `delay`: seconds to wait for more after something has arrived.
        `enough`: return a backlog in segments of at least so many changes if possible (`_pause`). For this, wait at most GATHER_SECONDS.
        A transaction with a mark is returned alone. After all complete transactions, raise the error of `fail`.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self.has_whole_transactions:
                if self._error is not None:
                    raise self._error
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._closed or (news is not None and news.is_set()):
                    return None
                self._changed.wait(remaining)
            gathered = time.monotonic() + delay
            while delay and self.outstanding < limit and self._error is None and (remaining := gathered - time.monotonic()) > 0:
                if news is not None and news.is_set():
                    break
                self._changed.wait(remaining)
            gathered = time.monotonic() + GATHER_SECONDS
            while (pause := self._pause(enough)) and self.outstanding < limit and self._error is None and time.monotonic() < gathered:
                if not self._changed.wait(pause) or (news is not None and news.is_set()):
                    break
            return self._take(limit, rows)

    def _pause(self, enough: int) -> float:
        """Return for how many seconds without an arrival a segment should wait for more changes, or 0 if it should not wait.

        It should wait if it would have fewer than `enough` changes and the backlog has more, or an eighth of so many has arrived. It also
        should if the rest of the backlog would have fewer.
        """
        if self._closed_runs or not enough:
            return 0
        run = self._open_run
        others = sum(2 * len(outline.commits) + len(outline.others) for outline in run.outlines)
        changes = run.committed - run.pieces[0].first_seq - others  # of whole transactions
        rest = self._backlog_changes()
        if (changes < enough <= changes + rest) or 0 < rest < enough <= changes:
            return BACKLOG_PAUSE_SECONDS
        return PAUSE_SECONDS if enough // 8 <= changes < enough else 0

    def _backlog_changes(self) -> float:
        """Estimate how many changes of the backlog have not arrived, from the bytes of the publisher's log for each change so far."""
        missing = max(int(self.backlog_end) - int(self._reached), 0)
        return missing * self._changes / max(int(self._reached) - int(self._first), 1)

    def wake(self) -> None:
        """End a wait of `take`."""
        with self._changed:
            self._changed.notify_all()

    def _take(self, limit: int, rows: int) -> Segment:
        closed = bool(self._closed_runs)
        run = self._closed_runs.popleft() if closed else self._open_run
        if sum(piece.size for piece in run.pieces) > self.in_memory:
            self._write_out(run)
        pieces, rest = cut(run.pieces, run.committed)
        transactions = pair(run.outlines)
        complete = len(transactions) - int(len(transactions) > 0 and transactions.commit[-1] < 0)
        others = [message for outline in run.outlines for message in outline.others]
        relations = [outline.relations for outline in run.outlines]
        touched = frozenset(np.unique(np.concatenate(relations)).tolist()) if relations else frozenset()
        left_over = [] if not rest else [_rest_of(run.outlines, run.committed)]
        segment = segment_of(
            joined(pieces), transactions.slice(0, complete), [message for message in others if message[0] < run.committed], touched,
            only_inserts=all(outline.only_inserts for outline in run.outlines),
        )  # fmt: skip
        whole = replace(segment, mark=run.mark)
        if not closed:
            self._open_run = _Run(rest, left_over, 0, sum(piece.size for piece in rest if piece.data is not None))
        if (whole.size > limit or whole.frames > rows) and len(whole.transactions) > 1:
            whole = self._shorten(whole, limit, rows, closed=closed)
        files = {piece.path for piece in whole.pieces if piece.path is not None}
        self._taken.append((whole.size, files))
        return whole

    def _shorten(self, whole: Segment, limit: int, rows: int, *, closed: bool) -> Segment:
        """Cut a segment that is too large. The part after the cut becomes the beginning of the received data."""
        lengths = np.concatenate([piece.lengths for piece in whole.pieces])
        sizes = np.cumsum(lengths, dtype=np.int64)[whole.transactions.commit - whole.first_seq]
        changes = np.cumsum(whole.transactions.commit - whole.transactions.begin - 1)
        count = max(1, min(int(np.searchsorted(totals, maximum, side="right")) for totals, maximum in ((sizes, limit), (changes, rows))))
        if count >= len(whole.transactions):
            return whole
        head, tail = whole.split(count)
        run = _Run() if closed else self._open_run
        run.pieces[:0] = tail.pieces
        run.outlines[:0] = [_outline_of(tail)]
        run.committed = int(tail.transactions.commit[-1]) + 1
        run.in_memory += sum(piece.size for piece in tail.pieces if piece.data is not None)
        if closed:
            self._closed_runs.appendleft(run)
        return head

    def release_oldest(self) -> None:
        """Release the disk space of the oldest taken segment after it has been applied."""
        with self._changed:
            size, files = self._taken.popleft()
            self.outstanding -= size
            waiting = {piece.path for run in (*self._closed_runs, self._open_run) for piece in run.pieces}
            needed = waiting | {path for _, held in self._taken for path in held}
            if self._file is not None:
                if self._file.size >= self.file_size:
                    self._file.close()
                    self._file = None
                else:
                    needed.add(self._file.path)
            if self._file is not None and self._file.path in files and self._file.path not in waiting:
                self._file.close()
                needed.discard(self._file.path)
                self._file = None
            for path in files - needed:
                _remove(path)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
            self._changed.notify_all()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write_out(self, run: _Run) -> None:
        """Write the pieces in memory to files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for index, piece in enumerate(run.pieces):
            if piece.data is not None:
                run.pieces[index] = self._writable().append(piece)
        run.pieces[:] = joined(run.pieces)
        run.in_memory = 0

    def _writable(self) -> _File:
        if self._file is not None and self._file.size >= self.file_size:
            self._file.close()
            self._file = None
        if self._file is None:
            path = str(self.directory / str(self._files))
            self._files += 1
            self._file = _File(path, Path(f"{path}.segment").open("wb"), Path(f"{path}.index").open("wb"))  # noqa: SIM115 (closed by _File)
        return self._file


def _rest_of(outlines: Sequence[Outline], seq: int) -> Outline:
    """Return the outline of the frames from `seq` on: at most one Begin, no Commit."""
    begins = np.concatenate([outline.begins for outline in outlines])
    is_kept = begins >= seq

    def of(name: str) -> Numbers:
        selected: Numbers = np.concatenate([getattr(outline, name) for outline in outlines])[is_kept]
        return selected

    none = np.zeros(0, np.int64)
    others = tuple(message for outline in outlines for message in outline.others if message[0] >= seq)
    touched = np.unique(outlines[-1].relations) if len(outlines) == 1 else np.unique(np.concatenate([o.relations for o in outlines]))
    return Outline(
        begins[is_kept], of("begin_lsn"), of("begin_time"), of("begin_xid"), none, none, none, none, others, none, touched,
        all(outline.only_inserts for outline in outlines),
    )  # fmt: skip


def _outline_of(segment: Segment) -> Outline:
    t = segment.transactions
    return Outline(
        t.begin, t.commit_lsn, t.commit_time, t.xid, t.commit, t.commit_lsn, t.end_lsn, t.commit_time, segment.others,
        np.zeros(0, np.int64), np.array(sorted(segment.touched), np.int64), segment.only_inserts,
    )  # fmt: skip


def _remove(path: str) -> None:
    for suffix in (".segment", ".index"):
        Path(path + suffix).unlink(missing_ok=True)
