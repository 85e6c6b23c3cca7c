"""Reassembles streamed and prepared transactions, so that the code after the receiver gets whole transactions in commit order.

It is between the receiver and the spool, for streams with `streaming`, `two_phase` or `origin = none`. It handles messages as follows:

    S xid … E       stored by transaction, in memory and from some size on in files; each change with its subtransaction
    A xid subxid    the subtransaction's changes are discarded, or those of the whole transaction
    c xid           an ordinary transaction: Begin, the stored changes, Commit, as if it had been sent as a whole
    b … P, p xid    a run of its own, marked as prepared: Begin with the PREPARE's LSN, the changes, Commit
    K, r            a run of its own without frames: the outcome of a prepared transaction
    B O … C         (origin = none) dropped, as is a streamed or prepared transaction with an Origin

States between two frames:

    idle        between transactions, or inside one whose frames are passed on as they arrive (`Spool.inside_transaction` tells which)
    chunk       S … E: `_chunk` is the transaction in progress, `_top` its xid
    begun       (origin = none) `_begun` is a Begin that is held back until the next message shows whether an Origin follows
    dropping    `_dropping`: the messages up to C, or up to P of a prepared transaction, are dropped
    prepared    b … P: `_prepared` is its BeginPrepare; it may be dropping too

Traced: S 7, I(7), E; B C of another; S 7, I(8), E; A 7 8; c 7: the other transaction, then B I(7) C.
Frames keep their XLogData header; changes lose the xid that they have between S and E (protocol message formats, manual 55.9).
Nothing is durable: after a restart the publisher sends transactions again that have not ended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import cannot_write
from headgate.failpoint import Step, step
from headgate.pgoutput import message as m
from headgate.pgoutput.codec import read, violation, write
from headgate.pgoutput.outline import XLOG_HEADER
from headgate.walreceiver.segment import Mark
from headgate.walreceiver.spool import Spool

IN_MEMORY = 4 << 20
"""The most bytes of one transaction in progress that are held in memory."""
ALL_IN_MEMORY = 64 << 20
"""The most bytes of all of them in memory. Beyond that the largest ones are spilled to files."""
MOST_IN_PROGRESS = 262_143
"""PostgreSQL's largest max_connections, and so the most transactions that a publisher can have in progress."""
PIECE = 4 << 20
"""The number of bytes passed to the spool at a time."""
_OF_CHANGE = frozenset(b"RYIUDTM")
_DESCRIPTIONS = frozenset(b"RY")
_BEGIN, _COMMIT, _ORIGIN, _ABORT = ord("B"), ord("C"), ord("O"), ord("A")
_ENTRY = struct.Struct("=II")


@dataclass
class _InProgress:
    """A streamed transaction in progress: its frames with the subtransaction of each, the oldest ones in a file."""

    path: Path
    aborted: set[int] = field(default_factory=set)
    foreign: bool = False
    """Whether it has an origin other than the publisher."""
    size: int = 0
    """The bytes held in memory."""
    kept: int = 0
    """All stored bytes."""
    _frames: list[tuple[int, bytes]] = field(default_factory=list)
    _has_file: bool = False

    def add(self, subxid: int, frame: bytes) -> None:
        self._frames.append((subxid, frame))
        self.size += len(frame)
        self.kept += len(frame)
        if self.size > IN_MEMORY:
            self.write_out()

    def write_out(self) -> None:
        """Append the frames in memory to the file. The file is closed again, as there may be many transactions."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with step(Step.SEGMENT), self.path.open("ab" if self._has_file else "wb") as file:
                self._has_file = True
                file.writelines(_ENTRY.pack(subxid, len(frame)) + frame for subxid, frame in self._frames)
        except OSError as error:
            raise cannot_write(error, self.path) from error
        self._frames, self.size = [], 0

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that were not rolled back, in order."""
        if self._has_file:
            with self.path.open("rb") as file:
                while head := file.read(_ENTRY.size):
                    subxid, length = _ENTRY.unpack(head)
                    frame = file.read(length)
                    if subxid not in self.aborted:
                        yield frame
        yield from (frame for subxid, frame in self._frames if subxid not in self.aborted)

    def close(self) -> None:
        if self._has_file:
            self.path.unlink(missing_ok=True)


class Reassembly:
    """The reassembly of one stream. Only the receiver's thread uses it."""

    def __init__(self, spool: Spool, *, only_local: bool = False) -> None:
        """`only_local`: drop transactions that have an origin other than the publisher."""
        self._spool, self._only_local = spool, only_local
        self.passed = 0
        """The end of the last transaction that was dropped."""
        self._streams: dict[int, _InProgress] = {}
        self._in_memory = 0
        """The bytes of transactions in progress in memory, without the one whose chunk is being received."""
        self._chunk: _InProgress | None = None
        self._top = 0
        self._begun: bytes | None = None
        """A Begin that has not been passed on, because an Origin may follow."""
        self._dropping = False
        self._prepared: m.BeginPrepare | None = None
        self._run: list[bytes] = []
        self._described: list[bytes] = []
        """Relations and types described in dropped transactions: the publisher does not describe them again."""

    @property
    def inside(self) -> bool:
        """Whether the state is not idle."""
        return self._chunk is not None or self._begun is not None or self._dropping or self._prepared is not None

    @property
    def kept(self) -> int:
        """The bytes of transactions in progress."""
        return sum(stream.kept for stream in self._streams.values())

    def take(self, frames: Sequence[bytes]) -> int | None:
        """Process XLogData contents. Return the end LSN of the last transaction that was completed (ended or prepared), or None."""
        end: int | None = None
        for frame in frames:
            if len(frame) <= XLOG_HEADER:
                raise violation("insufficient data left in message")
            completed = self._frame(frame)
            end = completed if completed is not None else end
        self._flush()
        return end

    def close(self) -> None:
        """Discard the transactions in progress."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    # ---- one frame --------------------------------------------------------------------------------------

    def _frame(self, frame: bytes) -> int | None:
        tag = frame[XLOG_HEADER]
        if self._chunk is not None:
            self._in_chunk(frame, tag)
            return None
        if tag == _ABORT:  # may occur anywhere, and for a transaction that was never streamed
            return self._control(frame)
        if tag == _BEGIN:
            if self._only_local:
                self._begun = frame
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
                self._described.append(frame)
            return None
        return self._control(frame)

    def _commit(self, frame: bytes) -> int | None:
        end = int.from_bytes(frame[XLOG_HEADER + 10 : XLOG_HEADER + 18])
        if self._dropping:
            self._dropping = False
            self.passed = end
            return None
        self._run.append(frame)
        return end

    def _in_chunk(self, frame: bytes, tag: int) -> None:
        assert self._chunk is not None
        if tag == ord("E"):
            self._end_chunk(self._chunk)
        elif tag in _OF_CHANGE:
            subxid = int.from_bytes(frame[XLOG_HEADER + 1 : XLOG_HEADER + 5])
            self._chunk.add(subxid, frame[: XLOG_HEADER + 1] + frame[XLOG_HEADER + 5 :])
        elif tag == _ORIGIN:
            self._chunk.foreign = True
            self._chunk.add(self._top, frame)
        else:
            raise violation(f'unexpected message type "{chr(tag)}" in a chunk of a streamed transaction')

    def _control(self, frame: bytes) -> int | None:
        message = read(frame[XLOG_HEADER:])
        match message:
            case m.StreamStart():
                self._top = message.xid
                self._chunk = self._of(message.xid)
            case m.StreamAbort():
                if message.subxid == message.xid:
                    self._forget(message.xid)
                elif message.xid in self._streams:
                    self._streams[message.xid].aborted.add(message.subxid)
            case m.StreamCommit():
                return self._stream_commit(frame, message)
            case m.BeginPrepare():
                self._flush()
                self._prepared = message
                self._spool.begin_marked()
                self._begin(_like(frame, m.Begin(message.prepare_lsn, message.prepare_time, message.xid)))
            case m.Prepare():
                return self._prepare(frame, message)
            case m.StreamPrepare():
                return self._stream_prepare(frame, message)
            case m.CommitPrepared():
                self._mark(message)
                return message.end_lsn
            case m.RollbackPrepared():
                self._mark(message)
                return message.rollback_end_lsn
            case _:
                raise violation(f'unexpected message type "{chr(frame[XLOG_HEADER])}"')
        return None

    def _of(self, xid: int) -> _InProgress:
        """Return the transaction in progress, which is created if it is new."""
        stream = self._streams.get(xid)
        if stream is None:
            if len(self._streams) >= MOST_IN_PROGRESS:
                raise violation("too many streamed transactions in progress")
            stream = self._streams[xid] = _InProgress(self._spool.directory / f"{xid}.stream")
        self._in_memory -= stream.size  # added again at the end of the chunk
        return stream

    def _end_chunk(self, chunk: _InProgress) -> None:
        """End a chunk. If all transactions together hold too much in memory, spill the larger half of them to files."""
        self._chunk = None
        self._in_memory += chunk.size
        if self._in_memory > ALL_IN_MEMORY:
            by_size = sorted(self._streams.values(), key=lambda stream: stream.size)
            for stream in by_size[len(by_size) // 2 :]:
                stream.write_out()
            self._in_memory = sum(stream.size for stream in by_size)

    # ---- ends of transactions ---------------------------------------------------------------------------

    def _stream_commit(self, frame: bytes, end: m.StreamCommit) -> int | None:
        stream = self._streams.get(end.xid)
        if stream is not None and stream.foreign and self._only_local:
            self._drop(end.xid)
            self.passed = end.end_lsn
            return None
        self._begin(_like(frame, m.Begin(end.commit_lsn, end.commit_time, end.xid)))
        self._replay(end.xid)
        self._run.append(_like(frame, m.Commit(end.commit_lsn, end.end_lsn, end.commit_time)))
        return end.end_lsn

    def _prepare(self, frame: bytes, end: m.Prepare) -> int:
        self._prepared, self._dropping = None, False
        self._run.append(_like(frame, m.Commit(end.prepare_lsn, end.end_lsn, end.prepare_time)))
        self._flush()
        self._spool.end_marked(end)
        return end.end_lsn

    def _stream_prepare(self, frame: bytes, end: m.StreamPrepare) -> int:
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
        """Pass on the stored changes of a streamed transaction, piece by piece."""
        stream = self._streams.get(xid)
        if stream is None:
            return
        held = 0
        for frame in stream.frames():
            self._run.append(frame)
            held += len(frame)
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
        """Discard a streamed transaction, except for its descriptions of relations and types."""
        frames = self._streams[xid].frames()
        self._described += [frame for frame in frames if frame[XLOG_HEADER] in _DESCRIPTIONS]
        self._forget(xid)

    def _begin(self, frame: bytes) -> None:
        self._run += [frame, *self._described]
        self._described = []

    def _flush(self) -> None:
        if self._run:
            run, self._run = self._run, []
            self._spool.add(run)


def _like(frame: bytes, message: m.Message) -> bytes:
    """Return a message with the XLogData header of another one."""
    return frame[:XLOG_HEADER] + write(message)
