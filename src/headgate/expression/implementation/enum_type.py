"""Enum types: the order of their labels, casts from text, enum_first, enum_last and enum_range.

A value is stored as its label. The labels are those of the type registry that is active when an expression is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.implementation.implementation import SparkForm, Table, native
from headgate.expression.node import Expression, operands
from headgate.expression.spark.comparison import TESTS, label_place, labels
from headgate.expression.spark.value import BOOL, TEXT, Value, of_columns, refuse
from headgate.storage.spark.failure import marked, raised
from headgate.types import registry
from headgate.types.registry import PgType
from headgate.types.text import array


def read(value: Value, kind: PgType) -> Value:
    """Convert a text to an enum. It raises 22P02 for a text that is not a label."""

    def build(label: Column) -> Column:
        message = F.concat(F.lit(marked("22P02", f'invalid input value for enum {kind.plain}: "')), label, F.lit('"'))
        return F.when(F.isnull(label) | F.array_contains(labels(kind), label), label).otherwise(raised(message))

    return of_columns(TEXT, build, value)


def _kind(node: Expression) -> PgType:
    enum = registry.known().find(operands(node)[0].type.oid)
    if enum is None or enum.kind is not registry.TypeKind.ENUM:
        raise refuse("a function of enums", "the type of its argument is not known")
    return enum


def _first(node: Expression, args: Sequence[Value]) -> Value:
    kind = _kind(node)
    return Value(TEXT, lambda env: F.lit(kind.labels[0] if kind.labels else None).cast("string"))


def _last(node: Expression, args: Sequence[Value]) -> Value:
    kind = _kind(node)
    return Value(TEXT, lambda env: F.lit(kind.labels[-1] if kind.labels else None).cast("string"))


def _all(node: Expression, args: Sequence[Value]) -> Value:
    kind = _kind(node)
    shape = array.Shape([len(kind.labels)], [1]) if kind.labels else array.Shape([], [])
    labels_text = array.print_array(shape, list(kind.labels), ",")
    return Value(TEXT, lambda env: F.lit(labels_text))


def _bounds(node: Expression, args: Sequence[Value]) -> Value:
    """Return the form of enum_range(from, to), in which NULL stands for the first or the last label."""
    kind = _kind(node)
    quoted = F.array(*[F.lit(array.quoted(label, ",")) for label in kind.labels]) if kind.labels else F.array().cast("array<string>")

    def build(first: Column, last: Column) -> Column:
        low, high = F.coalesce(first, F.lit(1)), F.coalesce(last, F.lit(len(kind.labels)))
        selected = F.slice(quoted, low, F.greatest(high - low + 1, F.lit(0)))
        return F.concat(F.lit("{"), F.array_join(selected, ","), F.lit("}"))

    return of_columns(TEXT, build, *(label_place(arg, kind) for arg in args))


def _compare(name: str) -> SparkForm:
    """Return a comparison by the labels' positions, or by the labels themselves for = and <>."""
    if name in ("eq", "ne"):
        return native(BOOL, TESTS[name])
    return lambda node, args: of_columns(BOOL, TESTS[name], *(label_place(arg, _kind(node)) for arg in args))


IMPLEMENTATIONS: Table = {
    **{f"enum_{name}": _compare(name) for name in TESTS},
    "enum_first": _first,
    "enum_last": _last,
    "enum_range_all": _all,
    "enum_range_bounds": _bounds,
}
