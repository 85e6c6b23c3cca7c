"""bytea: the functions that Spark has not with PostgreSQL's meaning (`functions.bytea`); comparison, || and substring are Spark's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression.functions import bytea as octets
from headgate.expression.functions import send as sending
from headgate.expression.node import Expression, FuncExpr
from headgate.expression.spark.value import BOOL, BYTES, INT4, INT8, TEXT, Value
from headgate.expression.spark.vectorised import call, call_batch, scalar

Builder = Callable[[Expression, Sequence[Value]], Value]


def _digest(name: str) -> Builder:
    return lambda node, args: call(octets.digest, BYTES, args, given=(name,), raises=False)


def _sent(node: Expression, args: Sequence[Value]) -> Value:
    assert isinstance(node, FuncExpr)
    return call_batch(sending.sent, BYTES, args, given=(node.args[0].type.oid,), raises=False)


_SENT = (
    "int2send", "int4send", "int8send", "oidsend", "float4send", "float8send", "boolsend", "byteasend", "textsend", "varcharsend",
    "namesend", "numeric_send", "date_send", "time_send", "timetz_send", "timestamp_send", "timestamptz_send", "interval_send", "uuid_send",
    "json_send", "jsonb_send", "macaddr_send", "inet_send", "cidr_send", "bit_send", "varbit_send",
)  # fmt: skip

BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(_SENT, _sent),
    "byteaGetByte": scalar(octets.get_byte, INT4),
    "byteaSetByte": scalar(octets.set_byte, BYTES),
    "byteaGetBit": scalar(octets.get_bit, INT4),
    "byteaSetBit": scalar(octets.set_bit, BYTES),
    "byteapos": scalar(octets.position, INT4, raises=False),
    "byteaoverlay": scalar(octets.overlay, BYTES),
    "byteaoverlay_no_len": scalar(octets.overlay_whole, BYTES),
    "byteatrim": scalar(octets.trim, BYTES, raises=False),
    "bytealtrim": scalar(octets.trim_left, BYTES, raises=False),
    "byteartrim": scalar(octets.trim_right, BYTES, raises=False),
    "bytealike": scalar(octets.like, BOOL),
    "byteanlike": scalar(octets.not_like, BOOL),
    "like_escape_bytea": scalar(octets.like_escape, BYTES),
    "bytea_bit_count": scalar(octets.count_set, INT8, raises=False),
    "sha224_bytea": _digest("sha224"),
    "sha256_bytea": _digest("sha256"),
    "sha384_bytea": _digest("sha384"),
    "sha512_bytea": _digest("sha512"),
    "binary_encode": scalar(octets.encode, TEXT),
    "binary_decode": scalar(octets.decode, BYTES),
    "bit_length/17": scalar(octets.bit_length, INT4, raises=False),
}
