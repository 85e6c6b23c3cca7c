"""Comparison of values in Spark: the tests of two Columns, and the keys by which values order, group and join.

Called by `compiler`, the modules of each type and `implementation.comparison`, which has the operators. Strings compare by bytes, and
char(n) without its trailing blanks. NaN equals NaN and is the greatest value. numeric compares by value, whatever its scale.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from headgate.expression.node import TypeRef
from headgate.expression.spark.value import (
    BOOL,
    BYTES,
    DIGITS,
    FAILED,
    INT4,
    TEXT,
    Env,
    Rep,
    Value,
    arrow_function,
    as_text,
    decimal,
    of_columns,
)
from headgate.expression.spark.vectorised import call
from headgate.types import order, registry
from headgate.types.base import numeric
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.typmod import MAX_PRECISION

Test = Callable[[Column, Column], Column]
TESTS: dict[str, Test] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
C_COLLATIONS = frozenset({0, 100, 950, 951, 12340, 12341})
"""The collations that order text by its bytes: the database's, C, POSIX, ucs_basic, C.utf8. 0 means no collation."""


def comparable(oid: int) -> None:
    """Raise an error for a type whose order is not implemented."""
    if not in_stored_order(oid):
        order.key_of(oid)


def in_stored_order(oid: int) -> bool:
    """Return whether the stored form orders as the type does. True for char(n) and numeric, which callers handle by keys of their own."""
    base_type = BASE_TYPES.get(oid)
    return base_type is not None and (base_type.in_order or oid in (registry.BPCHAR, registry.NUMERIC))


def _key(oid: int, item: str) -> bytes:
    return order.remembered(oid)(item)


def by_key(value: Value, oid: int) -> Value:
    """Return a value of a type stored as text as a value that sorts like it: bytes, or for an enum the position of its label."""
    kind = registry.known().find(oid)
    if kind is not None and kind.kind is registry.TypeKind.ENUM:
        return label_place(value, kind)
    return call(_key, BYTES, [value], prefix=(oid,), raises=False)


def label_place(value: Value, kind: registry.PgType) -> Value:
    """Return the position of a label among those of its type, counted from 1."""
    return Value(INT4, lambda env: F.array_position(labels(kind), value.make(env)).cast("int"))


def labels(kind: registry.PgType) -> Column:
    """Return the labels of an enum as an array, in their order."""
    return F.array(*[F.lit(label) for label in kind.labels]) if kind.labels else F.array().cast("array<string>")


def _sort_key_of_numeric(texts: pa.Array) -> pa.Array:
    return pa.array([None if digits is None else _number_key(digits) for digits in texts.to_pylist()], pa.binary())


def _number_key(text: str) -> bytes:
    return b"" if text.startswith(FAILED) else numeric.numeric_key(text)


def numeric_key(value: Value) -> Callable[[Env], Column]:
    """Return a builder of the bytes that order as the numeric does. If the value is an in-band failure, its error is raised."""
    if value.constant is not None:
        key = numeric.numeric_key(value.constant)
        return lambda env: F.lit(bytearray(key))
    text = as_text(value)

    def make(env: Env) -> Column:
        digits = text(env)
        key = arrow_function(_sort_key_of_numeric, BinaryType())(env.needed(digits, calm=value.calm))
        if not value.fallible:
            return key
        return F.when(digits.startswith(FAILED), F.raise_error(F.substring(digits, 2, 10_000)).cast("binary")).otherwise(key)

    return make


def equal_keys(value: Value, kind: TypeRef) -> Value:
    """Return a value that orders, groups and joins as PostgreSQL's default operator class does."""
    kind = TypeRef(*registry.known().base(kind.oid, kind.typmod), kind.collation)
    comparable(kind.oid)
    if value.rep == DIGITS:
        return Value(BYTES, numeric_key(value))
    if kind.oid == registry.BPCHAR:
        return of_columns(TEXT, F.rtrim, value)
    if kind.oid in (registry.FLOAT4, registry.FLOAT8):
        width = "float" if kind.oid == registry.FLOAT4 else "double"
        return of_columns(value.rep, lambda column: column + F.lit(0).cast(width), value)
    return value if in_stored_order(kind.oid) else by_key(value, kind.oid)


def numeric_test(name: str, left: Value, right: Value) -> Value:
    test, (left_key, right_key) = TESTS[name], numeric_keys(left, right)
    return of_columns(BOOL, test, left_key, right_key)


def numeric_keys(left: Value, right: Value) -> tuple[Value, Value]:
    """Return the values by which two numerics are compared: decimals if both fit, otherwise bytes that sort as they do."""
    if left.rep.name == "decimal" and right.rep.name == "decimal":
        scale = max(left.rep.scale, right.rep.scale)
        whole = max(left.rep.whole, right.rep.whole)
        if whole + scale <= MAX_PRECISION:
            target = decimal(whole + scale, scale)
            return Value(target, _widen(left, target)), Value(target, _widen(right, target))
    return Value(BYTES, numeric_key(left)), Value(BYTES, numeric_key(right))


def _widen(value: Value, target: Rep) -> Callable[[Env], Column]:
    if value.rep == target:
        return value.make
    if value.constant is not None:
        constant = Decimal(value.constant)
        return lambda env: F.lit(constant).cast(f"decimal({target.precision},{target.scale})")
    return lambda env: value.make(env).cast(f"decimal({target.precision},{target.scale})")


def less(left: Value, right: Value, oid: int) -> Value:
    """Return left < right for two values of one type."""
    if not in_stored_order(oid):
        left, right = by_key(left, oid), by_key(right, oid)
    elif oid == registry.BPCHAR:
        return of_columns(BOOL, lambda a, b: F.rtrim(a) < F.rtrim(b), left, right)
    if left.rep.name in ("decimal", "digits"):
        return numeric_test("lt", left, right)
    return of_columns(BOOL, Column.__lt__, left, right)


def directed(key: Column, *, descending: bool, nulls_first: bool) -> Column:
    """Return a sort key with its direction, for Spark's ORDER BY."""
    if descending:
        return key.desc_nulls_first() if nulls_first else key.desc_nulls_last()
    return key.asc_nulls_first() if nulls_first else key.asc_nulls_last()
