"""Orders the changes of one write so that no row gets a unique key before another row has given it up.

The rows of a statement, and of an applied batch, are checked together: two rows may exchange their keys. A PostgreSQL subscriber applies
one change after the other, and checks each. The order may be reversed. A row that still has a key which an earlier change gives to
another row is deleted first, and inserted in its place. Traced:

    key:            U 1 → 2; U 2 → 3                           becomes    U 2 → 3; U 1 → 2
    second column:  U (1, a) → (1, b); U (2, b) → (2, a)       becomes    D (2, b); U (1, a) → (1, b); I (2, a)

Called by `merge`, and by statements (`commands.dml.rows.changed_rows`), for rows that the driver writes. Tasks that apply a batch (`tasks`)
know only their own rows: they write deleted rows first and new rows last, and a row that gives up a key as both (`apart`). A statement that
changes many rows writes them as deleted and new rows if some exchange keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup, net
from headgate.changes.lookup import RowKey
from headgate.types import buffers


def untangled(relation: Relation, changed: pa.Table) -> pa.Table:
    """Return changed rows (in the form of `Transaction.rewrite`) in such an order. There may be more of them than before."""
    late = _late(relation, changed)
    if not late.any():
        return changed
    backward = changed.take(pa.array(np.arange(changed.num_rows)[::-1]))
    if (late_backward := _late(relation, backward)).sum() < late.sum():
        changed, late = backward, late_backward
    return _split(changed, late)


def apart(keys: Iterable[RowKey], changed: pa.Table) -> pa.Table:
    """Return changed rows with each row that gives up a key as a deleted and a new row: another writer's row may get the key."""
    old, new = buffers.whole(changed["old"]), buffers.whole(changed["new"])
    gives_up = np.zeros(len(old), np.bool_)
    for key in keys:
        pairs = _pairs(key, old, new)
        gives_up |= ~_kept(pairs) & np.logical_and.reduce([np.asarray(before.is_valid()) for before, _ in pairs])
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


def _late(relation: Relation, changed: pa.Table) -> NDArray[np.bool_]:
    """Return which rows give up a key after an earlier row has got it."""
    old, new = buffers.whole(changed["old"]), buffers.whole(changed["new"])
    late = np.zeros(len(old), np.bool_)
    for index in relation.unique_indexes:
        if index.plain:
            late |= _late_by(lookup.key_of(relation, index.attnums), old, new)
    return late


def _late_by(key: RowKey, old: pa.StructArray, new: pa.StructArray) -> NDArray[np.bool_]:
    pairs = _pairs(key, old, new)
    if bool((_kept(pairs) | np.asarray(new.is_null())).all()):  # no row gets a key, which is the usual case
        return np.zeros(len(old), np.bool_)
    columns = [pa.concat_arrays(pair) for pair in pairs]
    has_key = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
    has_key &= np.concatenate([np.asarray(old.is_valid()), np.asarray(new.is_valid())])
    codes, count = net.keys_of(columns).codes, len(old)
    taken_at = np.full(len(codes) + 1, count)
    takers = np.flatnonzero(has_key[count:])
    taken_at[codes[count:][takers]] = takers
    late: NDArray[np.bool_] = has_key[:count] & (taken_at[codes[:count]] < np.arange(count))
    return late


def _pairs(key: RowKey, old: pa.StructArray, new: pa.StructArray) -> list[tuple[pa.Array, pa.Array]]:
    """Return the old and the new values of each column of a key."""
    return [(before, after.cast(before.type)) for before, after in zip(key.arrays(old), key.arrays(new), strict=True)]


def _kept(pairs: Sequence[tuple[pa.Array, pa.Array]]) -> NDArray[np.bool_]:
    """Return which rows have equal values in all columns of a key."""
    kept: NDArray[np.bool_] = np.logical_and.reduce(
        [np.asarray(pc.fill_null(pc.equal(before, after), fill_value=False)) for before, after in pairs]
    )
    return kept
