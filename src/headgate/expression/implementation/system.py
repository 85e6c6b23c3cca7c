"""oid, "char" and pg_lsn, hashes, pg_typeof, and || with a value of any type. Comparison is in `spark.comparison`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from decimal import Decimal

from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression.duckdb import number
from headgate.expression.duckdb import text as duckdb_text
from headgate.expression.functions import network, numeric
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table
from headgate.expression.node import Expression, FuncExpr, OpExpr, TypeRef, walk
from headgate.expression.spark import session_time
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.cast import printed
from headgate.expression.spark.value import DIGITS, FLOAT8, INT4, INT8, TEXT, Make, Value, settle
from headgate.expression.spark.vectorised import call, scalar
from headgate.lsn import Lsn
from headgate.types import hashing, registry
from headgate.types.base.string import char_of
from headgate.types.text.text import depends_on


def to_oid(value: int) -> int:
    if not 0 <= value < 1 << 32:
        raise PostgresError("22003", "OID out of range")
    return value


def char_to_integer(text: str) -> int:
    """Return the byte of a "char" as a signed integer."""
    byte = int(text[1:], 8) if len(text) == 4 else ord(text or "\0")
    return byte - 256 if byte > 127 else byte


def integer_to_char(value: int) -> str:
    """Cast integer to "char"."""
    if not -128 <= value <= 127:
        raise PostgresError("22003", '"char" out of range')
    return f"\\{value + 256:03o}" if value < 0 else chr(value) if value else ""


def text_to_char(text: str) -> str:
    """Cast text to "char": the first byte."""
    return char_of(text) if text else ""


def lsn_difference(left: str, right: str) -> str:
    """Return pg_lsn - pg_lsn, in bytes."""
    return str(Lsn.parse(left) - Lsn.parse(right))


def move_lsn(sign: int, text: str, count: str) -> str:
    """Return pg_lsn + numeric, or with -1 as sign pg_lsn - numeric."""
    distance = Decimal(count)
    if distance.is_nan():
        raise PostgresError("0A000", f"cannot {'add NaN to' if sign > 0 else 'subtract NaN from'} pg_lsn")
    if distance.is_infinite():
        raise PostgresError("0A000", "cannot convert infinity to pg_lsn")
    moved = (numeric.add if sign > 0 else numeric.subtract)(str(int(Lsn.parse(text))), count)
    whole = Decimal(numeric.round_to(moved, 0))  # int() refuses texts of more than 4,300 digits
    if not 0 <= whole < 1 << 64:
        raise PostgresError("22023", "pg_lsn out of range")
    return str(Lsn(int(whole)))


def _type_name(node: Expression, args: Sequence[Value]) -> Value:
    assert isinstance(node, FuncExpr)
    type_text = registry.format_type(node.args[0].type.oid)
    return Value(TEXT, lambda env: F.lit(type_text), constant=type_text)


def _as_text(value: Value, kind: TypeRef) -> Make:
    """Cast a value to text. This differs from its output (``true``, ``10.0.0.1/32``)."""
    base, _ = registry.known().base(kind.oid)
    if base == registry.BOOL:
        return lambda env: value.make(env).cast("string")
    if base in (registry.INET, registry.CIDR):
        return settle(call(network.shown, TEXT, [value], raises=False))
    if base == registry.BPCHAR:
        return lambda env: F.rtrim(value.make(env))
    return settle(printed(value, kind) if depends_on(kind.oid, session_time.forms()) else as_item(value, kind))


def _concat(node: Expression, args: Sequence[Value]) -> Value:
    """Return ``x || text`` for any type."""
    assert isinstance(node, (FuncExpr, OpExpr))
    parts = [_as_text(value, argument.type) for value, argument in zip(args, node.args, strict=True)]
    return Value(TEXT, lambda env: F.concat(*(part(env) for part in parts)))


def _hash(oid: int) -> SparkForm:
    return lambda node, args: call(hashing.plain_hash, INT4, args, prefix=(oid,), raises=False, whole=True)


def _random(node: Expression, args: Sequence[Value]) -> Value:
    """Return random(). Columns built from the same call have the same seed, so that they have the same value for a row."""
    seed = secrets.randbits(63)
    return Value(FLOAT8, lambda env: F.rand(seed))


def _random_uuid(node: Expression, args: Sequence[Value]) -> Value:
    """Return gen_random_uuid()."""
    seed = secrets.randbits(63)
    return Value(TEXT, lambda env: F.uuid(seed))


VOLATILE = frozenset({"drandom", "gen_random_uuid"})
"""Functions with a new value for each row. A query computes them into a column first (`commands.query.clause.volatile_call`)."""


def is_volatile(node: Expression) -> bool:
    """Return whether a node is a call of one of these functions."""
    return isinstance(node, FuncExpr) and builtin.function(node.function).key in VOLATILE


def has_volatile(expression: Expression) -> bool:
    return any(map(is_volatile, walk(expression)))


IMPLEMENTATIONS: Table = {
    "drandom": Implementation(_random, duckdb="random()"),
    "gen_random_uuid": Implementation(_random_uuid, duckdb="CAST(uuid() AS VARCHAR)"),
    "pg_typeof": Implementation(_type_name, duckdb=lambda node, operands, args, env: f"CAST({operands[0].type.oid} AS UINTEGER)"),
    "anytextcat/2776,25": Implementation(_concat, duckdb=duckdb_text.beside),
    "textanycat/25,2776": Implementation(_concat, duckdb=duckdb_text.beside),
    "hashtext": _hash(registry.TEXT),
    "hashint4": _hash(registry.INT4),
    "hashint2": _hash(registry.INT2),
    "hashint8": _hash(registry.INT8),
    "i8tooid": scalar(to_oid, INT8),
    "oidtoi8": lambda node, args: args[0],
    "chartoi4": scalar(char_to_integer, INT4, raises=False),
    "i4tochar": scalar(integer_to_char, TEXT),
    "text_char": scalar(text_to_char, TEXT, raises=False),
    "char_text": lambda node, args: args[0],
    "pg_lsn_mi": Implementation(
        scalar(lsn_difference, DIGITS), duckdb="CAST(CAST({0} AS HUGEINT) - CAST({1} AS HUGEINT) AS DECIMAL(38,0))"
    ),
    "pg_lsn_pli": Implementation(scalar(move_lsn, TEXT, prefix=(1,)), duckdb=number.moved("+")),
    "pg_lsn_mii": Implementation(scalar(move_lsn, TEXT, prefix=(-1,)), duckdb=number.moved("-")),
    "numeric_pl_pg_lsn/1700,3220": scalar(move_lsn, TEXT, prefix=(1,), flipped=True),
}
