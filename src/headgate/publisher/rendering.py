"""A relation's changes as CopyData frames of pgoutput: read once, judged by the gate, rendered by Arrow, encoded by NumPy.

`small` and `large` (as in `change_reader`, which reads and judges) give `Rendered` pieces whose frames are in log order. Called by
`stream`. The stages are those of the one data path: feed → gate (actions, filter) → columns → text → encode.

Where several streams of a database read the same changes, frames are made of all of them once, and each stream takes those that it
sends; only what the filter turned from an UPDATE into something else is made for one stream (`decoded`). A stream alone renders
no more than what it sends.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.catalog.relation.replica_identity import ReplicaIdentity
from headgate.pgoutput import encode
from headgate.pgoutput.encode import Frames
from headgate.publisher.change_reader import EXACT, ChangeReader, with_old_row
from headgate.publisher.decoded import DecodedChanges
from headgate.publisher.publication_statistics import Judged
from headgate.publisher.published import Published, identity_columns
from headgate.settings.encoding import UTF8, Encoding
from headgate.storage.transaction.log import TableWrite
from headgate.types import buffers
from headgate.types.binary import binary
from headgate.types.encoded import as_strings, encoded
from headgate.types.text import text
from headgate.types.text_column import TextSettings

if TYPE_CHECKING:
    from headgate.catalog.relation.relation import Column

Numbers = npt.NDArray[np.int64]


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

    reader: ChangeReader
    form: ValueForm

    @property
    def judged(self) -> Judged:
        """Counts what has been judged since the stream took it last."""
        return self.reader.judged

    def small(self, plan: Published, writes: Sequence[TableWrite], send_time: int) -> Rendered | None:
        """The published changes of these writes; None if the driver should not read them at once."""
        found = self.reader.small(plan, writes)
        return None if found is None else self._rendered(*found, plan, send_time)

    def judged_piece(self, plan: Published, piece: DecodedChanges, send_time: int) -> Rendered:
        """Return those of the changes of a piece of a write that are published."""
        return self._rendered(*self.reader.judge(plan, piece), plan, send_time)

    def large(self, plan: Published, write: TableWrite, send_time: int) -> Iterator[Rendered]:
        """The published changes of one write, piece by piece, in bounded memory."""
        for changes, verdicts in self.reader.large(plan, write):
            if verdicts.any():
                yield self._rendered(changes, verdicts, plan, send_time)

    def of_rows(self, plan: Published, changes: DecodedChanges, send_time: int) -> Rendered:
        """Changes that are this stream's alone, all of which are sent (`alteration`)."""
        return Rendered(frames(changes, plan, self.form, send_time), changes.lsn)

    def _rendered(self, changes: DecodedChanges, verdicts: npt.NDArray[np.uint8], plan: Published, send_time: int) -> Rendered:
        if self.reader.shared.several(self.reader.database):
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


def _sent(plan: Published) -> Hashable:
    """What of the plan decides how a change is written."""
    names = tuple((column.name, column.type_oid, column.typmod) for column in plan.sent_columns)
    return plan.target.oid, plan.target.replica_identity, identity_columns(plan.relation), names


def _take(frames: Frames, places: Numbers) -> Frames:
    """Some of the frames, in ascending places."""
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
    """The old tuples' values, and per row what precedes them: K, O, or nothing (an update that leaves the key as it was)."""
    tag = encode.ROW if plan.target.replica_identity == ReplicaIdentity.FULL else encode.KEY
    before = identity_columns(plan.relation)
    with_old = with_old_row(changes, plan)
    values: list[pa.Array] = []
    for column in columns:
        mine = plan.relation.column(column.name)
        sent = mine is not None and (before is None or mine.attnum in before)
        values.append(_values(changes.old, plan, column, form) if sent and with_old.any() else pa.nulls(len(changes), pa.string()))
    return values, np.where(with_old, tag, encode.NO_OLD).astype(np.uint8)


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
