"""bytea: the functions whose Spark counterpart differs from PostgreSQL (`functions.bytea`). Comparison, || and substring use Spark's."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression.functions import bytea
from headgate.expression.implementation.implementation import Guarded, Implementation, SparkForm, Table
from headgate.expression.node import Expression, FuncExpr
from headgate.expression.spark.value import BOOL, BYTES, INT4, INT8, TEXT, Value
from headgate.expression.spark.vectorised import call, scalar


def _digest(name: str) -> SparkForm:
    return lambda node, args: call(bytea.digest, BYTES, args, prefix=(name,), raises=False)


def _send(node: Expression, args: Sequence[Value]) -> Value:
    assert isinstance(node, FuncExpr)
    return call(bytea.sent, BYTES, args, prefix=(node.args[0].type.oid,), raises=False, whole=True)


_SENT = (
    "oidsend", "float4send", "float8send", "boolsend", "byteasend", "textsend", "varcharsend",
    "namesend", "numeric_send", "date_send", "time_send", "timetz_send", "timestamp_send", "timestamptz_send", "interval_send", "uuid_send",
    "json_send", "jsonb_send", "macaddr_send", "inet_send", "cidr_send", "bit_send", "varbit_send",
)  # fmt: skip

IMPLEMENTATIONS: Table = {
    **dict.fromkeys(_SENT, _send),
    "int2send": Implementation(_send, duckdb="unhex(printf('%04X', CAST({0} AS INTEGER) & 65535))"),
    "int4send": Implementation(_send, duckdb="unhex(printf('%08X', CAST({0} AS BIGINT) & 4294967295))"),
    "int8send": Implementation(
        _send, duckdb="unhex(printf('%016X', CAST((CAST({0} AS HUGEINT) + 18446744073709551616) % 18446744073709551616 AS UBIGINT)))"
    ),
    "byteaGetByte": Implementation(
        scalar(bytea.get_byte, INT4),
        duckdb=Guarded(
            "CASE WHEN {1} < 0 OR {1} >= octet_length({0}) THEN <2202E index out of valid range>"
            " ELSE CAST('0x' || substr(hex({0}), 2 * {1} + 1, 2) AS INTEGER) END"
        ),
    ),
    "byteaSetByte": scalar(bytea.set_byte, BYTES),
    "byteaGetBit": scalar(bytea.get_bit, INT4),
    "byteaSetBit": scalar(bytea.set_bit, BYTES),
    "byteapos": scalar(bytea.position, INT4, raises=False),
    "byteaoverlay": scalar(bytea.overlay, BYTES),
    "byteaoverlay_no_len": scalar(bytea.overlay_whole, BYTES),
    "byteatrim": scalar(bytea.trim, BYTES, raises=False),
    "bytealtrim": scalar(bytea.trim_left, BYTES, raises=False),
    "byteartrim": scalar(bytea.trim_right, BYTES, raises=False),
    "bytealike": scalar(bytea.like, BOOL),
    "byteanlike": scalar(bytea.not_like, BOOL),
    "like_escape_bytea": scalar(bytea.like_escape, BYTES),
    "bytea_bit_count": scalar(bytea.count_set, INT8, raises=False),
    "sha224_bytea": _digest("sha224"),
    "sha256_bytea": _digest("sha256"),
    "sha384_bytea": _digest("sha384"),
    "sha512_bytea": _digest("sha512"),
    "binary_encode": Implementation(scalar(bytea.encode, TEXT), duckdb=Guarded("hg.encode({0}, lower({1}))")),
    "binary_decode": scalar(bytea.decode, BYTES),
    "bit_length/17": scalar(bytea.bit_length, INT4, raises=False),
}
