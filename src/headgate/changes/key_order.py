"""Orders the changes of one write so that no row gets a unique key before another row has given it up.

The rows of a statement, and of an applied batch, are checked together: two rows may exchange their keys. A PostgreSQL subscriber applies
one change after the other, and checks each. The order may be reversed. A row that still has a key which an earlier change gives to
another row is deleted first, and inserted in its place. Traced:

    key:            U 1 → 2; U 2 → 3                           becomes    U 2 → 3; U 1 → 2
    second column:  U (1, a) → (1, b); U (2, b) → (2, a)       becomes    D (2, b); U (1, a) → (1, b); I (2, a)

The keys of an index with expressions are not computed: every row whose key may differ is taken for one that gets and gives up the key.

Called by `merge`, and by statements (`commands.dml.rows.changed_rows`), for rows that the driver writes. Tasks that apply a batch (`tasks`)
know only their own rows: they write deleted rows first and new rows last, and a row that gives up a key as both (`apart`). A statement that
changes many rows writes them as deleted and new rows if some exchange keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup, net
from headgate.changes.lookup import RowKey
from headgate.sql import parser
from headgate.types import buffers


@dataclass(frozen=True)
class UniqueKey:
    """A unique index. `key`: its columns, None if equal values of them do not mean equal keys. `read`: all columns that it depends on."""

    key: RowKey | None
    read: RowKey

    def has_key(self, rows: pa.StructArray) -> NDArray[np.bool_]:
        """Return which rows may have a key. In the columns of a key NULL is none."""
        has: NDArray[np.bool_] = np.array(rows.is_valid())
        for column in self.key.arrays(rows) if self.key else ():
            has &= np.asarray(column.is_valid())
        return has

    def differs(self, old: pa.StructArray, new: pa.StructArray) -> NDArray[np.bool_]:
        """Return which changes may give a row another key."""
        differs: NDArray[np.bool_] = np.asarray(old.is_null()) | np.asarray(new.is_null())
        for before, after in zip(self.read.arrays(old), self.read.arrays(new), strict=True):
            is_same = pc.fill_null(pc.equal(before, after.cast(before.type)), pc.and_(before.is_null(), after.is_null()))
            differs |= ~np.asarray(is_same)
        return differs


def unique_keys(relation: Relation) -> list[UniqueKey]:
    """Return the keys of a table's unique indexes. A partial index has the columns of its key, an index with expressions has none."""
    keys = []
    for index in relation.unique_indexes:
        names = parser.columns_read(*index.expressions, *([] if index.predicate is None else [index.predicate]))
        read = [column.attnum for column in relation.columns if column.attnum in index.attnums or column.name in names]
        key = None if index.expressions or index.nulls_not_distinct else lookup.key_of(relation, index.attnums)
        keys.append(UniqueKey(key, lookup.key_of(relation, read)))
    return keys


def untangled(relation: Relation, changed: pa.Table) -> pa.Table:
    """Return changed rows (in the form of `Transaction.rewrite`) in such an order. There may be more of them than before."""
    keys = unique_keys(relation)
    late = _late(keys, changed)
    if not late.any():
        return changed
    backward = changed.take(pa.array(np.arange(changed.num_rows)[::-1]))
    if (late_backward := _late(keys, backward)).sum() < late.sum():
        changed, late = backward, late_backward
    return _split(changed, late)


def apart(keys: Iterable[UniqueKey], changed: pa.Table) -> pa.Table:
    """Return changed rows with each row that gives up a key as a deleted and a new row: another writer's row may get the key."""
    old, new = buffers.whole(changed["old"]), buffers.whole(changed["new"])
    gives_up = np.zeros(len(old), np.bool_)
    for key in keys:
        gives_up |= key.has_key(old) & key.differs(old, new)
    gives_up &= np.asarray(new.is_valid())
    return _split(changed, gives_up) if gives_up.any() else changed


def _split(changed: pa.Table, late: NDArray[np.bool_]) -> pa.Table:
    """Return the changed rows with the `late` ones as deleted rows before all others and new rows in their places."""
    columns = {name: buffers.whole(changed[name]) for name in changed.column_names}
    first, rest = np.flatnonzero(late), np.flatnonzero(~late | np.asarray(columns["new"].is_valid()))
    gone, kept, stored = pa.array(first), pa.array(rest), pa.array(rest, mask=late[rest])
    parts = {name: [column.take(gone), column.take(stored)] for name, column in columns.items()}
    parts["new"] = [pa.nulls(len(first), columns["new"].type), columns["new"].take(kept)]
    return pa.table([pa.concat_arrays(parts[name]) for name in changed.column_names], names=changed.column_names)


def _late(keys: Iterable[UniqueKey], changed: pa.Table) -> NDArray[np.bool_]:
    """Return which rows give up a key after an earlier row may have got it."""
    old, new = buffers.whole(changed["old"]), buffers.whole(changed["new"])
    late = np.zeros(len(old), np.bool_)
    for key in keys:
        late |= _late_by(key, old, new)
    return late


def _late_by(key: UniqueKey, old: pa.StructArray, new: pa.StructArray) -> NDArray[np.bool_]:
    differs, count = key.differs(old, new), len(old)
    gives, gets = differs & key.has_key(old), differs & key.has_key(new)
    if not gets.any():  # the usual case
        return np.zeros(count, np.bool_)
    codes = np.zeros(2 * count, np.int64)
    if key.key is not None:
        pairs = zip(key.key.arrays(old), key.key.arrays(new), strict=True)
        codes = net.keys_of([pa.concat_arrays([before, after.cast(before.type)]) for before, after in pairs]).codes
    first_at = np.full(2 * count + 1, count)
    np.minimum.at(first_at, codes[count:][gets], np.flatnonzero(gets))
    late: NDArray[np.bool_] = gives & (first_at[codes[:count]] < np.arange(count))
    return late
