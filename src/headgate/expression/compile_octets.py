"""bytea: the functions that Spark has not with PostgreSQL's meaning (see `octets`); comparison, || and substring are Spark's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression import octets
from headgate.expression.node import Expression
from headgate.expression.value import BOOL, BYTES, INT4, INT8, TEXT, Value
from headgate.expression.vectorised import call, scalar

Builder = Callable[[Expression, Sequence[Value]], Value]


def _digest(name: str) -> Builder:
    return lambda node, args: call(octets.digest, BYTES, args, given=(name,), raises=False)


BUILDERS: dict[str, Builder] = {
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
