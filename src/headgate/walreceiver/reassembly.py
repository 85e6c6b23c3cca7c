"""Streamed and prepared transactions put together again, so that what is behind the receiver sees whole ones in commit order.

Between the receiver and the spool, for streams with `streaming`, `two_phase` or `origin = none`. What becomes of the messages:

    S xid … E       kept, by transaction, in memory and from some size on in files; each change with its subtransaction
    A xid subxid    the subtransaction's changes are forgotten, or all of the transaction
    c xid           an ordinary transaction: Begin, the kept changes, Commit, as if it had come whole
    b … P, p xid    a run of its own, marked as prepared: Begin with the PREPARE's LSN, the changes, Commit
    K, r            a run of their own without frames: what becomes of a prepared transaction
    B O … C         (origin = none) dropped, and so is a streamed or prepared transaction with an Origin

Traced: S 7, I(7), E; B C of another; S 7, I(8), E; A 7 8; c 7: the other transaction, then B I(7) C.
Frames keep their XLogData header, changes lose the xid that they carry between S and E (protocol message formats, manual 55.9).
Nothing is durable: a transaction that has not ended is sent again after a restart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import cannot_write
from headgate.failpoint import Step, step
from headgate.pgoutput import message as m
from headgate.pgoutput.outline import XLOG_HEADER
from headgate.pgoutput.read import read, violation
from headgate.pgoutput.write import write
from headgate.walreceiver.segment import Mark
from headgate.walreceiver.spool import Spool

IN_MEMORY = 4 << 20
"""Bytes of one transaction in progress that are kept in memory."""
ALL_IN_MEMORY = 64 << 20
"""Bytes of all of them: whatever a publisher begins, the largest ones go to files."""
MOST_IN_PROGRESS = 262_143
"""PostgreSQL's largest max_connections, and so the most transactions that a publisher can have in progress."""
PIECE = 4 << 20
"""Bytes that are given to the spool at a time."""
_OF_CHANGE = frozenset(b"RYIUDTM")
_DESCRIPTIONS = frozenset(b"RY")
_BEGIN, _COMMIT, _ORIGIN, _ABORT = ord("B"), ord("C"), ord("O"), ord("A")
_ENTRY = struct.Struct("=II")


@dataclass
class _InProgress:
    """A streamed transaction that has not ended: its frames with the subtransaction of each, the oldest ones in a file."""

    path: Path
    aborted: set[int] = field(default_factory=set)
    foreign: bool = False
    """Whether it came to the publisher from elsewhere."""
    size: int = 0
    """Bytes that are kept in memory."""
    kept: int = 0
    """All bytes that are kept."""
    _frames: list[tuple[int, bytes]] = field(default_factory=list)
    _written: bool = False

    def add(self, subxid: int, frame: bytes) -> None:
        """Keeps a frame."""
        self._frames.append((subxid, frame))
        self.size += len(frame)
        self.kept += len(frame)
        if self.size > IN_MEMORY:
            self.write_out()

    def write_out(self) -> None:
        """Writes what is in memory behind what was written before; no file stays open, as there may be many transactions."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with step(Step.SEGMENT), self.path.open("ab" if self._written else "wb") as file:
                self._written = True
                file.writelines(_ENTRY.pack(subxid, len(frame)) + frame for subxid, frame in self._frames)
        except OSError as error:
            raise cannot_write(error, self.path) from error
        self._frames, self.size = [], 0

    def frames(self) -> Iterator[bytes]:
        """The frames of what was not rolled back, in order."""
        if self._written:
            with self.path.open("rb") as file:
                while head := file.read(_ENTRY.size):
                    subxid, length = _ENTRY.unpack(head)
                    frame = file.read(length)
                    if subxid not in self.aborted:
                        yield frame
        yield from (frame for subxid, frame in self._frames if subxid not in self.aborted)

    def close(self) -> None:
        """Forgets everything."""
        if self._written:
            self.path.unlink(missing_ok=True)


class Reassembly:
    """See the module; used by the receiver's thread alone."""

    def __init__(self, spool: Spool, *, only_local: bool = False) -> None:
        """`only_local`: transactions that came to the publisher from elsewhere are dropped."""
        self._spool, self._only_local = spool, only_local
        self.passed = 0
        """The end of the last transaction that was dropped."""
        self._streams: dict[int, _InProgress] = {}
        self._in_memory = 0
        """Bytes of the transactions in progress, but for the chunk that is being received."""
        self._chunk: _InProgress | None = None
        self._top = 0
        self._begun: bytes | None = None
        """A Begin that has not been given on, because an Origin may follow."""
        self._dropping = False
        self._prepared: m.BeginPrepare | None = None
        self._run: list[bytes | memoryview] = []
        self._described: list[bytes | memoryview] = []
        """Relations and types that dropped transactions described: the publisher does not say so again."""

    @property
    def inside(self) -> bool:
        """Whether the last frame lies inside a transaction or a chunk of one."""
        return self._chunk is not None or self._begun is not None or self._dropping or self._prepared is not None

    @property
    def kept(self) -> int:
        """Bytes of the transactions in progress."""
        return sum(stream.kept for stream in self._streams.values())

    def take(self, frames: Sequence[memoryview]) -> int | None:
        """Takes XLogData contents; the end of the last transaction that was completed (ended, prepared), None if none was."""
        end: int | None = None
        for frame in frames:
            if len(frame) <= XLOG_HEADER:
                raise violation("insufficient data left in message")
            found = self._frame(frame)
            end = found if found is not None else end
        self._flush()
        return end

    def close(self) -> None:
        """Forgets the transactions in progress."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    # ---- one frame --------------------------------------------------------------------------------------

    def _frame(self, frame: memoryview) -> int | None:
        tag = frame[XLOG_HEADER]
        if self._chunk is not None:
            self._in_chunk(frame, tag)
            return None
        if tag == _ABORT:  # also of a transaction that was never streamed, at any place
            return self._control(frame)
        if tag == _BEGIN:
            if self._only_local:
                self._begun = bytes(frame)
            else:
                self._begin(frame)
            return None
        if self._begun is not None:
            begun, self._begun = self._begun, None
            if tag == _ORIGIN:
                self._dropping = True
            else:
                self._begin(begun)
        if tag == _COMMIT:
            return self._commit(frame)
        if tag in _OF_CHANGE or tag == _ORIGIN:
            if self._prepared is not None and tag == _ORIGIN and self._only_local:
                self._dropping = True
            if not self._dropping or (tag in _DESCRIPTIONS and self._prepared is not None):
                self._run.append(frame)
            elif tag in _DESCRIPTIONS:
                self._described.append(bytes(frame))
            return None
        return self._control(frame)

    def _commit(self, frame: memoryview) -> int | None:
        end = int.from_bytes(frame[XLOG_HEADER + 10 : XLOG_HEADER + 18])
        if self._dropping:
            self._dropping = False
            self.passed = end
            return None
        self._run.append(frame)
        return end

    def _in_chunk(self, frame: memoryview, tag: int) -> None:
        assert self._chunk is not None
        if tag == ord("E"):
            self._end_chunk(self._chunk)
        elif tag in _OF_CHANGE:
            subxid = int.from_bytes(frame[XLOG_HEADER + 1 : XLOG_HEADER + 5])
            self._chunk.add(subxid, bytes(frame[: XLOG_HEADER + 1]) + bytes(frame[XLOG_HEADER + 5 :]))
        elif tag == _ORIGIN:
            self._chunk.foreign = True
            self._chunk.add(self._top, bytes(frame))
        else:
            raise violation(f'unexpected message type "{chr(tag)}" in a chunk of a streamed transaction')

    def _control(self, frame: memoryview) -> int | None:
        found = read(bytes(frame[XLOG_HEADER:]))
        match found:
            case m.StreamStart():
                self._top = found.xid
                self._chunk = self._of(found.xid)
            case m.StreamAbort():
                if found.subxid == found.xid:
                    self._forget(found.xid)
                elif found.xid in self._streams:
                    self._streams[found.xid].aborted.add(found.subxid)
            case m.StreamCommit():
                return self._stream_commit(frame, found)
            case m.BeginPrepare():
                self._flush()
                self._prepared = found
                self._spool.begin_marked()
                self._begin(_like(frame, m.Begin(found.prepare_lsn, found.prepare_time, found.xid)))
            case m.Prepare():
                return self._prepare(frame, found)
            case m.StreamPrepare():
                return self._stream_prepare(frame, found)
            case m.CommitPrepared():
                self._mark(found)
                return found.end_lsn
            case m.RollbackPrepared():
                self._mark(found)
                return found.rollback_end_lsn
            case _:
                raise violation(f'unexpected message type "{chr(frame[XLOG_HEADER])}"')
        return None

    def _of(self, xid: int) -> _InProgress:
        """The transaction in progress."""
        found = self._streams.get(xid)
        if found is None:
            if len(self._streams) >= MOST_IN_PROGRESS:
                raise violation("too many streamed transactions in progress")
            found = self._streams[xid] = _InProgress(self._spool.directory / f"{xid}.stream")
        self._in_memory -= found.size  # counted again at the end of the chunk
        return found

    def _end_chunk(self, chunk: _InProgress) -> None:
        """The transactions that hold the most go to files where all together hold too much."""
        self._chunk = None
        self._in_memory += chunk.size
        if self._in_memory > ALL_IN_MEMORY:
            by_size = sorted(self._streams.values(), key=lambda stream: stream.size)
            for stream in by_size[len(by_size) // 2 :]:
                stream.write_out()
            self._in_memory = sum(stream.size for stream in by_size)

    # ---- ends of transactions ---------------------------------------------------------------------------

    def _stream_commit(self, frame: memoryview, end: m.StreamCommit) -> int | None:
        stream = self._streams.get(end.xid)
        if stream is not None and stream.foreign and self._only_local:
            self._drop(end.xid)
            self.passed = end.end_lsn
            return None
        self._begin(_like(frame, m.Begin(end.commit_lsn, end.commit_time, end.xid)))
        self._replay(end.xid)
        self._run.append(_like(frame, m.Commit(end.commit_lsn, end.end_lsn, end.commit_time)))
        return end.end_lsn

    def _prepare(self, frame: memoryview, end: m.Prepare) -> int:
        self._prepared, self._dropping = None, False
        self._run.append(_like(frame, m.Commit(end.prepare_lsn, end.end_lsn, end.prepare_time)))
        self._flush()
        self._spool.end_marked(end)
        return end.end_lsn

    def _stream_prepare(self, frame: memoryview, end: m.StreamPrepare) -> int:
        self._flush()
        self._spool.begin_marked()
        stream = self._streams.get(end.xid)
        if stream is not None and stream.foreign and self._only_local:
            self._drop(end.xid)
        self._begin(_like(frame, m.Begin(end.prepare_lsn, end.prepare_time, end.xid)))
        self._replay(end.xid)
        return self._prepare(frame, m.Prepare(end.prepare_lsn, end.end_lsn, end.prepare_time, end.xid, end.gid))

    def _mark(self, mark: Mark) -> None:
        self._flush()
        self._spool.begin_marked()
        self._spool.end_marked(mark)

    def _replay(self, xid: int) -> None:
        """Gives on what was kept of a streamed transaction, piece by piece."""
        stream = self._streams.get(xid)
        if stream is None:
            return
        held = 0
        for kept in stream.frames():
            self._run.append(kept)
            held += len(kept)
            if held >= PIECE:
                self._flush()
                held = 0
        self._forget(xid)

    def _forget(self, xid: int) -> None:
        stream = self._streams.pop(xid, None)
        if stream is not None:
            self._in_memory -= stream.size
            stream.close()

    def _drop(self, xid: int) -> None:
        """Forgets a streamed transaction but for what it described."""
        kept = self._streams[xid].frames()
        self._described += [frame for frame in kept if frame[XLOG_HEADER] in _DESCRIPTIONS]
        self._forget(xid)

    def _begin(self, frame: bytes | memoryview) -> None:
        self._run += [frame, *self._described]
        self._described = []

    def _flush(self) -> None:
        if self._run:
            run, self._run = self._run, []
            self._spool.add(run)


def _like(frame: memoryview, message: m.Message) -> bytes:
    """A message with the XLogData header of another."""
    return bytes(frame[:XLOG_HEADER]) + write(message)
