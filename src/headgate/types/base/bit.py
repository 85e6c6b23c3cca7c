"""bit(n) and bit varying(n), stored as text: bit_in … varbit_send on whole columns. `TYPES` describes them."""

from __future__ import annotations

import re
import struct

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import registry, text_column, typmod
from headgate.types.base.base_type import BaseType, key_of_text, singly


def read_bits(strings: pa.StringArray, oid: int, modifier: int) -> pa.StringArray:
    """Read bit strings as bit_in or varbit_in with the modifier."""
    usual = text_column.matches(strings, r"\A[01]*\z")
    limit = typmod.length(oid, modifier)
    if limit is not None:
        sizes = pc.binary_length(strings)
        usual = pc.and_(usual, pc.equal(sizes, limit) if oid == registry.BIT else pc.less_equal(sizes, limit))
    return text_column.read_normal(strings, usual, lambda text: bits_of(text, oid, modifier))


def bits_of(text: str, oid: int, modifier: int) -> str:
    """Read one bit string as bit_in or varbit_in: binary digits, or hexadecimal ones after an X. Raise 22P02, 22026 or 22001."""
    digits = text
    if text[:1] in ("b", "B"):
        digits = text[1:]
    elif text[:1] in ("x", "X"):
        bad = re.search(r"[^0-9a-fA-F]", text[1:])
        if bad:
            raise PostgresError("22P02", f'"{bad[0]}" is not a valid hexadecimal digit')
        digits = "".join(f"{int(digit, 16):04b}" for digit in text[1:])
    wrong = re.search("[^01]", digits)
    if wrong:
        raise PostgresError("22P02", f'"{wrong[0]}" is not a valid binary digit')
    limit = typmod.length(oid, modifier)
    if oid == registry.BIT and limit is not None and len(digits) != limit:
        raise PostgresError("22026", f"bit string length {len(digits)} does not match type bit({limit})")
    if oid == registry.VARBIT and limit is not None and len(digits) > limit:
        raise PostgresError("22001", f"bit string too long for type bit varying({limit})")
    return digits


def _receive(raw: bytes) -> str:
    (count,) = struct.unpack_from(">i", raw)
    if len(raw) != 4 + (count + 7) // 8:
        raise ValueError("bits")
    return "".join(f"{byte:08b}" for byte in raw[4:])[:count]


def _send(text: str) -> bytes:
    padded = text.ljust((len(text) + 7) // 8 * 8, "0")
    return struct.pack(">i", len(text)) + bytes(int(padded[start : start + 8], 2) for start in range(0, len(padded), 8))


def _bits(oid: int) -> BaseType:
    def read(strings: pa.StringArray, modifier: int, _settings: text_column.TextSettings) -> pa.StringArray:
        return read_bits(strings, oid, modifier)

    return singly(read, _receive, _send, key_of_text, in_order=True)


TYPES = {registry.BIT: _bits(registry.BIT), registry.VARBIT: _bits(registry.VARBIT)}
