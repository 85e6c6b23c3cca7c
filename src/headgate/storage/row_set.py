"""Rows of a statement: a few as an Arrow table in the driver, or many as a Spark frame, with the operations that rules about rows need.

Called by the rules in `commands.constraint` and `commands.dml.rows`, and by `partitioned`. A rule is written once, for `Rows`. Only this
module, and the second body that a rule has for speed, distinguish the two kinds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.storage.spark.column_name import quoted
from headgate.types import buffers

Rows: TypeAlias = pa.Table | DataFrame
Path: TypeAlias = str | tuple[str, str]
"""A column, or a field of a column of structs."""


def names(rows: Rows) -> list[str]:
    return list(rows.columns if isinstance(rows, DataFrame) else rows.column_names)


def project(rows: Rows, columns: Mapping[str, Path]) -> Rows:
    if isinstance(rows, DataFrame):
        return rows.select(*[F.col(_sql(path)).alias(name) for name, path in columns.items()])
    return pa.table([_array(rows, path) for path in columns.values()], names=list(columns))


def select(rows: Rows, chosen: Sequence[str]) -> Rows:
    return rows.select(*[F.col(quoted(name)) for name in chosen]) if isinstance(rows, DataFrame) else rows.select(chosen)


def without_null(rows: Rows, columns: Sequence[str]) -> Rows:
    if isinstance(rows, DataFrame):
        return functools.reduce(lambda frame, name: frame.where(F.col(quoted(name)).isNotNull()), columns, rows)
    return functools.reduce(lambda table, name: table.filter(table[name].is_valid()) if table[name].null_count else table, columns, rows)


def split_by_new(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows with NULL in the column `new`, and the others."""
    if isinstance(rows, DataFrame):
        return rows.where(F.col("new").isNull()), rows.where(F.col("new").isNotNull())
    return rows.filter(rows["new"].is_null()), rows.filter(rows["new"].is_valid())


def together(left: Rows, right: Rows) -> Rows:
    """Return the rows of both, which have the same columns."""
    return left.unionByName(right) if isinstance(left, DataFrame) else pa.concat_tables([left, right])


def with_some_null(rows: Rows, columns: Sequence[str]) -> Rows:
    if isinstance(rows, DataFrame):
        nulls = [F.col(quoted(name)).isNull() for name in columns]
        some, every = functools.reduce(lambda left, right: left | right, nulls), functools.reduce(lambda left, right: left & right, nulls)
        return rows.where(some & ~every)
    masks = np.array([np.asarray(rows[name].is_null()) for name in columns])
    return rows.filter(pa.array(masks.any(axis=0) & ~masks.all(axis=0)))


def differing(rows: Rows, fields: Sequence[str]) -> Rows:
    """Return the rows in which one of these fields differs between the structs `old` and `new`. NULL equals NULL, but -0 differs from 0."""
    if isinstance(rows, DataFrame):
        equal = [_exact(rows, ("old", name)).eqNullSafe(_exact(rows, ("new", name))) for name in fields]
        return rows.where(~functools.reduce(lambda left, right: left & right, equal, F.lit(True)))
    differs = np.zeros(rows.num_rows, bool)
    for name in fields:
        old, new = _array(rows, ("old", name)), _array(rows, ("new", name))
        both = pc.and_(old.is_null(), new.is_null())
        differs |= ~np.asarray(pc.or_(pc.fill_null(pc.equal(_bits(old), _bits(new)), False), both))
    return rows.filter(pa.array(differs))


def _exact(rows: DataFrame, path: tuple[str, str]) -> Column:
    """Return a column of which two values are equal only if they are the same: floating point as text."""
    column = F.col(_sql(path))
    return column.cast("string") if rows.select(column).dtypes[0][1] in ("float", "double") else column


def _bits(values: pa.Array) -> pa.Array:
    """Return floating point as integers of the same bits, other values as they are."""
    return values.view({32: pa.int32(), 64: pa.int64()}[values.type.bit_width]) if pa.types.is_floating(values.type) else values


def first(rows: Rows) -> pa.Table:
    return rows.limit(1).toArrow() if isinstance(rows, DataFrame) else rows.slice(0, 1)


def is_known_empty(rows: Rows) -> bool:
    """Return whether there are no rows. False for a frame, which would have to be computed."""
    return isinstance(rows, pa.Table) and not rows.num_rows


def _sql(path: Path) -> str:
    return quoted(path) if isinstance(path, str) else f"{path[0]}.{quoted(path[1])}"


def _array(rows: pa.Table, path: Path) -> pa.Array | pa.ChunkedArray:
    return rows[path] if isinstance(path, str) else buffers.field(buffers.whole(rows[path[0]]), path[1])
