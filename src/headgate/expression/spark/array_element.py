"""Convert elements of arrays from and to the text that their type's output function prints.

Used by `implementation.array`. Elements of all types are stored as text, in the form that depends on no setting (timestamptz in UTC,
dates in ISO), while a value of the same type outside an array may be a number or a date.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import functions as F

from headgate.expression.node import TypeRef
from headgate.expression.spark.cast import text_form
from headgate.expression.spark.value import TEXT, Value, rep_of
from headgate.types import order, registry
from headgate.types.text import text
from headgate.types.text_column import PLAIN

_AS_THEY_ARE = frozenset(
    {registry.TEXT, registry.VARCHAR, registry.BPCHAR, registry.NAME, registry.UUID, registry.JSON, registry.JSONB, registry.UNKNOWN}
)


def as_item(value: Value, kind: TypeRef) -> Value:
    if value.is_null:
        return Value(TEXT, lambda env: F.lit(None).cast("string"), is_null=True)
    if value.constant is not None:
        item_text = _normal(value.constant, kind.oid)
        return Value(TEXT, lambda env: F.lit(item_text), constant=item_text)
    return text_form(value, kind, PLAIN)


def _normal(constant: str, oid: int) -> str:
    if oid in _AS_THEY_ARE or "infinity" in constant:
        return constant
    return text.normal_form(constant, oid)


def plain(oid: int, item: str) -> object:
    """Return the plain value (see `vectorised`) of an element's text."""
    return _reader(oid)(item)


@functools.cache
def _reader(oid: int) -> Callable[[str], object]:
    name = rep_of(oid).name
    if name in ("text", "digits"):
        return str
    if name == "bool":
        return lambda item: item == "t"
    if name == "bytes":
        return lambda item: bytes.fromhex(item[2:])
    if name in ("float4", "float8"):
        return float
    if name in ("int2", "int4", "int8"):
        return int
    width = pa.int32() if name == "date" else pa.int64()
    return lambda item: text.read_scalar(item, oid).cast(width).as_py()


def key(oid: int) -> Callable[[str], bytes]:
    """Return the sort key function of a type (see `headgate.types.order`), with a small cache of keys."""
    return order.remembered(oid)
