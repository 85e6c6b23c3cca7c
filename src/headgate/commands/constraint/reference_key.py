"""The keys of foreign key references: extract them from the rows of a statement, and look them up in a table.

Called by `referential_action`. A key's values are columns v0, v1, … of `Rows`, its new values n0, n1, ….
A few keys are looked up in the files (`changes.lookup`). Many keys, or keys of types that only PostgreSQL's operators compare, are joined
on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation.relation import Column, Relation
from headgate.changes import lookup
from headgate.commands import stored_expression
from headgate.expression.binding import operators
from headgate.expression.binding.coercion import coerce_type
from headgate.expression.binding.coercion_pathway import Reach
from headgate.expression.binding.context import BindContext
from headgate.expression.node import ColumnRef, Expression, OpExpr
from headgate.expression.spark import compiler
from headgate.storage import row_set
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.row_set import Rows
from headgate.storage.spark.column_name import quoted
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.transaction.transaction import Transaction
from headgate.types import buffers, registry
from headgate.types.storage import arrow_type
from headgate.types.text.text import write_text

FAMILIES = (
    {registry.INT2, registry.INT4, registry.INT8},
    {registry.FLOAT4, registry.FLOAT8},
    {registry.DATE, registry.TIMESTAMP, registry.TIMESTAMPTZ},
    {registry.TEXT, registry.VARCHAR, registry.NAME},
)
"""The btree operator families, as sets of types that are comparable with each other."""


def are_comparable(left: int, right: int) -> bool:
    """Return whether two base types are compared without a cast."""
    return left == right or any({left, right} <= family for family in FAMILIES)


def column_names(relation: Relation, attnums: Sequence[int]) -> list[str]:
    return [column.name for column in relation.columns_at(attnums)]


def of_rows(rows: Rows, relation: Relation, attnums: Sequence[int]) -> Rows:
    """Return the key's values as v0, v1, … from rows with the relation's columns."""
    return row_set.project(rows, {f"v{place}": name for place, name in enumerate(column_names(relation, attnums))})


def of_struct(rows: Rows, side: str, names: Sequence[str], other_side: str | None = None) -> Rows:
    """Return the key's values as v0, v1, … from the struct `side`, and as n0, n1, … from the struct `other_side`."""
    sides = {"v": side} if other_side is None else {"v": side, "n": other_side}
    return row_set.project(rows, {f"{to}{place}": (of, name) for to, of in sides.items() for place, name in enumerate(names)})


def value_names(attnums: Sequence[int]) -> list[str]:
    """Return the names of the columns of a key's values: v0, v1, …."""
    return [f"v{place}" for place in range(len(attnums))]


def shown(relation: Relation, attnums: Sequence[int], values: pa.Table) -> str:
    """Return the first key as messages show it: ``(a, b)=(1, 2)``."""
    parts = []
    for place, column in enumerate(relation.columns_at(attnums)):
        parts.append(str(write_text(buffers.whole(values[f"v{place}"].slice(0, 1)), column.type_oid)[0].as_py()))
    return f"({', '.join(column_names(relation, attnums))})=({', '.join(parts)})"


def missing(
    transaction: Transaction, relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], values: Rows
) -> Rows | None:
    """Return the keys of `values` (in the columns of `relation`) that no row of `target` has, or None if there are none."""
    if isinstance(values, pa.Table):
        key_table = _distinct_keys(relation, columns, target, target_columns, values)
        if key_table is not None:
            keys, places = key_table
            matches = lookup.find(transaction, target, lookup.key_of(target, target_columns), keys)
            is_found = np.isin(places, matches["i"].to_numpy())
            missing_keys = values.filter(pa.array(~is_found))
            return missing_keys if missing_keys.num_rows else None
        values = local_frame(transaction.storage.spark, values)
    missing_frame = unmatched(transaction, relation, columns, target, target_columns, values)
    return None if missing_frame.limit(1).isEmpty() else missing_frame


def unmatched(
    transaction: Transaction, relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], values: DataFrame
) -> DataFrame:
    """Return the keys of `values` that no row of `target` has."""
    with transaction.snapshot.seeing_newest():
        rows = transaction.reader.frame(target)
    rows = rows.select(*[F.col(quoted(name)).alias(f"t{place}") for place, name in enumerate(column_names(target, target_columns))])
    return values.join(rows, _equal(relation, columns, target, target_columns, referenced="t"), "left_anti")


def referenced(
    transaction: Transaction, relation: Relation, key: Sequence[int], child: Relation, columns: Sequence[int], values: Rows
) -> pa.Table:
    """Return the first of the keys `values` (in the columns of `relation`) that a row of `child` references, or no row."""
    if isinstance(values, pa.Table):
        key_table = _distinct_keys(relation, key, child, columns, values)
        if key_table is not None:
            keys, places = key_table
            matches = lookup.find(transaction, child, lookup.key_of(child, columns), keys)
            return values.filter(pa.array(np.isin(places, matches["i"].to_numpy()))).slice(0, 1)
        values = local_frame(transaction.storage.spark, values)
    with transaction.snapshot.seeing_newest():
        rows = transaction.reader.frame(child)
    rows = rows.select(*[F.col(quoted(name)).alias(f"t{place}") for place, name in enumerate(column_names(child, columns))])
    return row_set.first(values.join(rows, _equal(relation, key, child, columns, referenced="v"), "left_semi"))


def rows_with(
    transaction: Transaction, child: Relation, columns: Sequence[int], relation: Relation, key: Sequence[int], values: Rows,
    *, keep: bool = False,
) -> Rows:  # fmt: skip
    """Return the rows of `child` that reference one of the keys `values`: `old`, `file`, `row`, and with `keep` the new keys n0, n1, …."""
    if isinstance(values, pa.Table):
        key_table = _distinct_keys(relation, key, child, columns, values)
        if key_table is not None:
            keys, places = key_table
            matches = lookup.find(transaction, child, lookup.key_of(child, columns), keys)
            if keep:
                first = np.full(keys.num_rows, -1, np.int64)
                is_known = places >= 0
                first[places[is_known]] = np.flatnonzero(is_known)
                source = pa.array(first[matches["i"].to_numpy()])
                for place in range(len(columns)):
                    matches = matches.append_column(f"n{place}", values[f"n{place}"].take(source))
            return matches.drop_columns(["i"])
        values = local_frame(transaction.storage.spark, values)
    with (
        transaction.snapshot.seeing_newest()
    ):  # a session that added a referencing row held the lock of the referenced table, for which this one has waited
        positions = transaction.reader.positions(child)
    rows = positions.select(
        F.struct(*[F.col(quoted(column.name)) for column in child.columns]).alias("old"),
        F.col(FILE).alias("file"),
        F.col(ROW).alias("row"),
        *[F.col(quoted(name)).alias(f"t{place}") for place, name in enumerate(column_names(child, columns))],
    )
    equal = _equal(relation, key, child, columns, referenced="v")
    new_keys = [f"n{place}" for place in range(len(columns))] if keep else []
    if not keep:
        return rows.join(values, equal, "left_semi").select("old", "file", "row")
    return rows.join(values, equal).select("old", "file", "row", *new_keys).dropDuplicates(["file", "row"])


def _distinct_keys(
    relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], values: pa.Table
) -> tuple[pa.Table, NDArray[np.int64]] | None:
    """Return the distinct keys k0, k1, … for `lookup.find`, and the place of each of `values` among them (-1: it cannot exist).

    Return None if the types differ in more than the width of an integer. Spark then compares the keys.
    """
    key = lookup.key_of(target, target_columns)
    arrays = []
    fits = np.ones(values.num_rows, bool)
    for place, (mine, theirs) in enumerate(zip(relation.columns_at(columns), target.columns_at(target_columns), strict=True)):
        array, wide = buffers.whole(values[f"v{place}"]), arrow_type(theirs.type_oid, theirs.typmod)
        if array.type != wide:
            if not (pa.types.is_integer(array.type) and pa.types.is_integer(wide)):
                return None
            limit = 2 ** (wide.bit_width - 1)
            inside = pc.and_(pc.greater_equal(array, -limit), pc.less(array.cast(pa.int64()), limit) if wide.bit_width < 64 else True)
            fits &= np.asarray(inside)
            array = pc.if_else(inside, array, 0).cast(wide)
        elif mine.type_oid != theirs.type_oid and registry.BPCHAR in (mine.type_oid, theirs.type_oid):
            return None
        arrays.append(lookup.canonical_array(array, key.kinds[place]))
    names = [f"k{place}" for place in range(len(arrays))]
    table = pa.table([*arrays, pa.array(np.arange(values.num_rows))], names=[*names, "at"]).filter(pa.array(fits))
    distinct = table.group_by(names, use_threads=False).aggregate([("at", "list")])
    places = np.full(values.num_rows, -1, np.int64)
    lists = buffers.whole(distinct["at_list"])
    if len(lists):
        places[lists.flatten().to_numpy()] = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
    return distinct.select(names), places


def _equal(
    relation: Relation, columns: Sequence[int], target: Relation, target_columns: Sequence[int], *, referenced: str
) -> SparkColumn:  # fmt: skip
    """Return the condition that the keys v0, v1, … and t0, t1, … are equal by the operators of their types, for an equi-join of Spark.

    `referenced`: which of the two the constraint references, "v" or "t". The other is cast to its type if they have no common operator
    (ATAddForeignKeyConstraint).
    """
    context = stored_expression.context()
    condition: SparkColumn | None = None
    pairs = zip(relation.columns_at(columns), target.columns_at(target_columns), strict=True)
    for place, (left_column, right_column) in enumerate(pairs):
        left_key, right_key = f"v{place}", f"t{place}"
        theirs, mine = _operand(right_column, right_key), _operand(left_column, left_key)
        if referenced == "t":
            mine = _comparable(mine, theirs, context)
        else:
            theirs = _comparable(theirs, mine, context)
        test = operators.make(["="], theirs, mine, context, -1)
        mine_column, theirs_column = {left_key: F.col(left_key)}, {right_key: F.col(right_key)}
        assert isinstance(test, OpExpr)
        if test.args[0].type.oid == test.args[1].type.oid:
            one_key, other_key = compiler.join_keys(test.args[0], theirs_column, test.args[1], mine_column)
            part = one_key == other_key
        else:
            part = compiler.qual(test, mine_column | theirs_column)
        condition = part if condition is None else condition & part
    assert condition is not None
    return condition


def _operand(column: Column, key: str) -> Expression:
    return ColumnRef(type=stored_expression.type_of(column), name=column.name, attnum=column.attnum, key=key)


def _comparable(referencing: Expression, referenced: Expression, context: BindContext) -> Expression:
    """Return the value of a referencing column, cast to the type of the referenced column if only that makes them comparable."""
    own, other = context.base_type(referencing.type.oid), context.base_type(referenced.type.oid)
    if are_comparable(own, other):
        return referencing
    return coerce_type(referencing, registry.TEXT if other == registry.VARCHAR else other, Reach.IMPLICIT, context)
