"""Appends insert-only batches in the driver, without a Spark job, if no stored row can have one of their keys.

The most common large batch contains new rows with growing keys. The statistics of the table's files show that none of them can contain
such a key, and the batch itself is checked for equal keys. Then the rows are written as Parquet in pieces. Other batches go through
`headgate.changes.merge`. Called by the applier and by the initial copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Relation
from headgate.changes import lookup
from headgate.storage.delta import file_statistics
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import SMALL_BYTES, arrow_row


def rows_of(new: pa.ChunkedArray) -> pa.Table:
    """Return the rows of a struct column without NULLs as a table."""
    return pa.Table.from_struct_array(new)


def only_inserts(frame: pa.Table) -> bool:
    """Return whether a changes frame contains only INSERTs."""
    return bool(pc.all(pc.equal(frame["op"], "I"), min_count=0).as_py())


def is_new(transaction: Transaction, relation: Relation, key: Sequence[int], rows: pa.Table) -> bool:
    """Return whether the rows' keys differ from each other and, according to the statistics, from every stored key."""
    named = lookup.key_of(relation, key)
    states = [state for state in transaction.states(relation) if state.files]
    if states:
        first = named.names[0]
        values = rows[first]
        if not named.exact[0] or values.null_count:
            return False
        ends = pc.min_max(values)
        kind = arrow_row(relation).field(first).type
        if any(file_statistics.can_hold(state, first, ends["min"], ends["max"], kind) for state in states):
            return False
    if not all(named.exact):
        return False
    # under names of our own: Arrow reads a name that begins with a dot as a path
    keys = pa.table([rows[name] for name in named.names], names=[f"k{place}" for place in range(len(named.names))])
    return bool(keys.group_by(keys.column_names).aggregate([]).num_rows == rows.num_rows)


def append(transaction: Transaction, relation: Relation, rows: pa.Table) -> int:
    """Append rows in pieces that the driver writes by itself. Return the number of rows."""
    if not rows.num_rows:
        return 0
    pieces = rows.nbytes // SMALL_BYTES + 1
    size = -(-rows.num_rows // pieces)
    return sum(transaction.append(relation, rows.slice(start, size)) for start in range(0, rows.num_rows, size))
