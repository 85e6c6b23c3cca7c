"""The unique keys of a few rows in the driver: their values in canonical form, the rows that repeat a key, the stored rows that have one.

Called by `uniqueness`, by `new_rows` for the keys that a transaction claims, and by `on_conflict`. Rows outside a partial index have no
key, and neither have rows with a NULL in the key, unless the index has NULLS NOT DISTINCT.

Stored rows are found in one of three ways:

    lookup    the key consists of columns: `lookup` reads only the files that may have one of the values
    scan      the key has an expression that Arrow can evaluate: its columns are read from all files, which takes 0.1 s for 500,000 rows
    Spark     Arrow has no form of the expression, or of a value at hand: a job over the whole table
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headgate.catalog.relation.relation import Index, Relation
from headgate.changes import lookup
from headgate.commands.constraint import index_key
from headgate.expression import columnwise
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import ColumnRef, Expression, walk
from headgate.expression.spark import compiler
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.storage.write import columns as spark_columns
from headgate.types import buffers
from headgate.types.storage import own_name

_PLACE = own_name("_place")


def of_rows(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the key columns k0, k1, … and `place`, the row number, of the rows that have a key."""
    expressions = index_key.expressions(relation, index)
    arrays = _canonical(expressions, (_value(transaction, relation, expression, rows) for expression in expressions))
    masks = [] if index.nulls_not_distinct else [array.is_valid() for array in arrays]
    if index.predicate is not None:
        masks.append(_are_included(transaction, relation, index, rows))
    keys = pa.table([*arrays, pa.array(np.arange(rows.num_rows))], names=[*_names(index), "place"])
    return keys.filter(functools.reduce(pc.and_, masks)) if masks else keys


def shown(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the keys of rows as they are shown to a user, in the columns v0, v1, …."""
    key = enumerate(index_key.expressions(relation, index))
    return pa.table({f"v{place}": _value(transaction, relation, expression, rows) for place, expression in key})


def _are_included(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Array:
    """Return which rows meet the predicate of a partial index."""
    condition = index_key.predicate(relation, index)
    assert condition is not None
    return pc.fill_null(_value(transaction, relation, condition, rows), pa.scalar(False))


def _value(transaction: Transaction, relation: Relation, expression: Expression, rows: pa.Table) -> pa.Array:
    """Return the value of an expression for each row: by Arrow, or by Spark if Arrow has no form of it for these values."""
    if isinstance(expression, ColumnRef):
        return buffers.whole(rows.column(expression.name))
    if columnwise.is_known(expression):
        try:
            return columnwise.value(expression, _by_name(rows), rows.num_rows)
        except NotColumnwise:
            pass
    frame = local_frame(transaction.storage.spark, rows.select([column.name for column in relation.columns]), spark_columns(relation))
    places = {column.name: F.col(quoted(column.name)) for column in relation.columns}
    return buffers.whole(frame.select(compiler.compile(expression, places).alias("value")).toArrow().column("value"))


def _by_name(rows: pa.Table | pa.RecordBatch) -> Mapping[str, pa.Array]:
    return {name: buffers.whole(rows.column(name)) for name in rows.schema.names}


def _canonical(expressions: Sequence[Expression], values: Iterable[pa.Array]) -> list[pa.Array]:
    kinds = [lookup.kind_of(expression.type.oid, expression.type.typmod) for expression in expressions]
    return [lookup.canonical_array(value, kind) for value, kind in zip(values, kinds, strict=True)]


def distinct(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    first = of_rows(transaction, relation, index, rows).group_by(_names(index), use_threads=False).aggregate([("place", "min")])
    return first.select(_names(index)), first["place_min"].combine_chunks()


def repeated(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> list[int]:
    keys = of_rows(transaction, relation, index, rows)
    firsts = set(keys.group_by(_names(index), use_threads=False).aggregate([("place", "min")])["place_min"].to_pylist())
    return [place for place in keys["place"].to_pylist() if place not in firsts] if len(firsts) < keys.num_rows else []


def stored(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the stored rows that have the key of a new row: `place` (the first such row), `old` struct, `file`, `row`."""
    keys, firsts = distinct(transaction, relation, index, rows)
    if not index.expressions:
        matches = lookup.find(transaction, relation, lookup.key_of(relation, index.attnums), keys)
    elif not keys.num_rows:
        return lookup.no_rows(relation).rename_columns(["place", "old", "file", "row"])
    else:
        try:
            matches = _scanned(transaction, relation, index, keys)
        except NotColumnwise:
            return _by_spark(transaction, relation, index, rows.take(firsts).append_column(_PLACE, firsts))
    if index.predicate is not None and matches.num_rows:
        old = pa.Table.from_struct_array(buffers.whole(matches.column("old")))
        matches = matches.filter(_are_included(transaction, relation, index, old))
    return matches.append_column("place", firsts.take(matches["i"]))


def _scanned(transaction: Transaction, relation: Relation, index: Index, keys: pa.Table) -> pa.Table:
    """Return the stored rows whose key is in `keys`, like `lookup.find`. Raise `NotColumnwise` if Arrow cannot evaluate the key."""
    expressions = index_key.expressions(relation, index)
    if relation.is_partitioned or index.nulls_not_distinct or not all(map(columnwise.is_known, expressions)):
        raise NotColumnwise(index.name)
    names = sorted({part.name for expression in expressions for part in walk(expression) if isinstance(part, ColumnRef)})
    table = transaction.reader.table(relation)
    numbered = keys.append_column("i", pa.array(np.arange(keys.num_rows)))
    parts = [lookup.no_rows(relation)]
    for group in table.groups(transaction.reader.newest(relation)):
        found = _in_group(expressions, group.pieces(names), numbered)
        if found.num_rows:
            rows = pa.Table.from_batches(list(group.pieces([column.name for column in relation.columns]))).take(found["at"])
            old = pa.StructArray.from_arrays([buffers.whole(column) for column in rows.columns], fields=list(rows.schema))
            file, row = pa.repeat(pa.scalar(table.uri(group.name)), len(old)), pa.array(group.numbers()).take(buffers.whole(found["at"]))
            parts.append(pa.table([found["i"], old, file, row], schema=parts[0].schema))
    return pa.concat_tables(parts)


def _in_group(expressions: Sequence[Expression], pieces: Iterable[pa.RecordBatch], keys: pa.Table) -> pa.Table:
    """Return `i`, the row of `keys`, and `at`, the number of the row, for each row of a row group that has one of the keys."""
    names = keys.column_names[: len(expressions)]
    parts, first = [keys.rename_columns([*names, "at"]).slice(0, 0)], 0
    for piece in pieces:
        columns = _by_name(piece)
        values = _canonical(expressions, (columnwise.value(expression, columns, piece.num_rows) for expression in expressions))
        rows = pa.table([*values, pa.array(np.arange(first, first + piece.num_rows))], names=[*names, "at"])
        for name in names:
            rows = rows.filter(pc.is_in(rows[name], keys[name]))  # leaves few rows for the join
        parts.append(rows)
        first += piece.num_rows
    return pa.concat_tables(parts).join(keys, names, join_type="inner").select(["i", "at"]).sort_by("at")


def _by_spark(transaction: Transaction, relation: Relation, index: Index, rows: pa.Table) -> pa.Table:
    """Return the stored rows that have the key of one of the rows, like `stored`. `rows` has the place of each row in _PLACE."""
    row = spark_columns(relation)
    new = local_frame(transaction.storage.spark, rows, StructType([*row.fields, StructField(_PLACE, LongType())]))
    with transaction.snapshot.seeing_newest():
        there = transaction.reader.positions(relation)
    old = F.struct(*[F.col(quoted(name)) for name in row.fieldNames()]).alias("old")
    kept = index_key.keyed(relation, index, there, old, F.col(FILE).alias("file"), F.col(ROW).alias("row"))
    names = _names(index)
    keys = index_key.keyed(relation, index, new, F.col(_PLACE).alias("place")).select(
        "place", *[F.col(name).alias(f"n_{name}") for name in names]
    )
    is_same = index_key.is_same(index, [F.col(name) for name in names], [F.col(f"n_{name}") for name in names])
    matches = kept.join(F.broadcast(keys), is_same).select("place", "old", "file", "row").toArrow()
    return matches.cast(lookup.no_rows(relation).rename_columns(["place", "old", "file", "row"]).schema)


def _names(index: Index) -> list[str]:
    return [f"k{number}" for number in range(len(index.attnums))]
