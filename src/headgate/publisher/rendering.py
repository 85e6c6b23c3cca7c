"""A relation's changes as CopyData frames of pgoutput: read once, judged by the gate, rendered by Arrow, encoded by NumPy.

`small` takes the writes that the driver can read at once, `large` one write of any size in bounded memory. Both give
`Rendered` pieces whose frames are in log order. Called by `stream`. The stages are those of the one data path: feed →
gate (actions, filter) → columns → text → encode.

Where several streams of a database read the same changes, frames are made of all of them once, and each stream takes those that it
sends; only what the filter turned from an UPDATE into something else is made for one stream (`decoded`). A stream alone renders
no more than what it sends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.pgoutput import encode
from headgate.pgoutput.encode import Frames
from headgate.publisher import gate
from headgate.publisher.decoded import DecodedChanges, Shared, decoded
from headgate.publisher.publication_statistics import Judged
from headgate.publisher.published import Published, identity_columns
from headgate.settings.encoding import UTF8, Encoding
from headgate.storage import feed
from headgate.storage.transaction.log import TableWrite
from headgate.types import buffers
from headgate.types.binary import binary
from headgate.types.encoded import as_strings, encoded
from headgate.types.text import text
from headgate.types.text_column import TextSettings

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Column
    from headgate.storage.engine import Engine

Numbers = npt.NDArray[np.int64]


EXACT = TextSettings(extra_float_digits=3)
"""Different values have different texts."""


@dataclass(frozen=True)
class ValueForm:
    """How values are written: the settings of the walsender's session, and pgoutput's option `binary`."""

    binary: bool = False
    session: TextSettings = EXACT
    encoding: Encoding = UTF8


@dataclass(frozen=True)
class Rendered:
    """Frames of one relation, ascending in `lsn`."""

    frames: Frames
    lsn: Numbers


@dataclass(frozen=True)
class Renderer:
    """What one stream renders with."""

    engine: Engine
    shared: Shared
    database: int
    form: ValueForm
    judged: Judged = field(default_factory=Judged)
    """Counts what has been judged since the stream took it last."""

    def small(self, plan: Published, writes: Sequence[TableWrite], send_time: int) -> Rendered | None:
        """The published changes of these writes; None if the driver should not read them at once."""

        def read() -> DecodedChanges | None:
            table = feed.small(self.engine, plan.relation, writes)
            return None if table is None else decoded(table, writes)

        changes = self.shared.get(self.database, (_described(plan), _named(writes)), read)
        if changes is None:
            return None
        return self.judged_piece(plan, changes, send_time)

    def judged_piece(self, plan: Published, changes: DecodedChanges, send_time: int) -> Rendered:
        """Return those of the changes that are published."""
        found = gate.verdicts(self.engine, changes, plan)
        self.judged.count(plan.publications, len(changes), int(np.count_nonzero(found)))
        return self._rendered(changes, plan, found, send_time)

    def large(self, plan: Published, write: TableWrite, send_time: int) -> Iterator[Rendered]:
        """The published changes of one write, piece by piece.

        Where the filter is one for Spark, that reads the filter's columns alone and gives one byte for each change; the rows themselves are
        read once, in order, by the driver. Memory: that byte, and one piece.
        """
        verdicts = None
        for number, piece in enumerate(self._pieces(plan, write)):
            if not number and gate.needs_spark(self.engine, piece, plan):
                verdicts = gate.of_write(self.engine, plan, write)
            found = gate.verdicts(self.engine, piece, plan) if verdicts is None else verdicts[piece.table["position"].to_numpy()]
            self.judged.count(plan.publications, len(piece), int(np.count_nonzero(found)))
            if found.any():
                yield self._rendered(piece, plan, found, send_time)

    def of_rows(self, plan: Published, changes: DecodedChanges, send_time: int) -> Rendered:
        """Changes that are this stream's alone, all of which are sent (`alteration`)."""
        return Rendered(frames(changes, plan, self.form, send_time), changes.lsn)

    def _pieces(self, plan: Published, write: TableWrite) -> Iterator[DecodedChanges]:
        """The pieces of a write, each read by one of the streams that need it at about the same time."""
        read = 0
        pieces = feed.pieces(self.engine, plan.relation, write)

        def up_to(wanted: int) -> DecodedChanges | None:
            nonlocal read
            while read < wanted:
                next(pieces, None)
                read += 1
            read += 1
            table = next(pieces, None)
            return None if table is None else decoded(table, [write])

        number = 0
        while True:
            wanted = number
            piece = self.shared.get(self.database, (_described(plan), _named([write]), wanted), lambda: up_to(wanted))  # noqa: B023
            if piece is None:
                return
            yield piece
            number += 1

    def _rendered(self, changes: DecodedChanges, plan: Published, verdicts: npt.NDArray[np.uint8], send_time: int) -> Rendered:
        if self.shared.several(self.database):
            return self._taken(changes, plan, verdicts, send_time)
        kept = np.flatnonzero(verdicts)
        chosen = changes.take(kept, verdicts[kept])
        return Rendered(frames(chosen, plan, self.form, send_time), chosen.lsn)

    def _taken(self, changes: DecodedChanges, plan: Published, verdicts: npt.NDArray[np.uint8], send_time: int) -> Rendered:
        """Out of the frames of all changes; those that became another operation are made here."""
        with changes.lock:
            key = (_sent(plan), self.form)
            if key not in changes.frames:
                changes.frames[key] = frames(changes, plan, self.form, send_time)
            whole = changes.frames[key]
        same = verdicts == changes.op
        if same.all():
            return Rendered(whole, changes.lsn)
        places = np.flatnonzero(same)
        parts, lsn = [_take(whole, places)], [changes.lsn[places]]
        other = np.flatnonzero(~same & (verdicts != 0))
        if len(other):
            turned = changes.take(other, verdicts[other])
            parts.append(frames(turned, plan, self.form, send_time))
            lsn.append(turned.lsn)
        return Rendered(encode.interleave(parts, lsn), np.sort(np.concatenate(lsn)))


def _described(plan: Published) -> Hashable:
    """What of the relation decides how its changes are read."""
    relation = plan.relation
    return relation.oid, tuple((column.attnum, column.name, column.type_oid, column.typmod) for column in relation.columns)


def _sent(plan: Published) -> Hashable:
    """What of the plan decides how a change is written."""
    names = tuple((column.name, column.type_oid, column.typmod) for column in plan.sent_columns)
    return plan.target.oid, plan.target.replica_identity, identity_columns(plan.relation), names


def _named(writes: Sequence[TableWrite]) -> Hashable:
    """The writes, as part of a key."""
    return tuple((write.version, int(write.lsn)) for write in writes)


def _take(frames: Frames, places: Numbers) -> Frames:
    """Some of the frames, in ascending places."""
    values = buffers.strings(frames.data, frames.offsets, None, pa.large_binary())
    return Frames(*buffers.view(values.take(pa.array(places))))


def frames(changes: DecodedChanges, plan: Published, form: ValueForm, send_time: int) -> Frames:
    """Return all of these changes as CopyData frames of pgoutput. Tasks call it too."""
    op, old_row, new_row = changes.op, changes.old, changes.new
    columns = plan.sent_columns
    before = identity_columns(plan.relation)
    old, changed = _old_values(plan, columns, before, old_row, new_row, op, form)
    new = [_values(new_row, plan, column, form) for column in columns]
    return encode.encode(plan.target.oid, op, changes.lsn, new, old=old, old_kind=changed, send_time=send_time)


def _old_values(
    plan: Published,
    columns: Sequence[Column],
    before: frozenset[int] | None,
    old_row: pa.StructArray,
    new_row: pa.StructArray,
    op: npt.NDArray[np.uint8],
    form: ValueForm,
) -> tuple[list[pa.Array], npt.NDArray[np.uint8]]:
    """The old tuples' values, and per row what precedes them: K, O, or nothing (an update that leaves the key as it was)."""
    tag = encode.ROW if plan.target.replica_identity == ReplicaIdentity.FULL else encode.KEY
    updated = op == encode.UPDATE
    with_old = op == encode.DELETE
    names = {column.attnum: column.name for column in plan.relation.columns}
    values: list[pa.Array] = []
    if before is None:
        with_old = with_old | updated
    elif updated.any():
        with_old = with_old | (updated & _changed(plan, before, names, old_row, new_row))
    for column in columns:
        mine = plan.relation.column(column.name)
        sent = mine is not None and (before is None or mine.attnum in before)
        values.append(_values(old_row, plan, column, form) if sent and with_old.any() else pa.nulls(len(op), pa.string()))
    return values, np.where(with_old, tag, encode.NO_OLD).astype(np.uint8)


def _changed(
    plan: Published, before: frozenset[int], names: dict[int, str], old_row: pa.StructArray, new_row: pa.StructArray
) -> npt.NDArray[np.bool_]:
    """Whether an identity column has another value (byte by byte: 2.50 is not 2.5) than before."""
    found = np.zeros(len(old_row), np.bool_)
    for attnum in before:
        column = plan.relation.numbered(attnum)
        if column is None:
            continue
        one, other = (_text(buffers.field(row, names[attnum]), column, EXACT) for row in (old_row, new_row))
        differs = pc.fill_null(pc.not_equal(one, other), pc.xor(pc.is_null(one), pc.is_null(other)))
        found |= np.asarray(differs)
    return found


def _values(row: pa.StructArray, plan: Published, column: Column, form: ValueForm) -> pa.Array:
    """A column of old or new rows in the form in which it is sent; columns are matched by name."""
    mine = plan.relation.column(column.name)
    if mine is None:
        return pa.nulls(len(row), pa.string())
    values = buffers.field(row, mine.name)
    if form.binary:
        return binary.write_binary(values, mine.type_oid, mine.typmod, encoding=form.encoding)
    return as_strings(encoded(_text(values, mine, form.session), form.encoding))


def _text(values: pa.Array, column: Column, session: TextSettings) -> pa.Array:
    return text.write_text(values, column.type_oid, column.typmod, session=session)
