"""A batch of changes in the driver, in order, with its keys in canonical form. Made by `merge` and `row_history`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Relation
from headgate.changes.lookup import RowKey
from headgate.changes.replay import keys, listed
from headgate.storage.write import arrow_row
from headgate.types import buffers


@dataclass(frozen=True)
class KeyedBatch:
    """The columns of a batch. `unchanged` contains the names of the columns that each change did not send, None if all were sent."""

    ops: list[str]
    old: pa.StructArray
    new: pa.StructArray
    old_keys: list[pa.Array]
    new_keys: list[pa.Array]
    unchanged: list[list[str] | None] | None

    @classmethod
    def of(cls, relation: Relation, key: RowKey, changes: pa.Table) -> KeyedBatch:
        """Return the batch of a changes frame that is in order."""
        old, new = whole_rows(relation, buffers.whole(changes["old"])), whole_rows(relation, buffers.whole(changes["new"]))
        unchanged = changes["unchanged"].to_pylist() if has_unsent(changes) else None
        return cls(changes["op"].to_pylist(), old, new, key.arrays(old), key.arrays(new), unchanged)

    def wanted(self) -> pa.Table:
        had, has = self.old.is_valid(), self.new.is_valid()
        parts = [pa.concat_arrays([o.filter(had), n.filter(has)]) for o, n in zip(self.old_keys, self.new_keys, strict=True)]
        table = pa.table(parts, names=[f"k{i}" for i in range(len(parts))])
        return table.group_by(table.column_names).aggregate([])

    def steps(self) -> Iterator[tuple[str, Hashable | None, Hashable | None]]:
        """Return (op, old key, new key) of each change."""
        count = len(self.ops)
        had = self.old.is_valid().to_pylist()
        old = keys([listed(a) for a in self.old_keys], count)
        new = keys([listed(a) for a in self.new_keys], count)
        return ((op, o if h else None, n) for op, o, n, h in zip(self.ops, old, new, had, strict=True))


def has_unsent(changes: pa.Table) -> bool:
    """Return whether some change did not send all columns."""
    return "unchanged" in changes.column_names and changes["unchanged"].null_count < changes.num_rows


def whole_rows(relation: Relation, rows: pa.StructArray) -> pa.StructArray:
    """Return the rows with all columns of the relation in order. Missing columns are NULL (an old key has few columns)."""
    schema = arrow_row(relation)
    held = {f.name for f in rows.type}
    fields = [rows.field(f.name).cast(f.type) if f.name in held else pa.nulls(len(rows), f.type) for f in schema]
    return pa.StructArray.from_arrays(fields, fields=list(schema), mask=rows.is_null())


def in_order(changes: pa.Table) -> pa.Table:
    """Return the changes in the order of the stream, in one chunk. Changes at the same place keep their order."""
    lsn, seq, position = (np.diff(changes[name].to_numpy()) for name in ("commit_lsn", "seq", "position"))
    if ((lsn > 0) | ((lsn == 0) & ((seq > 0) | ((seq == 0) & (position >= 0))))).all():
        return changes.combine_chunks()
    by = [("commit_lsn", "ascending"), ("seq", "ascending"), ("position", "ascending")]
    return changes.take(pc.sort_indices(changes, sort_keys=by)).combine_chunks()
