"""Constants: the Column of a literal, and its text for values that are computed when an expression is planned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.implementation.number.numeric import spark_decimal
from headgate.expression.node import Const
from headgate.expression.spark.value import DIGITS, SPARK, TEXT, Value, decimal, rep_of
from headgate.types import registry
from headgate.types.text import text
from headgate.types.text_column import TextSettings
from headgate.types.typmod import MAX_PRECISION

_ANOTHER_ZONE = TextSettings(timezone="Etc/GMT+12")


def constant(node: Const) -> Value:
    """Return a constant in its representation. numeric is a decimal of its own digits, or text (NaN, more than 38 digits)."""
    oid = node.type.oid
    if registry.known().base(oid)[0] == registry.NUMERIC:
        return _numeric_constant(node.value)
    rep = rep_of(oid, node.type.typmod)
    if node.value is None:
        return Value(rep, lambda env: F.lit(None).cast(SPARK[rep.name]), is_null=True)
    literal_text = node.value
    make_column = _text_literal(literal_text, oid) if rep == TEXT else _LITERALS[rep.name](literal_text)
    return Value(rep, lambda env: make_column(), constant=literal_text)


@contextlib.contextmanager
def numerics_as_text() -> Iterator[None]:
    """Within the block constants of numeric are digits, so that Python computes what is made of them."""
    token = _as_text.set(True)
    try:
        yield
    finally:
        _as_text.reset(token)


_as_text: ContextVar[bool] = ContextVar("whether constants of numeric are digits", default=False)


def _numeric_constant(shown: str | None) -> Value:
    if _as_text.get():
        return Value(DIGITS, lambda env: F.lit(shown), constant=shown, is_null=shown is None)
    if shown is None:
        return Value(decimal(1, 0), lambda env: F.lit(None).cast("decimal(1,0)"), is_null=True)
    exact = Decimal(shown)
    if exact.is_finite():
        exponent = exact.as_tuple().exponent
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        precision = max(len(exact.as_tuple().digits), scale, 1)
        if precision <= MAX_PRECISION:
            rep = decimal(precision, scale)
            return Value(rep, lambda env: F.lit(exact).cast(spark_decimal(rep)), constant=shown)
    return Value(DIGITS, lambda env: F.lit(shown), constant=shown)


def _text_literal(shown: str, oid: int) -> Callable[[], Column]:
    stored_text = text.read_scalar(shown, oid).as_py() if text.depends_on(oid, _ANOTHER_ZONE) else shown  # instants are stored in UTC
    return lambda: F.lit(stored_text)


def _date_literal(shown: str) -> Callable[[], Column]:
    day = text.read_scalar(shown, registry.DATE)
    number = day.cast(pa.int32()).as_py()
    return lambda: F.date_from_unix_date(F.lit(number))


def _moment_literal(oid: int) -> Callable[[str], Callable[[], Column]]:
    def literal(shown: str) -> Callable[[], Column]:
        micros = text.read_scalar(shown, oid).cast(pa.int64()).as_py()
        if oid == registry.TIMESTAMPTZ:
            return lambda: F.timestamp_micros(F.lit(micros).cast("bigint"))
        return lambda: to_timestamp(F.lit(micros).cast("bigint"))

    return literal


def to_timestamp(micros: Column) -> Column:
    """Convert microseconds since 1970 to a timestamp without time zone, in the session's zone, which is UTC."""
    return F.timestamp_micros(micros).cast("timestamp_ntz")


def _float_literal(kind: str) -> Callable[[str], Callable[[], Column]]:
    return lambda shown: lambda: F.lit(shown).cast(kind)


_LITERALS: dict[str, Callable[[str], Callable[[], Column]]] = {
    "bool": lambda shown: lambda: F.lit(shown == "t"),
    "int2": lambda shown: lambda: F.lit(int(shown)).cast("smallint"),
    "int4": lambda shown: lambda: F.lit(int(shown)).cast("int"),
    "int8": lambda shown: lambda: F.lit(int(shown)).cast("bigint"),
    "float4": _float_literal("float"),
    "float8": _float_literal("double"),
    "bytes": lambda shown: lambda: F.lit(bytearray.fromhex(shown.removeprefix("\\x"))),
    "date": _date_literal,
    "timestamp": _moment_literal(registry.TIMESTAMP),
    "timestamptz": _moment_literal(registry.TIMESTAMPTZ),
}
