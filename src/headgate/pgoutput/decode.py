"""Decodes many pgoutput messages at once: from bytes to one set of Arrow columns per relation, without a loop over changes.

The apply worker calls it with a run of XLogData frames and the known descriptions of relations. The few messages that are not
changes (B, C, O, R, Y, T, M) are read one by one by `read`. I, U and D are decoded column by column with NumPy. The run may begin and
end inside a transaction. Frames of streamed transactions do not arrive here: the receiver rewrites them as ordinary ones
(`headgate.walreceiver.reassembly`).

Truncated or malformed bytes raise PostgresError 08P01, bytes that are not UTF-8 raise 22021. Nothing is read outside of a frame.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.pgoutput import message as m
from headgate.pgoutput.codec import violation
from headgate.pgoutput.outline import XLOG_HEADER, Outline, Transactions, int64, scan, uint32
from headgate.types import buffers
from headgate.types.buffers import Bytes, Mask, Numbers


@dataclass(frozen=True)
class DecodedColumn:
    """One column of the changes of a relation: string or binary values. `unchanged` is true where an unchanged TOAST value was not sent."""

    values: pa.Array
    unchanged: Mask | None = None


@dataclass(frozen=True)
class Changes:
    """The I, U and D of one relation (as one Relation message described it), in log order.

    `txn` is the index into `DecodedFrames.transactions`, -1 before the first Begin of the run. `seq` counts frames over the whole
    run (from `first_seq`). `new` and `old` have one Column per published column: NULL throughout where a row has no such
    tuple; `old_kind` is 0, ``K`` or ``O``. `old` is None if no row has an old tuple.
    """

    relation: m.Relation
    txn: Numbers
    lsn: Numbers
    seq: Numbers
    op: Bytes
    old_kind: Bytes
    new: tuple[DecodedColumn, ...]
    old: tuple[DecodedColumn, ...] | None

    def __len__(self) -> int:
        return len(self.op)

    def where(self, mask: Mask) -> Changes:
        """Return the changes for which `mask` is true."""
        if mask.all():
            return self
        selection = pa.array(mask)

        def of(columns: tuple[DecodedColumn, ...]) -> tuple[DecodedColumn, ...]:
            return tuple(DecodedColumn(c.values.filter(selection), None if c.unchanged is None else c.unchanged[mask]) for c in columns)

        return Changes(
            self.relation,
            self.txn[mask],
            self.lsn[mask],
            self.seq[mask],
            self.op[mask],
            self.old_kind[mask],
            of(self.new),
            None if self.old is None else of(self.old),
        )


@dataclass(frozen=True)
class Truncation:
    """A TRUNCATE with its place in the log, and the relations as described there."""

    txn: int
    lsn: int
    seq: int
    message: m.Truncate
    relations: tuple[m.Relation, ...]


@dataclass
class DecodedFrames:
    """The contents of a run of frames."""

    transactions: Transactions
    relations: dict[int, m.Relation]
    """The latest description of every relation, including those known before."""
    origins: dict[int, m.Origin] = field(default_factory=dict)
    """The Origin messages by index of the transaction."""
    changes: list[Changes] = field(default_factory=list)
    truncations: list[Truncation] = field(default_factory=list)


def decode(
    data: Bytes,
    starts: Numbers,
    lengths: Numbers,
    *,
    relations: Mapping[int, m.Relation] | None = None,
    first_seq: int = 0,
    only: Container[m.Relation] | None = None,
) -> DecodedFrames:
    """Decode the XLogData frames ``data[starts[i]:starts[i] + lengths[i]]`` (each begins with ``w``).

    Args:
        data: the bytes.
        starts: of each frame.
        lengths: of each frame.
        relations: Relation messages seen earlier on the connection, by OID.
        first_seq: the seq of the first frame.
        only: decode only the changes of these relations, as they were described. None: all.
    """
    run = _Run.of(data, starts, lengths, relations or {}, first_seq)
    for relation, frames in run.changed():
        if only is None or relation in only:
            run.result.changes.append(run.relation_changes(relation, frames))
    return run.result


def survey(
    data: Bytes, starts: Numbers, lengths: Numbers, *, relations: Mapping[int, m.Relation], first_seq: int
) -> list[tuple[m.Relation, int]]:
    """Return the number of changes of each relation that `decode` would return. The arguments are the same."""
    return [(relation, len(frames)) for relation, frames in _Run.of(data, starts, lengths, relations, first_seq).changed()]


class _Run:
    """The state of one call of `decode` or `survey`."""

    def __init__(self, data: Bytes, starts: Numbers, ends: Numbers, outline: Outline, result: DecodedFrames, first_seq: int) -> None:
        self.data, self.starts, self.ends, self.outline = data, starts, ends, outline
        self.begins, self.result, self.first_seq = outline.begins, result, first_seq
        self.versions: dict[int, list[tuple[int, m.Relation]]] = {oid: [(first_seq, r)] for oid, r in result.relations.items()}

    @classmethod
    def of(cls, data: Bytes, starts: Numbers, lengths: Numbers, relations: Mapping[int, m.Relation], first_seq: int) -> _Run:
        """Return the run after reading everything but its changes."""
        outline = scan(data, starts, lengths, first_seq)
        run = cls(data, starts, starts + lengths, outline, DecodedFrames(outline.transactions(), dict(relations)), first_seq)
        for seq, lsn, message in outline.others:
            run.single(seq, lsn, message)
        return run

    def transaction(self, seq: int) -> int:
        """Return the index of the transaction that contains a frame, -1 before the first Begin."""
        return int(np.searchsorted(self.begins, seq, side="right")) - 1

    def single(self, seq: int, lsn: int, message: m.Message) -> None:
        """Record a message that is not a change."""
        match message:
            case m.Origin():
                self.result.origins[self.transaction(seq)] = message
            case m.Relation():
                self.result.relations[message.relation] = message
                known = self.versions.setdefault(message.relation, [])
                if not known or known[-1][1] != message:
                    known.append((seq, message))
            case m.Truncate():
                truncated = tuple(self.relation(oid) for oid in message.relations)
                self.result.truncations.append(Truncation(self.transaction(seq), lsn, seq, message, truncated))
            case _:
                pass

    def relation(self, oid: int) -> m.Relation:
        try:
            return self.result.relations[oid]
        except KeyError:
            raise violation(f"no relation map entry for remote relation ID {oid}") from None

    def changed(self) -> Iterator[tuple[m.Relation, Numbers]]:
        """Yield the frames with I, U and D of each relation as described at that point. Raise 08P01 if it was not described."""
        frames, oids = self.outline.changes, self.outline.relations
        for oid in np.unique(oids).tolist():
            of_relation = frames[oids == oid]
            versions = self.versions.get(oid)
            if versions is None or versions[0][0] > of_relation[0] + self.first_seq:
                raise violation(f"no relation map entry for remote relation ID {oid}")
            firsts = np.array([first for first, _ in versions])
            which = np.searchsorted(firsts, of_relation + self.first_seq, side="right") - 1
            for version, (_, relation) in enumerate(versions):
                chosen = of_relation[which == version]
                if len(chosen):
                    yield relation, chosen

    def relation_changes(self, relation: m.Relation, frames: Numbers) -> Changes:
        places, ends = self.starts[frames] + XLOG_HEADER, self.ends[frames]
        op = self.data[places]
        first_tag = self.data[places + 5]
        _check_tags(op, first_tag)
        cursor = places + 6
        with_old = first_tag != ord("N")
        with_new = op != ord("D")
        count = len(relation.columns)
        old: tuple[DecodedColumn, ...] | None = None
        if with_old.any():
            some = np.flatnonzero(with_old)
            old, after = _tuples(self.data, cursor[some], ends[some], count, some, len(frames))
            cursor[some] = after
            both = np.flatnonzero(with_old & with_new)
            if len(both):
                if (cursor[both] >= ends[both]).any():
                    raise violation("insufficient data left in message")
                if (self.data[cursor[both]] != ord("N")).any():
                    raise violation("expected new tuple in an update")
                cursor[both] += 1
        some = np.flatnonzero(with_new)
        new, after = _tuples(self.data, cursor[some], ends[some], count, some, len(frames))
        cursor[some] = after
        if (cursor != ends).any():
            raise violation("invalid message format")
        return Changes(
            relation,
            np.searchsorted(self.begins, frames + self.first_seq, side="right") - 1,
            int64(self.data, self.starts[frames] + 1),
            self.first_seq + frames,
            op,
            np.where(with_old, first_tag, 0).astype(np.uint8),
            new,
            old,
        )


def _check_tags(op: Bytes, tag: Bytes) -> None:
    is_old = (tag == ord("K")) | (tag == ord("O"))
    is_new = tag == ord("N")
    right = np.where(op == ord("I"), is_new, np.where(op == ord("D"), is_old, is_new | is_old))
    if not right.all():
        wrong = int(np.flatnonzero(~right)[0])
        raise violation(f"unexpected tuple tag '{chr(tag[wrong])}' in a message '{chr(op[wrong])}'")


def _tuples(
    data: Bytes, cursor: Numbers, ends: Numbers, count: int, rows: Numbers, total: int
) -> tuple[tuple[DecodedColumn, ...], Numbers]:
    """Decode one tuple at each `cursor`. The values of the other rows of `total` are NULL. Return columns and new cursors."""
    if (cursor + 2 > ends).any():
        raise violation("insufficient data left in message")
    if len(cursor):
        counts = (data[cursor].astype(np.int64) << 8) | data[cursor + 1]
        if (counts != count).any():
            wrong = int(counts[counts != count][0])
            raise violation(f"logical replication message has {wrong} columns, its relation has {count}")
    cursor = cursor + 2
    columns = []
    for _ in range(count):
        if (cursor >= ends).any():
            raise violation("insufficient data left in message")
        kind = data[cursor]
        column, cursor = _column(data, cursor, ends, kind, rows, total)
        columns.append(column)
    return tuple(columns), cursor


def _column(data: Bytes, cursor: Numbers, ends: Numbers, kind: Bytes, rows: Numbers, total: int) -> tuple[DecodedColumn, Numbers]:
    text, binary = kind == m.ValueKind.TEXT, kind == m.ValueKind.BINARY
    sent = text | binary
    unchanged = kind == m.ValueKind.UNCHANGED
    if not (sent | unchanged | (kind == m.ValueKind.NULL)).all():
        wrong = int(kind[~(sent | unchanged | (kind == m.ValueKind.NULL))][0])
        raise violation(f"unrecognized data representation type '{chr(wrong)}'")
    if binary.any() and text.any():
        raise violation("a column is sent both as text and as binary")
    everything = bool(sent.all())
    which = slice(None) if everything else np.flatnonzero(sent)
    heads, limits = cursor[which] + 1, ends[which]
    if (heads + 4 > limits).any():
        raise violation("insufficient data left in message")
    sizes = uint32(data, heads)
    if (heads + 4 + sizes > limits).any():
        raise violation("insufficient data left in message")
    after = cursor + 1
    after[which] = heads + 4 + sizes
    values = _values(data, heads + 4, sizes, rows[which], total, binary=bool(binary.any()))
    mask: Mask | None = None
    if unchanged.any():
        mask = np.zeros(total, np.bool_)
        mask[rows[unchanged]] = True
    return DecodedColumn(values, mask), after


def _values(data: Bytes, starts: Numbers, sizes: Numbers, rows: Numbers, total: int, *, binary: bool) -> pa.Array:
    """Return an array of `total` values: those at `rows` are given, the others are NULL."""
    content, offsets = _gather(data, starts, sizes)
    mask: Mask | None = None
    if len(rows) < total:
        lengths, mask = np.zeros(total, np.int64), np.zeros(total, np.bool_)
        lengths[rows], mask[rows] = sizes, True
        offsets = buffers.offsets_of(lengths)
    wide = len(content) > np.iinfo(np.int32).max
    if binary:
        return buffers.strings(content, offsets, mask, pa.large_binary() if wide else pa.binary())
    array = buffers.strings(content, offsets, mask, pa.large_string() if wide else pa.string())
    if len(content) and int(content.max()) >= 0x80:
        _check_utf8(array)
    return array


def _check_utf8(array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise buffers.not_utf8(array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())) from None


def _gather(data: Bytes, starts: Numbers, sizes: Numbers) -> tuple[Bytes, Numbers]:
    if len(sizes) and int(sizes[0]) > 0 and (sizes == sizes[0]).all():
        return buffers.rows_at(data, starts, int(sizes[0])).reshape(-1), buffers.offsets_of(sizes)
    return buffers.gather(data, starts, sizes)
