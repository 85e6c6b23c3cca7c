"""Reads the changes of a relation from its files and judges them with the gate, for `stream` and for `change_range`.

`ChangeReader.small` reads the writes that the driver can read at once, `large` one write of any size in bounded memory. Both return changes
with one letter each: the operation as which it is sent, or 0 if it is not sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pgoutput import encode
from headgate.publisher import gate
from headgate.publisher.decoded import ChangeCache, DecodedChanges, decoded
from headgate.publisher.publication_statistics import JudgedCounts
from headgate.publisher.published import Published, identity_columns
from headgate.storage import feed
from headgate.storage.transaction.log import TableWrite
from headgate.storage.transaction.storage import Storage
from headgate.types import buffers
from headgate.types.text import text
from headgate.types.text_column import TextSettings

EXACT = TextSettings(extra_float_digits=3)
"""Settings under which different values have different texts."""

JudgedChanges = tuple[DecodedChanges, gate.Letters]


@dataclass(frozen=True)
class ChangeReader:
    """Reads and judges changes of one database."""

    storage: Storage
    shared: ChangeCache
    database: int
    judged: JudgedCounts = field(default_factory=JudgedCounts)
    """The counts of changes judged since the stream last collected them."""

    def small(self, plan: Published, writes: Sequence[TableWrite]) -> JudgedChanges | None:
        """Return the changes of these writes, or None if the driver should not read them at once."""

        def read() -> DecodedChanges | None:
            table = feed.small(self.storage.tables, plan.relation, writes)
            return None if table is None else decoded(table, writes)

        changes = self.shared.get(self.database, (_described(plan), _named(writes)), read)
        return None if changes is None else self.judge(plan, changes)

    def judge(self, plan: Published, changes: DecodedChanges) -> JudgedChanges:
        return self._counted(plan, changes, gate.verdicts(self.storage, changes, plan))

    def large(self, plan: Published, write: TableWrite) -> Iterator[JudgedChanges]:
        """Yield the changes of one write, piece by piece.

        If Spark must evaluate the filter, it reads only the filter's columns and returns one byte for each change. The driver reads the
        rows once, in order. Memory: that byte per change, and one piece.
        """
        verdicts = None
        for number, piece in enumerate(self._pieces(plan, write)):
            if not number and gate.needs_spark(self.storage, piece, plan):
                verdicts = gate.of_write(self.storage, plan, write)
            piece_verdicts = gate.verdicts(self.storage, piece, plan) if verdicts is None else verdicts[piece.table["position"].to_numpy()]
            yield self._counted(plan, piece, piece_verdicts)

    def _counted(self, plan: Published, changes: DecodedChanges, verdicts: gate.Letters) -> JudgedChanges:
        self.judged.count(plan.publications, len(changes), int(np.count_nonzero(verdicts)))
        return changes, verdicts

    def _pieces(self, plan: Published, write: TableWrite) -> Iterator[DecodedChanges]:
        """Yield the pieces of a write, each read by one of the streams that need it at about the same time."""
        count_read = 0
        pieces = feed.pieces(self.storage.tables, plan.relation, write)

        def up_to(index: int) -> DecodedChanges | None:
            nonlocal count_read
            while count_read < index:
                next(pieces, None)
                count_read += 1
            count_read += 1
            table = next(pieces, None)
            return None if table is None else decoded(table, [write])

        number = 0
        while True:
            index = number
            piece = self.shared.get(self.database, (_described(plan), _named([write]), index), lambda: up_to(index))  # noqa: B023
            if piece is None:
                return
            yield piece
            number += 1


def _described(plan: Published) -> Hashable:
    """Return the properties of the relation that determine how its changes are read."""
    relation = plan.relation
    return relation.oid, tuple((column.attnum, column.name, column.type_oid, column.typmod) for column in relation.columns)


def _named(writes: Sequence[TableWrite]) -> Hashable:
    return tuple((write.version, int(write.lsn)) for write in writes)


def with_old_row(changes: DecodedChanges, plan: Published) -> npt.NDArray[np.bool_]:
    """Return which changes are sent with an old row: not an UPDATE that does not change the replica identity."""
    updated, deleted = changes.op == encode.UPDATE, changes.op == encode.DELETE
    identity = identity_columns(plan.relation)
    if identity is None:
        return np.asarray(deleted | updated)
    return np.asarray(deleted | (updated & _changed(changes, plan, identity)) if updated.any() else deleted)


def _changed(changes: DecodedChanges, plan: Published, identity: frozenset[int]) -> npt.NDArray[np.bool_]:
    """Return whether an identity column has changed, byte by byte: 2.50 is not 2.5."""
    changed = np.zeros(len(changes), np.bool_)
    for attnum in identity:
        column = plan.relation.numbered(attnum)
        if column is None:
            continue
        old, new = (buffers.field(row, column.name) for row in (changes.old, changes.new))
        if pa.types.is_floating(old.type) or pa.types.is_nested(old.type):  # 0 equals -0, and NaN does not equal NaN
            old, new = (text.write_text(values, column.type_oid, session=EXACT) for values in (old, new))
        differs = pc.fill_null(pc.not_equal(old, new), pc.xor(pc.is_null(old), pc.is_null(new)))
        changed |= np.asarray(differs)
    return changed
