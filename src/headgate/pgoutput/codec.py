"""Read and write one message. A table holds the layout of each message: its fields in the order in which they are sent.

`read` and `write` convert a message of pgoutput, `read_frame` and `write_frame` the content of a CopyData from a publisher, and
`read_reply` and `write_reply` the content of one from a subscriber. Called by walreceiver and walsender. Many changes at once go through
`decode` and `encode`.

Invariant: `read` is strict and the inverse of `write`. It checks every length and allows no bytes behind the message. Malformed bytes raise
08P01 (22021 for text that is not UTF-8), and nothing else.

Source: manual, 55.5 and 55.9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.errors import PostgresError, Severity
from headgate.pgoutput import message as m

T = TypeVar("T")
Encode = Callable[[str], bytes]


def violation(text: str) -> PostgresError:
    """Return an error 08P01, protocol_violation."""
    return PostgresError("08P01", text)


def copy_data(content: bytes) -> bytes:
    """Return a CopyData message of the wire protocol."""
    return struct.pack(">cI", b"d", len(content) + 4) + content


def transaction_id(number: int) -> bytes:
    """Return a transaction's number as messages have it: PostgreSQL's TransactionId, its low 32 bits."""
    return struct.pack(">I", number & 0xFFFFFFFF)


class MessageReader:
    """A position in the bytes of one message. `streamed`: the message is between Stream Start and Stream Stop."""

    def __init__(self, data: bytes, *, streamed: bool = False) -> None:
        self.data, self.streamed = data, streamed
        self.place = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes. Raise 08P01 if there are fewer."""
        end = self.place + count
        if count < 0 or end > len(self.data):
            raise violation("insufficient data left in message")
        start, self.place = self.place, end
        return self.data[start:end]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self, form: str) -> int:
        """Return the next number, in a form of `struct`."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])


@dataclass(frozen=True)
class Form:
    """How the value of a field is sent. A field with several names has a tuple of values."""

    read: Callable[[MessageReader], Any]
    write: Callable[[Any, Encode], bytes]


def _number(form: str) -> Form:
    return Form(lambda r: r.number(form), lambda value, _: struct.pack(form, value))


def _byte(read: Callable[[MessageReader], int]) -> Form:
    """Return the form of a bool or of flags. PostgreSQL's readers differ in the bytes that they take for true."""
    return Form(read, lambda value, _: bytes([value]))


def _read_flag(r: MessageReader) -> bool:
    if (value := r.byte()) > 1:
        raise violation(f"invalid flag {value} in message")
    return value == 1


def _read_no_flags(r: MessageReader) -> int:
    if flags := r.byte():
        raise violation(f"unrecognized flags {flags} in commit message")
    return flags


def _read_string(r: MessageReader) -> str:
    end = r.data.find(b"\0", r.place)
    if end < 0:
        raise violation("invalid string in message")
    content = r.take(end + 1 - r.place)[:-1]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PostgresError("22021", f'invalid byte sequence for encoding "UTF8": 0x{content[error.start]:02x}') from error


def _read_identity(r: MessageReader) -> ReplicaIdentity:
    if (identity := chr(r.byte())) not in frozenset(ReplicaIdentity):
        raise violation(f'invalid replica identity "{identity}" in message')
    return ReplicaIdentity(identity)


def _read_count(r: MessageReader) -> int:
    if (number := r.number(">h")) < 0:
        raise violation(f"invalid number of columns {number} in message")
    return number


def _read_value(r: MessageReader) -> m.TupleValue:
    kind = r.byte()
    if kind == m.ValueKind.NULL:
        return m.NULL
    if kind == m.ValueKind.UNCHANGED:
        return m.UNCHANGED
    if kind in (m.ValueKind.TEXT, m.ValueKind.BINARY):
        return m.TupleValue(m.ValueKind(kind), r.take(r.number(">i")))
    raise violation(f"unrecognized data representation type '{chr(kind)}'")


def _write_value(value: m.TupleValue) -> bytes:
    return bytes([value.kind]) if value.data is None else struct.pack(">BI", value.kind, len(value.data)) + value.data


def _read_tuple(r: MessageReader) -> m.Tuple:
    return tuple(_read_value(r) for _ in range(_read_count(r)))


def _write_tuple(values: m.Tuple) -> bytes:
    return struct.pack(">h", len(values)) + b"".join(map(_write_value, values))


def _read_new(r: MessageReader) -> m.Tuple:
    if (tag := r.byte()) != ord("N"):
        raise violation(f"expected new tuple but got {tag}")
    return _read_tuple(r)


def _read_old(r: MessageReader) -> tuple[m.OldKind, m.Tuple]:
    if (tag := r.byte()) not in frozenset(m.OldKind):
        raise violation(f"expected action 'O' or 'K', got {chr(tag)}")
    return m.OldKind(tag), _read_tuple(r)


def _read_old_or_none(r: MessageReader) -> tuple[m.OldKind | None, m.Tuple | None]:
    tag = r.byte()
    r.place -= 1
    if tag == ord("N"):
        return None, None
    if tag not in frozenset(m.OldKind):
        raise violation(f"expected action 'N', 'O' or 'K', got {chr(tag)}")
    return _read_old(r)


def _write_old(old: tuple[m.OldKind | None, m.Tuple | None], _: Encode) -> bytes:
    kind, values = old
    return b"" if kind is None or values is None else bytes([kind]) + _write_tuple(values)


def _read_truncated(r: MessageReader) -> tuple[tuple[int, ...], bool, bool]:
    count, flags = r.number(">i"), r.byte()
    if count < 0:
        raise violation(f"invalid number of relations {count} in message")
    return struct.unpack(f">{count}I", r.take(4 * count)), bool(flags & 1), bool(flags & 2)


def _write_truncated(truncated: tuple[tuple[int, ...], bool, bool], _: Encode) -> bytes:
    relations, cascade, restart_identity = truncated
    return struct.pack(f">IB{len(relations)}I", len(relations), cascade | restart_identity << 1, *relations)


def _read_columns(r: MessageReader) -> tuple[m.RelationColumn, ...]:
    return tuple(m.RelationColumn(**_read_fields(r, _COLUMN)) for _ in range(_read_count(r)))


def _write_columns(columns: tuple[m.RelationColumn, ...], encode: Encode) -> bytes:
    return struct.pack(">h", len(columns)) + b"".join(_write_fields(column, _COLUMN, encode) for column in columns)


OID = _number(">I")
INT32 = _number(">i")
LSN = _number(">Q")
TIME = _number(">q")
XID = Form(OID.read, lambda number, _: transaction_id(number))
STREAMED_XID = Form(lambda r: OID.read(r) if r.streamed else None, lambda xid, _: b"" if xid is None else transaction_id(xid))
"""The number of a change's (sub)transaction, which only messages of a streamed transaction have."""
STRING = Form(_read_string, lambda text, encode: encode(text) + b"\0")
BYTES = Form(lambda r: r.take(r.number(">i")), lambda content, _: struct.pack(">I", len(content)) + content)
REST = Form(lambda r: r.take(len(r.data) - r.place), lambda content, _: content)
FLAG, NO_FLAGS = _byte(_read_flag), _byte(_read_no_flags)
LOWEST_BIT, ANY_BIT, ONE = _byte(lambda r: bool(r.byte() & 1)), _byte(lambda r: bool(r.byte())), _byte(lambda r: r.byte() == 1)
IDENTITY = Form(_read_identity, lambda identity, _: identity.encode())
COLUMNS = Form(_read_columns, _write_columns)
NEW = Form(_read_new, lambda values, _: b"N" + _write_tuple(values))
OLD, OLD_OR_NONE = Form(_read_old, _write_old), Form(_read_old_or_none, _write_old)
TRUNCATED = Form(_read_truncated, _write_truncated)

Fields = dict[str, Form]
Layouts = dict[type[T], tuple[bytes, Fields]]

_COLUMN: Fields = {"key": LOWEST_BIT, "name": STRING, "type_oid": OID, "typmod": INT32}
_COMMITTED: Fields = {"commit_lsn": LSN, "end_lsn": LSN, "commit_time": TIME}
_PREPARED: Fields = {"prepare_lsn": LSN, "end_lsn": LSN, "prepare_time": TIME, "xid": XID, "gid": STRING}
_ROLLED_BACK: Fields = {"prepare_end_lsn": LSN, "rollback_end_lsn": LSN, "prepare_time": TIME, "rollback_time": TIME}
MESSAGES: Layouts[m.Message] = {
    m.Begin: (b"B", {"final_lsn": LSN, "commit_time": TIME, "xid": XID}),
    m.Commit: (b"C", {"flags": NO_FLAGS, **_COMMITTED}),
    m.Origin: (b"O", {"lsn": LSN, "name": STRING}),
    m.Relation: (
        b"R",
        {"xid": STREAMED_XID, "relation": OID, "schema": STRING, "name": STRING, "replica_identity": IDENTITY, "columns": COLUMNS},
    ),
    m.Type: (b"Y", {"xid": STREAMED_XID, "oid": OID, "schema": STRING, "name": STRING}),
    m.Insert: (b"I", {"xid": STREAMED_XID, "relation": OID, "new": NEW}),
    m.Update: (b"U", {"xid": STREAMED_XID, "relation": OID, "old_kind old": OLD_OR_NONE, "new": NEW}),
    m.Delete: (b"D", {"xid": STREAMED_XID, "relation": OID, "old_kind old": OLD}),
    m.Truncate: (b"T", {"xid": STREAMED_XID, "relations cascade restart_identity": TRUNCATED}),
    m.LogicalMessage: (b"M", {"xid": STREAMED_XID, "transactional": LOWEST_BIT, "lsn": LSN, "prefix": STRING, "content": BYTES}),
    m.StreamStart: (b"S", {"xid": XID, "first_segment": ONE}),
    m.StreamStop: (b"E", {}),
    m.StreamCommit: (b"c", {"xid": XID, "flags": NO_FLAGS, **_COMMITTED}),
    m.StreamAbort: (b"A", {"xid": XID, "subxid": XID}),
    m.BeginPrepare: (b"b", _PREPARED),
    m.Prepare: (b"P", {"flags": NO_FLAGS, **_PREPARED}),
    m.CommitPrepared: (b"K", {"flags": NO_FLAGS, **_COMMITTED, "xid": XID, "gid": STRING}),
    m.RollbackPrepared: (b"r", {"flags": NO_FLAGS, **_ROLLED_BACK, "xid": XID, "gid": STRING}),
    m.StreamPrepare: (b"p", {"flags": NO_FLAGS, **_PREPARED}),
}
FRAMES: Layouts[m.Frame] = {
    m.XLogData: (b"w", {"start": LSN, "end": LSN, "send_time": TIME, "payload": REST}),
    m.Keepalive: (b"k", {"end": LSN, "send_time": TIME, "reply_requested": FLAG}),
}
REPLIES: Layouts[m.Reply] = {
    m.StatusUpdate: (b"r", {"written": LSN, "flushed": LSN, "applied": LSN, "send_time": TIME, "reply_requested": ANY_BIT}),
    m.HotStandbyFeedback: (
        b"h",
        {"send_time": TIME, "xmin": OID, "xmin_epoch": OID, "catalog_xmin": OID, "catalog_xmin_epoch": OID},
    ),
}


def _by_tag(layouts: Layouts[T]) -> dict[int, tuple[Callable[..., T], Fields]]:
    return {tag[0]: (kind, fields) for kind, (tag, fields) in layouts.items()}


_MESSAGES, _FRAMES, _REPLIES = _by_tag(MESSAGES), _by_tag(FRAMES), _by_tag(REPLIES)


def _read_fields(r: MessageReader, fields: Fields) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for names, form in fields.items():
        first, *others = names.split()
        value = form.read(r)
        values.update(zip((first, *others), value, strict=True) if others else [(first, value)])
    return values


def _write_fields(message: object, fields: Fields, encode: Encode) -> bytes:
    parts = []
    for names, form in fields.items():
        value, *others = (getattr(message, name) for name in names.split())
        parts.append(form.write((value, *others) if others else value, encode))
    return b"".join(parts)


def read(data: bytes, *, streamed: bool = False) -> m.Message:
    """Read one pgoutput message. `streamed`: it is between Stream Start and Stream Stop, so changes carry an xid."""
    r = MessageReader(data, streamed=streamed)
    tag = r.byte()
    if tag not in _MESSAGES:
        raise violation(f'invalid logical replication message type "{chr(tag)}"')
    return _whole(r, _MESSAGES[tag])


def read_frame(data: bytes) -> m.Frame:
    """Read the content of a CopyData from a publisher that streams."""
    r = MessageReader(data)
    tag = r.byte()
    if tag not in _FRAMES:
        raise violation(f'invalid standby message type "{chr(tag)}"')
    return _whole(r, _FRAMES[tag])


def read_reply(data: bytes) -> m.Reply:
    """Read the reply that a subscriber sends in one CopyData. As in PostgreSQL, bytes after the reply are ignored."""
    if not data:
        raise violation("no data left in message")
    r = MessageReader(data)
    tag = r.byte()
    if tag not in _REPLIES:
        raise PostgresError("08P01", f'unexpected message type "{chr(tag)}"', severity=Severity.FATAL)
    kind, fields = _REPLIES[tag]
    return kind(**_read_fields(r, fields))


def _whole(r: MessageReader, layout: tuple[Callable[..., T], Fields]) -> T:
    kind, fields = layout
    message = kind(**_read_fields(r, fields))
    if r.place != len(r.data):
        raise violation("invalid message format")
    return message


def _write(message: T, layouts: Layouts[T], encode: Encode) -> bytes:
    tag, fields = layouts[type(message)]
    return tag + _write_fields(message, fields, encode)


def write(message: m.Message, encode: Encode = str.encode) -> bytes:
    """Return a pgoutput message. `encode` converts its names to the client's encoding."""
    return _write(message, MESSAGES, encode)


def write_frame(frame: m.Frame) -> bytes:
    """Return the content of a CopyData from a publisher."""
    return _write(frame, FRAMES, str.encode)


def write_reply(reply: m.Reply) -> bytes:
    """Return the content of a CopyData from a subscriber."""
    return _write(reply, REPLIES, str.encode)
