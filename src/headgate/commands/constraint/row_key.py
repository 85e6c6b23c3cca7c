"""The unique keys of a few rows in the driver: their values in canonical form, the rows that repeat a key, the stored rows that have one.

Called by `uniqueness`, by `new_rows` for the keys that a transaction claims, and by `on_conflict`. The index is one of columns
(`Index.by_columns`). Rows with a NULL in the key, and rows outside a partial index, have no key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Index, Relation
from headgate.changes import lookup
from headgate.commands import stored_expression
from headgate.expression import columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.spark import compiler
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers


def of_rows(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the key columns k0, k1, … and `place`, the row number, of the rows that have a key."""
    key = lookup.key_of(relation, index.attnums)
    arrays = [lookup.canonical_array(buffers.whole(rows.column(name)), kind) for name, kind in zip(key.names, key.kinds, strict=True)]
    table = pa.table([*arrays, pa.array(np.arange(rows.num_rows))], names=[*_names(index), "place"])
    valid = None if index.predicate is None else _are_included(transaction, relation, index.predicate, rows)
    for array in arrays:
        valid = array.is_valid() if valid is None else pc.and_(valid, array.is_valid())
    return table if valid is None else table.filter(valid)


def _are_included(transaction: Transaction, relation: Relation, predicate: str, rows: pa.Table) -> pa.Array:
    """Return which rows meet the predicate of a partial index: by Arrow, or by Spark if Arrow has no form of it for these values."""
    condition = stored_expression.indexed(predicate, relation)
    if not columnwise.is_known(condition):
        return _are_included_to_spark(transaction, relation, predicate, rows)
    columns = {column.name: buffers.whole(rows.column(column.name)) for column in relation.columns}
    try:
        return columnwise.condition(condition, columns, rows.num_rows)
    except NotColumnwise:
        return _are_included_to_spark(transaction, relation, predicate, rows)


def _are_included_to_spark(transaction: Transaction, relation: Relation, predicate: str, rows: pa.Table) -> pa.Array:
    frame = local_frame(transaction.engine.spark, rows.select([column.name for column in relation.columns]), spark_columns(relation))
    included = frame.select(is_included(relation, predicate).alias("included"))
    return buffers.whole(included.toArrow().column("included"))


def is_included(relation: Relation, predicate: str) -> Column:
    """Return whether a row of a frame with the relation's columns meets the predicate of a partial index."""
    places = {column.name: F.col(quoted(column.name)) for column in relation.columns}
    return compiler.condition(stored_expression.indexed(predicate, relation), places)


def distinct(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Return the distinct keys of the rows, and the first row of each."""
    first = of_rows(transaction, relation, index, rows).group_by(_names(index), use_threads=False).aggregate([("place", "min")])
    return first.select(_names(index)), first["place_min"].combine_chunks()


def repeated(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> list[int]:
    """Return the rows that have the key of an earlier row."""
    keys = of_rows(transaction, relation, index, rows)
    firsts = set(keys.group_by(_names(index), use_threads=False).aggregate([("place", "min")])["place_min"].to_pylist())
    return [place for place in keys["place"].to_pylist() if place not in firsts] if len(firsts) < keys.num_rows else []


def stored(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the stored rows that have the key of a new row: `place` (the first such row), `old` struct, `file`, `row`."""
    keys, firsts = distinct(transaction, relation, index, rows)
    matches = lookup.find(transaction, relation, lookup.key_of(relation, index.attnums), keys)
    if index.predicate is not None and matches.num_rows:
        old = pa.Table.from_struct_array(buffers.whole(matches.column("old")))
        matches = matches.filter(_are_included(transaction, relation, index.predicate, old))
    return matches.append_column("place", firsts.take(matches["i"]))


def _names(index: Index) -> list[str]:
    return [f"k{number}" for number in range(len(index.attnums))]
