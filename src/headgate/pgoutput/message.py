"""The messages of the streaming replication protocol and of pgoutput, protocols 1 to 3: one frozen dataclass each.

Read and written by `codec`; the fields follow the manual's 55.5 and 55.9. LSNs are ints of 64 bits, times are
microseconds since 2000-01-01 00:00:00 UTC, `xid` of a change is the (sub)transaction in a streamed transaction and None
outside of Stream Start … Stream Stop.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headgate.catalog.relation.replica_identity import ReplicaIdentity


class ValueKind(enum.IntEnum):
    """How a column of a tuple is sent."""

    NULL = ord("n")
    UNCHANGED = ord("u")
    TEXT = ord("t")
    BINARY = ord("b")


class OldKind(enum.IntEnum):
    """The contents of an old tuple: the key columns (``K``) or the whole row (``O``)."""

    KEY = ord("K")
    ROW = ord("O")


@dataclass(frozen=True)
class TupleValue:
    """One column of a tuple; `data` is None for NULL and UNCHANGED."""

    kind: ValueKind
    data: bytes | None = None


NULL = TupleValue(ValueKind.NULL)
UNCHANGED = TupleValue(ValueKind.UNCHANGED)

Tuple = tuple[TupleValue, ...]


# inside CopyData


@dataclass(frozen=True)
class XLogData:
    """`w`: one logical message with its place in the log."""

    start: int
    end: int
    send_time: int
    payload: bytes


@dataclass(frozen=True)
class Keepalive:
    """`k`: the publisher's position; it requests an immediate reply if `reply_requested`."""

    end: int
    send_time: int
    reply_requested: bool


@dataclass(frozen=True)
class StatusUpdate:
    """`r`: what the subscriber has written, flushed and applied."""

    written: int
    flushed: int
    applied: int
    send_time: int
    reply_requested: bool = False


@dataclass(frozen=True)
class HotStandbyFeedback:
    """`h`: ignored by a logical walsender."""

    send_time: int
    xmin: int
    xmin_epoch: int
    catalog_xmin: int
    catalog_xmin_epoch: int


# pgoutput


@dataclass(frozen=True)
class Begin:
    """`B`: `final_lsn` is the LSN of the commit record."""

    final_lsn: int
    commit_time: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """`C`: `commit_lsn` equals Begin's `final_lsn`; the subscriber's position becomes `end_lsn`."""

    commit_lsn: int
    end_lsn: int
    commit_time: int
    flags: int = 0


@dataclass(frozen=True)
class Origin:
    """`O`: the transaction came to the publisher from elsewhere."""

    lsn: int
    name: str


@dataclass(frozen=True)
class RelationColumn:
    """One column of a Relation message."""

    key: bool
    name: str
    type_oid: int
    typmod: int


@dataclass(frozen=True)
class Relation:
    """`R`: a published relation as the following changes have it. `schema` is empty for pg_catalog."""

    relation: int
    schema: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]
    xid: int | None = None


@dataclass(frozen=True)
class Type:
    """`Y`: a type that is not built in."""

    oid: int
    schema: str
    name: str
    xid: int | None = None


@dataclass(frozen=True)
class Insert:
    """`I`."""

    relation: int
    new: Tuple
    xid: int | None = None


@dataclass(frozen=True)
class Update:
    """`U`; `old_kind` and `old` are None if no identity column changed and the identity is not FULL."""

    relation: int
    old_kind: OldKind | None
    old: Tuple | None
    new: Tuple
    xid: int | None = None


@dataclass(frozen=True)
class Delete:
    """`D`."""

    relation: int
    old_kind: OldKind
    old: Tuple
    xid: int | None = None


@dataclass(frozen=True)
class Truncate:
    """`T`: the relations that one TRUNCATE emptied."""

    relations: tuple[int, ...]
    cascade: bool = False
    restart_identity: bool = False
    xid: int | None = None


@dataclass(frozen=True)
class LogicalMessage:
    """`M`: of pg_logical_emit_message; only with the option `messages`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True)
class StreamStart:
    """`S`: changes of a transaction in progress follow."""

    xid: int
    first_segment: bool


@dataclass(frozen=True)
class StreamStop:
    """`E`."""


@dataclass(frozen=True)
class StreamCommit:
    """`c`."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time: int
    flags: int = 0


@dataclass(frozen=True)
class StreamAbort:
    """`A`: the whole transaction if `subxid` equals `xid`."""

    xid: int
    subxid: int


@dataclass(frozen=True)
class BeginPrepare:
    """`b`."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True)
class Prepare:
    """`P`."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str
    flags: int = 0


@dataclass(frozen=True)
class CommitPrepared:
    """`K`."""

    commit_lsn: int
    end_lsn: int
    commit_time: int
    xid: int
    gid: str
    flags: int = 0


@dataclass(frozen=True)
class RollbackPrepared:
    """`r`."""

    prepare_end_lsn: int
    rollback_end_lsn: int
    prepare_time: int
    rollback_time: int
    xid: int
    gid: str
    flags: int = 0


@dataclass(frozen=True)
class StreamPrepare:
    """`p`."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str
    flags: int = 0


Message = (
    Begin
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | CommitPrepared
    | RollbackPrepared
    | StreamPrepare
)
Frame = XLogData | Keepalive
Reply = StatusUpdate | HotStandbyFeedback
