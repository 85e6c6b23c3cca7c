"""Messages around a transaction's changes (B … C, b … P, S … E … c) and outside of transactions (K, r, M) (manual, 55.9).

    a committed transaction                         B (O) changes C
    larger than logical_decoding_work_mem, if the
    client requested streaming                      S (O) changes E  S changes E  …  c
    PREPARE, if the client requested two_phase      b (O) changes P        or  S changes E … p
    COMMIT PREPARED                                 K; b changes P K if the PREPARE is before two_phase_at; without two_phase:
                                                    B changes C
    ROLLBACK PREPARED                               r

A node streams a transaction after its end, in blocks, so a streamed transaction never aborts. Between S and E each message has the xid of
its (sub)transaction after its tag. Called by `stream`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import encode
from headgate.pgoutput import message as m
from headgate.pgoutput.encode import Frames
from headgate.publisher.announcement import frame
from headgate.settings.encoding import UTF8, Encoding
from headgate.storage.transaction.log import EntryKind, LogEntry, TableWrite, now

_log = logging.getLogger("headgate.publisher")

CHANGE_BYTES = 100
"""The approximate memory of a change in addition to its values: PostgreSQL's ReorderBufferChange and its tuple's header."""


@dataclass
class Counts:
    """The counts that a batch adds to pg_stat_replication_slots. They are complete after its frames were sent."""

    total_txns: int = 0
    total_bytes: int = 0
    stream_txns: int = 0
    stream_count: int = 0
    stream_bytes: int = 0
    spill_txns: int = 0
    spill_count: int = 0
    spill_bytes: int = 0


@dataclass(frozen=True)
class TransactionPiece:
    """Frames of a transaction: `lsn` of the first change, `xid` of their (sub)transaction, `changes` their number."""

    frames: Frames
    lsn: int
    xid: int
    changes: int

    @property
    def size(self) -> int:
        """The bytes of memory, as logical_decoding_work_mem counts them."""
        return len(self.frames.data) + CHANGE_BYTES * self.changes


@dataclass(frozen=True)
class StreamOptions:
    """The client's options that concern whole transactions.

    `work_mem`: logical_decoding_work_mem in bytes. `encoding`: that of names, also of origins and prepared transactions. `only_local`: no
    changes that have an origin (``origin 'none'``). `announced`: the major release that the node announces. From 18 on a missing
    publication publishes nothing instead of raising an error.
    """

    streaming: bool = False
    two_phase: bool = False
    messages: bool = False
    two_phase_at: Lsn = INVALID
    work_mem: int = 64 << 20
    encoding: Encoding = UTF8
    only_local: bool = False
    announced: int = 15


def prepares(entry: LogEntry, options: StreamOptions) -> bool:
    """Return whether the entry's changes are sent as a prepared transaction: at its PREPARE, or late, at its COMMIT PREPARED."""
    if not options.two_phase:
        return False
    late = entry.prepared < options.two_phase_at
    return entry.kind is EntryKind.PREPARE or (entry.kind is EntryKind.COMMIT_PREPARED and late)


def has_changes(entry: LogEntry, options: StreamOptions) -> bool:
    if entry.kind is EntryKind.PREPARE:
        return options.two_phase and entry.commit_lsn >= options.two_phase_at
    if entry.kind is EntryKind.COMMIT_PREPARED:
        return not options.two_phase or entry.prepared < options.two_phase_at
    return entry.kind is EntryKind.COMMIT


def begin(entry: LogEntry, lsn: int, options: StreamOptions) -> bytes:
    """Return Begin or Begin Prepare, and Origin if the transaction has one."""
    if prepares(entry, options):
        message: m.Message = m.BeginPrepare(int(entry.commit_lsn), int(entry.end_lsn), entry.commit_time, entry.xid, entry.gid)
    else:
        message = m.Begin(int(entry.commit_lsn), entry.commit_time, entry.xid)
    return frame(message, lsn, now(), options.encoding) + origin(entry, lsn, options)


def origin(entry: LogEntry, lsn: int, options: StreamOptions) -> bytes:
    return b"" if entry.origin is None else frame(m.Origin(int(entry.origin_lsn), entry.origin), lsn, now(), options.encoding)


def end(entry: LogEntry, options: StreamOptions, *, streamed: bool = False) -> bytes:
    """Return Commit or Prepare, or their counterparts for a streamed transaction."""
    commit, last, moment = int(entry.commit_lsn), int(entry.end_lsn), entry.commit_time
    message: m.Message
    if prepares(entry, options):
        kind = m.StreamPrepare if streamed else m.Prepare
        message = kind(commit, last, moment, entry.xid, entry.gid)
    elif streamed:
        message = m.StreamCommit(entry.xid, commit, last, moment)
    else:
        message = m.Commit(commit, last, moment)
    return frame(message, last, now(), options.encoding)


def finish(entry: LogEntry, prepared: LogEntry | None, options: StreamOptions) -> bytes:
    """Return Commit Prepared or Rollback Prepared for the transaction prepared by the entry `prepared`. Other entries return nothing.

    A transaction without changes returns nothing, too: a PostgreSQL subscriber fails at a K without them.
    """
    if not options.two_phase or entry.kind not in (EntryKind.COMMIT_PREPARED, EntryKind.ROLLBACK_PREPARED):
        return b""
    commit, last = int(entry.commit_lsn), int(entry.end_lsn)
    if entry.kind is EntryKind.COMMIT_PREPARED:
        committed = m.CommitPrepared(commit, last, entry.commit_time, entry.xid, entry.gid)
        return frame(committed, last, now(), options.encoding) if entry.writes else b""
    if prepared is None or not prepared.writes:
        return b""
    message = m.RollbackPrepared(int(prepared.end_lsn), last, prepared.commit_time, entry.commit_time, entry.xid, entry.gid)
    return frame(message, last, now(), options.encoding)


def emitted(write: TableWrite, options: StreamOptions, *, transactional: bool) -> Frames:
    """Return a logical decoding message."""
    assert write.emitted is not None
    message = m.LogicalMessage(transactional, int(write.lsn), write.emitted.prefix, write.emitted.content)
    return frames_of(frame(message, int(write.lsn), now(), options.encoding))


def frames_of(data: bytes) -> Frames:
    """Split concatenated CopyData messages into `Frames`."""
    offsets = [0]
    while offsets[-1] < len(data):
        offset = offsets[-1]
        offsets.append(offset + 1 + int.from_bytes(data[offset + 1 : offset + 5], "big"))
    return Frames(np.frombuffer(data, np.uint8), np.array(offsets, np.int64))


def whole(entry: LogEntry, pieces: Iterable[TransactionPiece], options: StreamOptions, counts: Counts) -> Iterator[bytes | memoryview]:
    """Yield the frames of one transaction whose pieces come lazily, in bounded memory. It is empty without pieces, unless it is prepared.

    With streaming, the pieces are held back until it is known whether they exceed `work_mem`.
    """
    held: list[TransactionPiece] = []
    size, total, last, streamed, begun = 0, 0, 0, False, False
    for piece in pieces:
        total, last = total + piece.size, piece.lsn
        if options.streaming:
            for part in _cut(piece, options.work_mem):
                held.append(part)
                size += part.size
                if size > options.work_mem:
                    yield from _block(entry, held, options, counts, streamed=streamed)
                    held, size, streamed = [], 0, True
            continue
        if not begun:
            begun = True
            yield begin(entry, piece.lsn, options)
        yield piece.frames.bytes()
    if streamed:
        if held:
            yield from _block(entry, held, options, counts, streamed=streamed)
        yield end(entry, options, streamed=True)
    elif held or begun or prepares(entry, options):
        if not begun:
            yield begin(entry, held[0].lsn if held else last or int(entry.commit_lsn), options)
        yield from (piece.frames.bytes() for piece in held)
        yield end(entry, options)
    else:
        log_skipped(entry)
    counts.total_txns += 1
    counts.total_bytes += total
    if not options.streaming and total > options.work_mem:
        counts.spill_txns += 1
        counts.spill_count += -(-total // options.work_mem)
        counts.spill_bytes += total


def log_skipped(entry: LogEntry) -> None:
    """Log at DEBUG1 that nothing of the transaction is published (pgoutput_commit_txn)."""
    _log.debug("skipped replication of an empty transaction with XID: %d", entry.xid)


def _cut(piece: TransactionPiece, limit: int) -> Iterator[TransactionPiece]:
    """Split the piece into parts of about `limit` bytes."""
    if piece.size <= limit or len(piece.frames) < 2:
        yield piece
        return
    ends = piece.frames.offsets[1:] + CHANGE_BYTES * np.arange(1, len(piece.frames) + 1)
    first = 0
    while first < len(piece.frames):
        start = ends[first - 1] if first else 0
        after = max(int(np.searchsorted(ends, start + limit, side="right")), first + 1)
        offsets = piece.frames.offsets[first : after + 1]
        part = Frames(piece.frames.data[offsets[0] : offsets[-1]], offsets - offsets[0])
        yield TransactionPiece(part, piece.lsn, piece.xid, len(part))
        first = after


def _block(
    entry: LogEntry, held: list[TransactionPiece], options: StreamOptions, counts: Counts, *, streamed: bool
) -> Iterator[bytes | memoryview]:
    lsn = held[0].lsn
    yield frame(m.StreamStart(entry.xid, not streamed), lsn, now())
    if not streamed:
        counts.stream_txns += 1
        yield origin(entry, lsn, options)
    for piece in held:
        yield encode.with_xid(piece.frames, piece.xid).bytes()
    yield frame(m.StreamStop(), held[-1].lsn, now())
    counts.stream_count += 1
    counts.stream_bytes += sum(piece.size for piece in held)
