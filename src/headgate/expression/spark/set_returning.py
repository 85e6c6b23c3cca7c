"""Set-returning functions: the rows of one call as an array of structs of texts, which the planner explodes.

Called by the query planner, for functions in FROM and in a SELECT list. A function of `functions.set_returning` gets the arguments as texts
and gives a list of rows; a row that failed is one whose first field is the failure, which is raised where the value is read (`value_of`).
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
from headgate.expression.implementation.set_returning import SETS
from headgate.expression.node import FuncExpr, TypeRef
from headgate.expression.spark.array_element import as_item, item_rep, plain
from headgate.expression.spark.session_time import forms
from headgate.expression.spark.value import FAILED, TEXT, Env, Make, Value, arrow_function, fail, refuse_function, settle
from headgate.expression.spark.vectorised import KEPT, call
from headgate.types import registry


@dataclass(frozen=True)
class SetColumn:
    """A column of what a set-returning function gives. `name` is empty where the function's alias names it."""

    name: str
    type: TypeRef


@dataclass(frozen=True)
class Set:
    """The planned call: its columns, and its rows as a Column of array<struct<v0: string, …>>."""

    columns: tuple[SetColumn, ...]
    rows: Make


def known(key: str) -> bool:
    """Whether a function with this key can be planned."""
    found = SETS.get(key)
    return found is not None and found.rows is not None


def build(node: FuncExpr, args: Sequence[Value]) -> Set:
    """The rows of a call whose arguments are planned."""
    found = builtin.function(node.function)
    known = SETS.get(found.key)
    if known is None or known.rows is None:
        raise refuse_function(found, f"the set-returning function {found.name}")
    columns = tuple(SetColumn(name, _typed(kind)) for name, kind in known.columns) or (SetColumn("", node.type),)
    items = [settle(as_item(value, each.type)) for value, each in zip(args, node.args, strict=True)]
    run = functools.partial(known.rows, forms().timezone) if known.in_zone else known.rows
    rows = _row_function(run, found.key, len(columns), strict=found.strict)

    def make(env: Env) -> Column:
        return rows(*(env.needed(each(env)) for each in items))

    return Set(columns, make)


def _typed(kind: int) -> TypeRef:
    return TypeRef(kind, -1, registry.by_oid(kind).collation)


def _row_function(run: Callable[..., Rows], name: str, width: int, *, strict: bool) -> Callable[..., Column]:
    names = [f"v{place}" for place in range(width)]
    shape = pa.list_(pa.struct([(name, pa.string()) for name in names]))

    def rows(*columns: pa.Array) -> pa.Array:
        done = [_one(run, row, names, strict=strict) for row in zip(*(each.to_pylist() for each in columns), strict=True)]
        return pa.array(done, shape)

    rows.__name__ = name
    return arrow_function(rows, ArrayType(StructType([StructField(name, StringType()) for name in names])))


def _one(
    run: Callable[..., Rows], row: tuple[str | None, ...], names: Sequence[str], *, strict: bool
) -> list[dict[str, str | None]] | None:
    if strict and None in row:
        return None
    try:
        return [dict(zip(names, map(_kept, each), strict=True)) for each in run(*row)]
    except PostgresError as error:
        return [{names[0]: fail(error)}]


def _kept(text: str | None) -> str | None:
    """A text in-band: one that starts as a failure does stays what it is."""
    return KEPT + text if text is not None and text[:1] in (FAILED, KEPT) else text


def value_of(text: Column, kind: TypeRef) -> Column:
    """A field of an exploded row in the storage form of its type."""
    raw = Value(TEXT, lambda env: text, raw=lambda env: text)
    made = call(plain, item_rep(kind.oid), [raw], given=(kind.oid,))
    return settle(made)(Env({}))


def zipped(planned: Sequence[Set]) -> Make:
    """Several sets side by side: the shorter ones end in NULLs. The structs have fields s0, s1, …, each a row of its set."""

    def make(env: Env) -> Column:
        found = F.arrays_zip(*(F.coalesce(each.rows(env), F.array()).alias(f"s{place}") for place, each in enumerate(planned)))
        return F.transform(found, lambda row: F.struct(*(row[f"s{place}"].alias(f"s{place}") for place in range(len(planned)))))

    return make
