"""Reads one message from bytes: strictly, every length checked, nothing left over.

`read` takes a pgoutput message, `read_frame` what a publisher sends in CopyData, `read_reply` what a subscriber sends.
Malformed bytes give PostgresError 08P01 and nothing else. Large numbers of changes go through `decode` instead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError, Severity
from headgate.pgoutput import message as m


def violation(text: str) -> PostgresError:
    """Return an error 08P01, protocol_violation."""
    return PostgresError("08P01", text)


class MessageReader:
    """A cursor over the bytes of one message. Raises 08P01 ``insufficient data left in message`` at the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self.place + count
        if count < 0 or end > len(self.data):
            raise violation("insufficient data left in message")
        taken = self.data[self.place : end]
        self.place = end
        return taken

    def byte(self) -> int:
        """An unsigned byte."""
        return self.take(1)[0]

    def int16(self) -> int:
        """A signed int16."""
        return int(struct.unpack(">h", self.take(2))[0])

    def int32(self) -> int:
        """A signed int32."""
        return int(struct.unpack(">i", self.take(4))[0])

    def uint32(self) -> int:
        """An unsigned int32: OIDs and transaction ids."""
        return int(struct.unpack(">I", self.take(4))[0])

    def int64(self) -> int:
        """A signed int64: times."""
        return int(struct.unpack(">q", self.take(8))[0])

    def lsn(self) -> int:
        """An unsigned int64."""
        return int(struct.unpack(">Q", self.take(8))[0])

    def string(self) -> str:
        """A string that ends with a zero byte."""
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise violation("invalid string in message")
        taken = self.data[self.place : end]
        self.place = end + 1
        try:
            return taken.decode()
        except UnicodeDecodeError as error:
            raise PostgresError("22021", f'invalid byte sequence for encoding "UTF8": 0x{taken[error.start]:02x}') from error

    def flag(self) -> bool:
        """A byte that is 0 or 1."""
        value = self.byte()
        if value > 1:
            raise violation(f"invalid flag {value} in message")
        return value == 1

    def tuple(self) -> m.Tuple:
        """TupleData."""
        return tuple(self.value() for _ in range(self.count()))

    def count(self) -> int:
        """A number of columns."""
        number = self.int16()
        if number < 0:
            raise violation(f"invalid number of columns {number} in message")
        return number

    def value(self) -> m.TupleValue:
        """One column of TupleData."""
        kind = self.byte()
        if kind == m.ValueKind.NULL:
            return m.NULL
        if kind == m.ValueKind.UNCHANGED:
            return m.UNCHANGED
        if kind in (m.ValueKind.TEXT, m.ValueKind.BINARY):
            return m.TupleValue(m.ValueKind(kind), self.take(self.int32()))
        raise violation(f"unrecognized data representation type '{chr(kind)}'")

    def finish(self) -> None:
        """Raise 08P01 unless all bytes were read."""
        if self.place != len(self.data):
            raise violation("invalid message format")


def read_frame(data: bytes) -> m.Frame:
    """Read the content of a CopyData from a publisher that streams."""
    r = MessageReader(data)
    tag = r.byte()
    if tag == ord("w"):
        return m.XLogData(r.lsn(), r.lsn(), r.int64(), r.take(len(data) - r.place))
    if tag == ord("k"):
        frame = m.Keepalive(r.lsn(), r.int64(), r.flag())
        r.finish()
        return frame
    raise violation(f'invalid standby message type "{chr(tag)}"')


def read_reply(data: bytes) -> m.Reply:
    """Read the reply that a subscriber sends in one CopyData. As in PostgreSQL, bytes after the reply are ignored."""
    if not data:
        raise violation("no data left in message")
    r = MessageReader(data)
    tag = r.byte()
    if tag == ord("r"):
        return m.StatusUpdate(r.lsn(), r.lsn(), r.lsn(), r.int64(), r.byte() != 0)
    if tag == ord("h"):
        return m.HotStandbyFeedback(r.int64(), r.uint32(), r.uint32(), r.uint32(), r.uint32())
    raise PostgresError("08P01", f'unexpected message type "{chr(tag)}"', severity=Severity.FATAL)


def read(data: bytes, *, streamed: bool = False) -> m.Message:
    """Read one pgoutput message. `streamed`: it is between Stream Start and Stream Stop, so changes carry an xid."""
    r = MessageReader(data)
    tag = r.byte()
    reader = _READERS.get(tag)
    if reader is None:
        raise violation(f'invalid logical replication message type "{chr(tag)}"')
    found = reader(r, streamed)
    r.finish()
    return found


def _xid(r: MessageReader, streamed: bool) -> int | None:
    return r.uint32() if streamed else None


def _begin(r: MessageReader, _: bool) -> m.Begin:
    return m.Begin(r.lsn(), r.int64(), r.uint32())


def _flags(r: MessageReader) -> int:
    if flags := r.byte():
        raise violation(f"unrecognized flags {flags} in commit message")
    return flags


def _commit(r: MessageReader, _: bool) -> m.Commit:
    flags = _flags(r)
    return m.Commit(r.lsn(), r.lsn(), r.int64(), flags)


def _origin(r: MessageReader, _: bool) -> m.Origin:
    return m.Origin(r.lsn(), r.string())


def _relation(r: MessageReader, streamed: bool) -> m.Relation:
    xid = _xid(r, streamed)
    relation, schema, name, identity = r.uint32(), r.string(), r.string(), chr(r.byte())
    if identity not in frozenset(ReplicaIdentity):
        raise violation(f'invalid replica identity "{identity}" in message')
    columns = tuple(m.RelationColumn(bool(r.byte() & 1), r.string(), r.uint32(), r.int32()) for _ in range(r.count()))
    return m.Relation(relation, schema, name, ReplicaIdentity(identity), columns, xid)


def _type(r: MessageReader, streamed: bool) -> m.Type:
    xid = _xid(r, streamed)
    return m.Type(r.uint32(), r.string(), r.string(), xid)


def _new(r: MessageReader) -> m.Tuple:
    if (tag := r.byte()) != ord("N"):
        raise violation(f"expected new tuple but got {tag}")
    return r.tuple()


def _insert(r: MessageReader, streamed: bool) -> m.Insert:
    xid = _xid(r, streamed)
    return m.Insert(r.uint32(), _new(r), xid)


def _update(r: MessageReader, streamed: bool) -> m.Update:
    xid, relation, tag = _xid(r, streamed), r.uint32(), r.byte()
    if tag in (m.OldKind.KEY, m.OldKind.ROW):
        old = r.tuple()
        return m.Update(relation, m.OldKind(tag), old, _new(r), xid)
    if tag != ord("N"):
        raise violation(f"expected action 'N', 'O' or 'K', got {chr(tag)}")
    return m.Update(relation, None, None, r.tuple(), xid)


def _delete(r: MessageReader, streamed: bool) -> m.Delete:
    xid, relation, tag = _xid(r, streamed), r.uint32(), r.byte()
    if tag not in (m.OldKind.KEY, m.OldKind.ROW):
        raise violation(f"expected action 'O' or 'K', got {chr(tag)}")
    return m.Delete(relation, m.OldKind(tag), r.tuple(), xid)


def _truncate(r: MessageReader, streamed: bool) -> m.Truncate:
    xid, count, flags = _xid(r, streamed), r.int32(), r.byte()
    if count < 0:
        raise violation(f"invalid number of relations {count} in message")
    relations = struct.unpack(f">{count}I", r.take(4 * count))
    return m.Truncate(relations, bool(flags & 1), bool(flags & 2), xid)


def _message(r: MessageReader, streamed: bool) -> m.LogicalMessage:
    xid = _xid(r, streamed)
    return m.LogicalMessage(bool(r.byte() & 1), r.lsn(), r.string(), r.take(r.int32()), xid)


def _stream_start(r: MessageReader, _: bool) -> m.StreamStart:
    return m.StreamStart(r.uint32(), r.byte() == 1)


def _stream_stop(_: MessageReader, __: bool) -> m.StreamStop:
    return m.StreamStop()


def _stream_commit(r: MessageReader, _: bool) -> m.StreamCommit:
    xid, flags = r.uint32(), _flags(r)
    return m.StreamCommit(xid, r.lsn(), r.lsn(), r.int64(), flags)


def _stream_abort(r: MessageReader, _: bool) -> m.StreamAbort:
    return m.StreamAbort(r.uint32(), r.uint32())


def _begin_prepare(r: MessageReader, _: bool) -> m.BeginPrepare:
    return m.BeginPrepare(r.lsn(), r.lsn(), r.int64(), r.uint32(), r.string())


def _prepare(r: MessageReader, _: bool) -> m.Prepare:
    flags = _flags(r)
    return m.Prepare(r.lsn(), r.lsn(), r.int64(), r.uint32(), r.string(), flags)


def _commit_prepared(r: MessageReader, _: bool) -> m.CommitPrepared:
    flags = _flags(r)
    return m.CommitPrepared(r.lsn(), r.lsn(), r.int64(), r.uint32(), r.string(), flags)


def _rollback_prepared(r: MessageReader, _: bool) -> m.RollbackPrepared:
    flags = _flags(r)
    return m.RollbackPrepared(r.lsn(), r.lsn(), r.int64(), r.int64(), r.uint32(), r.string(), flags)


def _stream_prepare(r: MessageReader, _: bool) -> m.StreamPrepare:
    flags = _flags(r)
    return m.StreamPrepare(r.lsn(), r.lsn(), r.int64(), r.uint32(), r.string(), flags)


_READERS: Final[dict[int, Callable[[MessageReader, bool], m.Message]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
    ord("S"): _stream_start,
    ord("E"): _stream_stop,
    ord("c"): _stream_commit,
    ord("A"): _stream_abort,
    ord("b"): _begin_prepare,
    ord("P"): _prepare,
    ord("K"): _commit_prepared,
    ord("r"): _rollback_prepared,
    ord("p"): _stream_prepare,
}
