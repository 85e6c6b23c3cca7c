"""The unique keys of a few rows in the driver: their values in canonical form, the rows that repeat a key, the stored rows that have one.

Called by `uniqueness`, by `new_rows` for the keys that a transaction claims, and by `on_conflict`. Rows with a NULL in a key have no key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog.relation.relation import Index, Relation
from headgate.changes import lookup
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers


def of_rows(relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the key columns k0, k1, … and `place`, the row number, of the rows that have a key."""
    key = lookup.key_of(relation, index.attnums)
    arrays = [lookup.canonical_array(buffers.whole(rows.column(name)), kind) for name, kind in zip(key.names, key.kinds, strict=True)]
    table = pa.table([*arrays, pa.array(np.arange(rows.num_rows))], names=[*_names(index), "place"])
    valid = None
    for array in arrays:
        valid = array.is_valid() if valid is None else pc.and_(valid, array.is_valid())
    return table if valid is None else table.filter(valid)


def distinct(relation: Relation, index: Index, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return the distinct keys of the rows, and the first row of each."""
    first = of_rows(relation, index, rows).group_by(_names(index), use_threads=False).aggregate([("place", "min")])
    return first.select(_names(index)), first["place_min"].combine_chunks()


def repeated(relation: Relation, index: Index, rows: pa.Table) -> list[int]:
    """Return the rows that have the key of an earlier row."""
    keys = of_rows(relation, index, rows)
    firsts = set(keys.group_by(_names(index), use_threads=False).aggregate([("place", "min")])["place_min"].to_pylist())
    return [place for place in keys["place"].to_pylist() if place not in firsts] if len(firsts) < keys.num_rows else []


def stored(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the stored rows that have the key of a new row: `place` (the first such row), `old` struct, `file`, `row`."""
    keys, firsts = distinct(relation, index, rows)
    matches = lookup.find(transaction, relation, lookup.key_of(relation, index.attnums), keys)
    return matches.append_column("place", firsts.take(matches["i"]))


def _names(index: Index) -> list[str]:
    return [f"k{number}" for number in range(len(index.attnums))]
