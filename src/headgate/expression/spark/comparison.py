"""How values compare in Spark: the tests of two Columns, and the keys by which values order, group and join.

Called by `compiler`, its families and `implementation.comparison`, which has the operators. Strings compare by bytes, char(n) without
its trailing blanks, NaN equals NaN and is the greatest, numeric compares by value whatever its scale.
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
    MAX_PRECISION,
    TEXT,
    Env,
    Rep,
    Value,
    arrow_function,
    as_text,
    decimal,
)
from headgate.expression.spark.vectorised import call
from headgate.types import order, registry
from headgate.types.base import numeric
from headgate.types.base.base_types import BASE_TYPES

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
"""The collations that order text by its bytes: the database's, C, POSIX, ucs_basic, C.utf8; 0 is no collation at all."""


def comparable(oid: int) -> None:
    """Refuses a type whose order is not known here."""
    if not in_stored_order(oid):
        order.key_of(oid)


def in_stored_order(oid: int) -> bool:
    """Whether the stored form itself orders as the type does (char(n) and numeric in text aside, which have keys of their own)."""
    described = BASE_TYPES.get(oid)
    return described is not None and (described.in_order or oid in (registry.BPCHAR, registry.NUMERIC))


def _key(oid: int, item: str) -> bytes:
    return order.remembered(oid)(item)


def by_key(value: Value, oid: int) -> Value:
    """The value of a type stored as text, as what orders as it does: bytes, of an enum the place of its label."""
    kind = registry.known().find(oid)
    if kind is not None and kind.kind is registry.TypeKind.ENUM:
        return label_place(value, kind)
    return call(_key, BYTES, [value], given=(oid,), raises=False)


def label_place(value: Value, kind: registry.PgType) -> Value:
    """The place of a label among those of its type, from 1."""
    return Value(INT4, lambda env: F.array_position(labels(kind), value.make(env)).cast("int"))


def labels(kind: registry.PgType) -> Column:
    """The labels of an enum, in order."""
    return F.array(*[F.lit(each) for each in kind.labels]) if kind.labels else F.array().cast("array<string>")


def _key_bytes(texts: pa.Array) -> pa.Array:
    return pa.array([None if each is None else _number_key(each) for each in texts.to_pylist()], pa.binary())


def _number_key(text: str) -> bytes:
    return b"" if text.startswith(FAILED) else numeric.numeric_key(text)


def numeric_key(value: Value) -> Callable[[Env], Column]:
    """The bytes that order as the numeric does; a failure raises."""
    if value.constant is not None:
        key = numeric.numeric_key(value.constant)
        return lambda env: F.lit(bytearray(key))
    text = as_text(value)

    def make(env: Env) -> Column:
        def numeric_sort_key(texts: pa.Array) -> pa.Array:
            return _key_bytes(texts)

        made = text(env)
        key = arrow_function(numeric_sort_key, BinaryType())(env.needed(made, calm=value.calm))
        if not value.fallible:
            return key
        return F.when(made.startswith(FAILED), F.raise_error(F.substring(made, 2, 10_000)).cast("binary")).otherwise(key)

    return make


def equal_keys(value: Value, kind: TypeRef) -> Value:
    """The value as what orders, groups and joins as PostgreSQL's default operator class does."""
    kind = TypeRef(*registry.known().base(kind.oid, kind.typmod), kind.collation)
    comparable(kind.oid)
    if value.rep == DIGITS:
        return Value(BYTES, numeric_key(value))
    if kind.oid == registry.BPCHAR:
        return Value(TEXT, lambda env: F.rtrim(value.make(env)))
    if kind.oid in (registry.FLOAT4, registry.FLOAT8):
        return Value(value.rep, lambda env: value.make(env) + F.lit(0).cast("float" if kind.oid == registry.FLOAT4 else "double"))
    return value if in_stored_order(kind.oid) else by_key(value, kind.oid)


def numeric_test(name: str, left: Value, right: Value) -> Value:
    """A comparison of two numerics."""
    test, (one, other) = TESTS[name], numeric_keys(left, right)
    return Value(BOOL, lambda env: test(one.make(env), other.make(env)))


def numeric_keys(left: Value, right: Value) -> tuple[Value, Value]:
    """What two numerics are compared by: as decimals where both fit, else the bytes that order as they do."""
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
    """left < right for two values of one type."""
    if not in_stored_order(oid):
        left, right = by_key(left, oid), by_key(right, oid)
    elif oid == registry.BPCHAR:
        return Value(BOOL, lambda env: F.rtrim(left.make(env)) < F.rtrim(right.make(env)))
    if left.rep.name in ("decimal", "digits"):
        return numeric_test("lt", left, right)
    return Value(BOOL, lambda env: left.make(env) < right.make(env))
