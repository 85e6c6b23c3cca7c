"""Writes one message as bytes: the strict counterpart of `read`.

`write` gives a pgoutput message, `write_frame` the content of a CopyData from a publisher, `write_reply` the one from a
subscriber, `copy_data` the whole wire message around such a content. Many changes at once: `encode`.

A transaction's number is sent as its low 32 bits, PostgreSQL's TransactionId, which begins again after 2^32.
"""

from __future__ import annotations

import struct

from headgate.pgoutput import message as m
from headgate.settings.encoding import UTF8, Encoding


def _string(text: str, encoding: Encoding) -> bytes:
    return encoding.encode(text) + b"\0"


def transaction_id(number: int) -> bytes:
    """Return a transaction's number in the form of messages."""
    return struct.pack(">I", number & 0xFFFFFFFF)


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else transaction_id(xid)


def _tuple(values: m.Tuple) -> bytes:
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value.data is None:
            parts.append(bytes([value.kind]))
        else:
            parts.append(struct.pack(">BI", value.kind, len(value.data)) + value.data)
    return b"".join(parts)


def copy_data(content: bytes) -> bytes:
    """Return a CopyData message of the wire protocol."""
    return struct.pack(">cI", b"d", len(content) + 4) + content


def write_frame(frame: m.Frame) -> bytes:
    """Return the content of a CopyData from a publisher."""
    match frame:
        case m.XLogData(start, end, send_time, payload):
            return struct.pack(">cQQq", b"w", start, end, send_time) + payload
        case m.Keepalive(end, send_time, reply_requested):
            return struct.pack(">cQq?", b"k", end, send_time, reply_requested)


def write_reply(reply: m.Reply) -> bytes:
    """Return the content of a CopyData from a subscriber."""
    match reply:
        case m.StatusUpdate(written, flushed, applied, send_time, reply_requested):
            return struct.pack(">cQQQq?", b"r", written, flushed, applied, send_time, reply_requested)
        case m.HotStandbyFeedback(send_time, xmin, xmin_epoch, catalog_xmin, catalog_xmin_epoch):
            return struct.pack(">cqIIII", b"h", send_time, xmin, xmin_epoch, catalog_xmin, catalog_xmin_epoch)


def write(message: m.Message, encoding: Encoding = UTF8) -> bytes:
    """Return a pgoutput message. Its names are in `encoding`."""
    match message:
        case m.Insert() | m.Update() | m.Delete() | m.Truncate():
            return _change(message)
        case m.Relation() | m.Type() | m.LogicalMessage():
            return _definition(message, encoding)
        case m.Begin() | m.Commit() | m.Origin() | m.StreamStart() | m.StreamStop() | m.StreamCommit() | m.StreamAbort():
            return _transaction(message, encoding)
        case m.BeginPrepare() | m.Prepare() | m.CommitPrepared() | m.RollbackPrepared() | m.StreamPrepare():
            return _prepared(message, encoding)


def _change(message: m.Insert | m.Update | m.Delete | m.Truncate) -> bytes:
    match message:
        case m.Insert(relation, new, xid):
            return b"I" + _xid(xid) + struct.pack(">I", relation) + b"N" + _tuple(new)
        case m.Update(relation, old_kind, old, new, xid):
            before = b"" if old_kind is None or old is None else bytes([old_kind]) + _tuple(old)
            return b"U" + _xid(xid) + struct.pack(">I", relation) + before + b"N" + _tuple(new)
        case m.Delete(relation, old_kind, old, xid):
            return b"D" + _xid(xid) + struct.pack(">IB", relation, old_kind) + _tuple(old)
        case m.Truncate(relations, cascade, restart_identity, xid):
            flags = cascade | restart_identity << 1
            return b"T" + _xid(xid) + struct.pack(f">IB{len(relations)}I", len(relations), flags, *relations)


def _definition(message: m.Relation | m.Type | m.LogicalMessage, encoding: Encoding) -> bytes:
    match message:
        case m.Relation(relation, schema, name, identity, columns, xid):
            head = b"R" + _xid(xid) + struct.pack(">I", relation) + _string(schema, encoding) + _string(name, encoding)
            body = [bytes([c.key]) + _string(c.name, encoding) + struct.pack(">Ii", c.type_oid, c.typmod) for c in columns]
            return head + identity.encode() + struct.pack(">h", len(columns)) + b"".join(body)
        case m.Type(oid, schema, name, xid):
            return b"Y" + _xid(xid) + struct.pack(">I", oid) + _string(schema, encoding) + _string(name, encoding)
        case m.LogicalMessage(transactional, lsn, prefix, content, xid):
            head = b"M" + _xid(xid) + struct.pack(">?Q", transactional, lsn)
            return head + _string(prefix, encoding) + struct.pack(">I", len(content)) + content


def _transaction(
    message: m.Begin | m.Commit | m.Origin | m.StreamStart | m.StreamStop | m.StreamCommit | m.StreamAbort, encoding: Encoding
) -> bytes:
    match message:
        case m.Begin(final_lsn, commit_time, xid):
            return struct.pack(">cQq", b"B", final_lsn, commit_time) + transaction_id(xid)
        case m.Commit(commit_lsn, end_lsn, commit_time, flags):
            return struct.pack(">cBQQq", b"C", flags, commit_lsn, end_lsn, commit_time)
        case m.Origin(lsn, name):
            return struct.pack(">cQ", b"O", lsn) + _string(name, encoding)
        case m.StreamStart(xid, first_segment):
            return b"S" + transaction_id(xid) + struct.pack(">?", first_segment)
        case m.StreamStop():
            return b"E"
        case m.StreamCommit(xid, commit_lsn, end_lsn, commit_time, flags):
            return b"c" + transaction_id(xid) + struct.pack(">BQQq", flags, commit_lsn, end_lsn, commit_time)
        case m.StreamAbort(xid, subxid):
            return b"A" + transaction_id(xid) + transaction_id(subxid)


def _prepared(message: m.BeginPrepare | m.Prepare | m.CommitPrepared | m.RollbackPrepared | m.StreamPrepare, encoding: Encoding) -> bytes:
    match message:
        case m.BeginPrepare(prepare_lsn, end_lsn, time, xid, gid):
            return struct.pack(">cQQq", b"b", prepare_lsn, end_lsn, time) + transaction_id(xid) + _string(gid, encoding)
        case m.Prepare(prepare_lsn, end_lsn, time, xid, gid, flags):
            return struct.pack(">cBQQq", b"P", flags, prepare_lsn, end_lsn, time) + transaction_id(xid) + _string(gid, encoding)
        case m.CommitPrepared(commit_lsn, end_lsn, time, xid, gid, flags):
            return struct.pack(">cBQQq", b"K", flags, commit_lsn, end_lsn, time) + transaction_id(xid) + _string(gid, encoding)
        case m.RollbackPrepared(prepare_end_lsn, rollback_end_lsn, prepare_time, rollback_time, xid, gid, flags):
            head = struct.pack(">cBQQ", b"r", flags, prepare_end_lsn, rollback_end_lsn)
            return head + struct.pack(">qq", prepare_time, rollback_time) + transaction_id(xid) + _string(gid, encoding)
        case m.StreamPrepare(prepare_lsn, end_lsn, time, xid, gid, flags):
            return struct.pack(">cBQQq", b"p", flags, prepare_lsn, end_lsn, time) + transaction_id(xid) + _string(gid, encoding)
