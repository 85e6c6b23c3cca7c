"""Recognizes batches of new rows whose keys no stored row can have: they are appended, and nothing is looked up or netted.

The most common large batch contains new rows with growing keys. The statistics of the table's files show that none of them can contain
such a key, and the batch itself is checked for equal keys. The table writer appends such a batch in the driver (`append`).

Tasks that each append a part of a batch (`tasks.insert`) do not see each other's keys. Each returns the `intervals` of its keys, and the
driver checks that those of different parts are apart:

    part 1, keys 1 to 900 and 905 to 1000     [1, 900] [905, 1000]
    part 2, keys 901 to 904, 1001 to 1950     [901, 904] [1001, 1950]     apart: no key is in both

Invariant: a part has at most MOST_INTERVALS of them. If it would have more, neighbours are joined, so that an interval may contain keys
that the part does not have. Then parts may seem to overlap that do not. They never seem to be apart if they overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Relation
from headgate.changes.lookup import RowKey
from headgate.changes.net import Numbers
from headgate.storage.delta import file_statistics
from headgate.storage.delta.table_state import TableState
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import SMALL_BYTES, arrow_row

MOST_INTERVALS = 4096


def rows_of(new: pa.ChunkedArray) -> pa.Table:
    """Return the rows of a struct column without NULLs as a table."""
    return pa.Table.from_struct_array(new)


def only_inserts(frame: pa.Table) -> bool:
    return bool(pc.all(pc.equal(frame["op"], "I"), min_count=0).as_py())


def is_new(relation: Relation, key: RowKey, states: Sequence[TableState], rows: pa.Table) -> bool:
    """Return whether the rows' keys differ from each other and, according to the statistics, from every key stored in `states`."""
    filled = [state for state in states if state.files]
    if filled:
        first = key.names[0]
        values = rows[first]
        if not key.exact[0] or values.null_count:
            return False
        ends = pc.min_max(values)
        kind = arrow_row(relation).field(first).type
        if any(file_statistics.can_hold(state, first, ends["min"], ends["max"], kind) for state in filled):
            return False
    if not all(key.exact):
        return False
    # under names of our own: Arrow reads a name that begins with a dot as a path
    keys = pa.table([rows[name] for name in key.names], names=[f"k{place}" for place in range(len(key.names))])
    return bool(keys.group_by(keys.column_names).aggregate([]).num_rows == rows.num_rows)


def has_intervals(relation: Relation, key: RowKey) -> bool:
    """Return whether `intervals` can be computed of a key: it is one column of whole numbers, dates or times."""
    if len(key.names) != 1 or not key.exact[0]:
        return False
    kind = arrow_row(relation).field(key.names[0]).type
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def intervals(keys: pa.ChunkedArray) -> Numbers:
    """Return the intervals (first, last) that contain keys, ascending: runs of neighbouring numbers, as a matrix of two columns."""
    whole = keys.cast(pa.int32()) if pa.types.is_date32(keys.type) else keys
    numbers = np.sort(whole.cast(pa.int64()).to_numpy())
    gaps = np.diff(numbers.view(np.uint64))  # of the whole range of int8
    breaks = np.flatnonzero(gaps > 1)
    if len(breaks) >= MOST_INTERVALS:
        breaks = np.sort(breaks[np.argpartition(gaps[breaks], -MOST_INTERVALS)[1 - MOST_INTERVALS :]])
    return np.stack([numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, len(numbers) - 1)]], axis=1)


def are_apart(parts: Sequence[Numbers]) -> bool:
    """Return whether no interval of a part overlaps one of another."""
    together = np.concatenate([np.zeros((0, 2), np.int64), *parts])
    together = together[np.argsort(together[:, 0], kind="stable")]
    return bool((together[1:, 0] > together[:-1, 1]).all())


def append(transaction: Transaction, relation: Relation, rows: pa.Table) -> int:
    """Append rows in pieces that the driver writes by itself. Return the number of rows."""
    if not rows.num_rows:
        return 0
    pieces = rows.nbytes // SMALL_BYTES + 1
    size = -(-rows.num_rows // pieces)
    return sum(transaction.append(relation, rows.slice(start, size)) for start in range(0, rows.num_rows, size))
