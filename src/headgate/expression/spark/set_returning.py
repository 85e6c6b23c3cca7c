"""Set-returning functions in Spark: the rows of one call as an array of structs of texts, which the planner explodes.

Called by the query planner, for functions in FROM and in a SELECT list. A function of `functions.set_returning` receives the arguments as
texts and returns a list of rows. In a row that failed, the first field is the failure, which is raised where the value is read
(`value_of`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.functions.set_returning import Rows
from headgate.expression.implementation.set_returning import SETS, columns_of
from headgate.expression.node import Expression, FuncExpr, TypeRef
from headgate.expression.spark.array_element import as_item, plain
from headgate.expression.spark.session_time import forms
from headgate.expression.spark.value import FAILED, TEXT, Env, Make, Value, arrow_function, fail, refuse_function, rep_of, settle
from headgate.expression.spark.vectorised import KEPT, call


@dataclass(frozen=True)
class SetColumn:
    """A column of the result of a set-returning function. `name` is empty if the function's alias names the column."""

    name: str
    type: TypeRef


@dataclass(frozen=True)
class Set:
    """The planned call: its columns, and its rows as a Column of array<struct<v0: string, …>>."""

    columns: tuple[SetColumn, ...]
    rows: Make


def has_form(node: Expression) -> bool:
    """Return whether Spark can compute the rows of a call."""
    entry = SETS.get(builtin.function(node.function).key) if isinstance(node, FuncExpr) else None
    return entry is not None and entry.rows is not None


def build(node: FuncExpr, args: Sequence[Value]) -> Set:
    """Return the rows of a call with planned arguments."""
    called = builtin.function(node.function)
    entry = SETS.get(called.key)
    if entry is None or entry.rows is None:
        raise refuse_function(called, f"the set-returning function {called.name}")
    columns = tuple(SetColumn(*column) for column in columns_of(node))
    items = [settle(as_item(value, arg.type)) for value, arg in zip(args, node.args, strict=True)]
    run = functools.partial(entry.rows, forms().timezone) if entry.in_zone else entry.rows
    rows = _row_function(run, called.key, len(columns), strict=called.strict)

    def make(env: Env) -> Column:
        return rows(*(env.needed(item(env)) for item in items))

    return Set(columns, make)


def _row_function(run: Callable[..., Rows], name: str, width: int, *, strict: bool) -> Callable[..., Column]:
    names = [f"v{place}" for place in range(width)]
    shape = pa.list_(pa.struct([(name, pa.string()) for name in names]))

    def rows(*columns: pa.Array) -> pa.Array:
        results = [_one(run, row, names, strict=strict) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
        return pa.array(results, shape)

    rows.__name__ = name
    return arrow_function(rows, ArrayType(StructType([StructField(name, StringType()) for name in names])))


def _one(
    run: Callable[..., Rows], row: tuple[str | None, ...], names: Sequence[str], *, strict: bool
) -> list[dict[str, str | None]] | None:
    if strict and None in row:
        return None
    try:
        return [dict(zip(names, map(_in_band, fields), strict=True)) for fields in run(*row)]
    except PostgresError as error:
        return [{names[0]: fail(error)}]


def _in_band(text: str | None) -> str | None:
    """Return a text in-band, with a prefix if it starts like a failure."""
    return KEPT + text if text is not None and text[:1] in (FAILED, KEPT) else text


def value_of(text: Column, kind: TypeRef) -> Column:
    """Return a field of an exploded row in the storage form of its type."""
    raw = Value(TEXT, lambda env: text, raw=lambda env: text)
    value = call(plain, rep_of(kind.oid), [raw], prefix=(kind.oid,))
    return settle(value)(Env({}))


def zipped(planned: Sequence[Set]) -> Make:
    """Return several sets side by side. Shorter ones are padded with NULLs. Struct fields s0, s1, … are each a row of one set."""

    def make(env: Env) -> Column:
        zipped_rows = F.arrays_zip(
            *(F.coalesce(planned_set.rows(env), F.array()).alias(f"s{place}") for place, planned_set in enumerate(planned))
        )
        return F.transform(zipped_rows, lambda row: F.struct(*(row[f"s{place}"].alias(f"s{place}") for place in range(len(planned)))))

    return make
