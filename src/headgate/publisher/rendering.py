"""Converts a relation's changes to CopyData frames of pgoutput: read once, judged by the gate, rendered by Arrow, encoded by NumPy.

`small` and `large` (as in `change_reader`, which reads and judges) return `Rendered` pieces whose frames are in log order. Called by
`stream`. The stages are those of the one data path: feed → gate (actions, filter) → columns → text → encode.

If several streams of a database read the same changes, all of them are encoded once, and each stream takes the frames that it sends. Only
an UPDATE that the filter turns into another operation is encoded for one stream (`decoded`). A single stream encodes only what it sends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.catalog.relation.relation import Column
from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.pgoutput import encode
from headgate.pgoutput.encode import Frames
from headgate.publisher.change_reader import EXACT, ChangeReader, with_old_row
from headgate.publisher.decoded import DecodedChanges
from headgate.publisher.publication_statistics import JudgedCounts
from headgate.publisher.published import Published, identity_columns
from headgate.settings.encoding import UTF8, Encoding
from headgate.storage.transaction.log import TableWrite
from headgate.types import buffers
from headgate.types.binary import binary
from headgate.types.encoded import as_strings, encoded
from headgate.types.text import text
from headgate.types.text_column import TextSettings

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ValueForm:
    """The format of values: the settings of the walsender's session, and pgoutput's option `binary`."""

    binary: bool = False
    session: TextSettings = EXACT
    encoding: Encoding = UTF8


@dataclass(frozen=True)
class Rendered:
    """Frames of one relation, in ascending order of `lsn`."""

    frames: Frames
    lsn: Numbers


@dataclass(frozen=True)
class Renderer:
    """The renderer of one stream."""

    reader: ChangeReader
    form: ValueForm

    @property
    def judged(self) -> JudgedCounts:
        """The counts of changes judged since the stream last collected them."""
        return self.reader.judged

    def small(self, plan: Published, writes: Sequence[TableWrite], send_time: int) -> Rendered | None:
        """Return the published changes of these writes, or None if the driver should not read them at once."""
        judged = self.reader.small(plan, writes)
        return None if judged is None else self._rendered(*judged, plan, send_time)

    def judged_piece(self, plan: Published, piece: DecodedChanges, send_time: int) -> Rendered:
        return self._rendered(*self.reader.judge(plan, piece), plan, send_time)

    def large(self, plan: Published, write: TableWrite, send_time: int) -> Iterator[Rendered]:
        """Yield the published changes of one write, piece by piece, in bounded memory."""
        for changes, verdicts in self.reader.large(plan, write):
            if verdicts.any():
                yield self._rendered(changes, verdicts, plan, send_time)

    def of_rows(self, plan: Published, changes: DecodedChanges, send_time: int) -> Rendered:
        """Return changes that belong only to this stream, all of which are sent (`alteration`)."""
        return Rendered(frames(changes, plan, self.form, send_time), changes.lsn)

    def _rendered(self, changes: DecodedChanges, verdicts: npt.NDArray[np.uint8], plan: Published, send_time: int) -> Rendered:
        if self.reader.shared.several(self.reader.database):
            return self._taken(changes, plan, verdicts, send_time)
        places = np.flatnonzero(verdicts)
        published_changes = changes.take(places, verdicts[places])
        return Rendered(frames(published_changes, plan, self.form, send_time), published_changes.lsn)

    def _taken(self, changes: DecodedChanges, plan: Published, verdicts: npt.NDArray[np.uint8], send_time: int) -> Rendered:
        """Select from the frames of all changes. Changes that became another operation are encoded here."""
        with changes.lock:
            key = (_sent(plan), self.form)
            if key not in changes.frames:
                changes.frames[key] = frames(changes, plan, self.form, send_time)
            whole = changes.frames[key]
        is_unchanged = verdicts == changes.op
        if is_unchanged.all():
            return Rendered(whole, changes.lsn)
        places = np.flatnonzero(is_unchanged)
        parts, lsn = [_take(whole, places)], [changes.lsn[places]]
        other_places = np.flatnonzero(~is_unchanged & (verdicts != 0))
        if len(other_places):
            converted = changes.take(other_places, verdicts[other_places])
            parts.append(frames(converted, plan, self.form, send_time))
            lsn.append(converted.lsn)
        return Rendered(encode.interleave(parts, lsn), np.sort(np.concatenate(lsn)))


def _sent(plan: Published) -> Hashable:
    """Return the properties of the plan that determine the encoding of a change."""
    names = tuple((column.name, column.type_oid, column.typmod) for column in plan.sent_columns)
    return plan.target.oid, plan.target.replica_identity, identity_columns(plan.relation), names


def _take(frames: Frames, places: Numbers) -> Frames:
    """Return some of the frames, at ascending indexes."""
    values = buffers.strings(frames.data, frames.offsets, None, pa.large_binary())
    return Frames(*buffers.view(values.take(pa.array(places))))


def frames(changes: DecodedChanges, plan: Published, form: ValueForm, send_time: int) -> Frames:
    """Return all of these changes as CopyData frames of pgoutput. Tasks call it too."""
    columns = plan.sent_columns
    old, changed = _old_values(changes, plan, columns, form)
    new = [_values(changes.new, plan, column, form) for column in columns]
    return encode.encode(plan.target.oid, changes.op, changes.lsn, new, old=old, old_kind=changed, send_time=send_time)


def _old_values(
    changes: DecodedChanges, plan: Published, columns: Sequence[Column], form: ValueForm
) -> tuple[list[pa.Array], npt.NDArray[np.uint8]]:
    """Return the values of old tuples, and per row their tag: K, O, or nothing (an UPDATE that does not change the key)."""
    tag = encode.ROW if plan.target.replica_identity == ReplicaIdentity.FULL else encode.KEY
    identity = identity_columns(plan.relation)
    with_old = with_old_row(changes, plan)
    values: list[pa.Array] = []
    for column in columns:
        own_column = plan.relation.column(column.name)
        is_sent = own_column is not None and (identity is None or own_column.attnum in identity)
        values.append(_values(changes.old, plan, column, form) if is_sent and with_old.any() else pa.nulls(len(changes), pa.string()))
    return values, np.where(with_old, tag, encode.NO_OLD).astype(np.uint8)


def _values(row: pa.StructArray, plan: Published, column: Column, form: ValueForm) -> pa.Array:
    """Return a column of old or new rows in the format in which it is sent. Columns are matched by name."""
    own_column = plan.relation.column(column.name)
    if own_column is None:
        return pa.nulls(len(row), pa.string())
    values = buffers.field(row, own_column.name)
    if form.binary:
        return binary.write_binary(values, own_column.type_oid, own_column.typmod, encoding=form.encoding)
    return as_strings(encoded(_text(values, own_column, form.session), form.encoding))


def _text(values: pa.Array, column: Column, session: TextSettings) -> pa.Array:
    return text.write_text(values, column.type_oid, session=session)
