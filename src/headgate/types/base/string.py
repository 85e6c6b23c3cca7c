"""text, varchar(n), char(n), name, "char", bytea, uuid and types that a node handles as text (refcursor): textin … uuid_send on columns.

`TYPES` describes them. Text is UTF-8, as all strings of Arrow. Lengths count code points, in PostgreSQL as in Arrow.
"""

from __future__ import annotations

import re
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import buffers, registry, text_column, typmod
from headgate.types.base.base_type import (
    BaseType,
    Hashing,
    Key,
    Reader,
    Wire,
    fixed_rows,
    key_of_text,
    singly,
    text_received,
    text_sent,
)

_UUID = re.compile(r"\{?[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}\}?\Z", re.IGNORECASE)
_NAME_BYTES = 63
HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
DIGIT = np.full(256, 255, np.uint8)
for _value, _digit in enumerate(b"0123456789abcdef"):
    DIGIT[_digit] = _value
    DIGIT[ord(chr(_digit).upper())] = _value


def read_text(strings: pa.StringArray) -> pa.StringArray:
    """Read text as textin. Raise 22021 if it contains the character 0."""
    data, _ = buffers.view(strings)
    if len(data) and not data.all():
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    return strings


def read_varchar(strings: pa.StringArray, modifier: int) -> pa.StringArray:
    """Read varchar(n): blanks beyond n characters are removed, any other characters beyond them raise 22001."""
    limit = typmod.length(registry.VARCHAR, modifier)
    return read_text(strings) if limit is None else _cut(read_text(strings), limit, "character varying")


def read_bpchar(strings: pa.StringArray, modifier: int) -> pa.StringArray:
    """Read char(n): as varchar(n), then padded with blanks to n characters. bpchar without n keeps its text."""
    limit = typmod.length(registry.BPCHAR, modifier)
    return read_text(strings) if limit is None else pc.utf8_rpad(_cut(read_text(strings), limit, "character"), width=limit)


def _cut(strings: pa.StringArray, limit: int, name: str) -> pa.StringArray:
    long = pc.greater(pc.utf8_length(strings), limit)
    if not pc.any(long, min_count=0).as_py():
        return strings
    cut = pc.utf8_slice_codeunits(strings, 0, limit)
    rest = pc.utf8_slice_codeunits(strings, limit)
    if pc.any(pc.not_equal(pc.utf8_trim(rest, characters=" "), "")).as_py():
        raise PostgresError("22001", f"value too long for type {name}({limit})")
    return cut


def read_name(strings: pa.StringArray) -> pa.StringArray:
    """Read names as namein: truncated to 63 bytes, but never inside a character."""
    read_text(strings)
    usual = pc.less_equal(pc.binary_length(strings), _NAME_BYTES)
    return text_column.read(strings, usual, lambda texts: texts, lambda text: text.encode()[:_NAME_BYTES].decode(errors="ignore"))


def read_char(strings: pa.StringArray) -> pa.StringArray:
    r"""Read "char" as charin: the first byte, or ``\\ooo``. A byte above 127 is stored as charout prints it, ``\\377``."""
    read_text(strings)
    usual = text_column.matches(strings, r"\A[\x00-\x7f]?\z")
    return text_column.read(strings, usual, lambda texts: texts, char_of)


def char_of(text: str) -> str:
    """Return the text form of one "char"."""
    octal = re.fullmatch(r"\\([0-3][0-7][0-7])", text)
    byte = int(octal[1], 8) if octal else text.encode()[0]
    return f"\\{byte:03o}" if byte > 127 else chr(byte) if byte else ""


def read_uuid(strings: pa.StringArray) -> pa.StringArray:
    """Read UUIDs as uuid_in: also in upper case, in braces, with hyphens after any group of four digits."""
    usual = text_column.matches(strings, r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z")
    return text_column.read(strings, usual, lambda texts: texts, uuid_of)


def uuid_of(text: str) -> str:
    if not _UUID.match(text) or (text[0] == "{") != (text[-1] == "}"):
        raise text_column.invalid_syntax("uuid", text)
    digits = text.strip("{}").replace("-", "").lower()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def read_bytea(strings: pa.StringArray) -> pa.BinaryArray:
    """Read bytea as byteain: the hex format in bulk, the escape format one by one."""
    usual = text_column.matches(strings, r"\A\\x([0-9a-fA-F]{2})*\z")
    return text_column.read(strings, usual, _from_hex, bytea_of)


def _from_hex(strings: pa.StringArray) -> pa.BinaryArray:
    data, offsets = buffers.packed(strings)
    mask = buffers.valid(strings)
    starts = offsets[:-1] if mask is None else offsets[:-1][mask]
    digit = np.ones(len(data), np.bool_)
    digit[starts] = False
    digit[starts + 1] = False
    halves = DIGIT[data[digit]]
    lengths = np.maximum(np.diff(offsets) - 2, 0) // 2
    octets: buffers.Bytes = (halves[0::2] << 4 | halves[1::2]).astype(np.uint8)
    return buffers.strings(octets, buffers.offsets_of(lengths), mask, pa.binary())


def bytea_of(text: str) -> bytes:
    """Read one bytea in hex format (white space between the bytes is allowed) or escape format."""
    if text.startswith("\\x"):
        return bytes_of_hex(text[2:])
    return bytes_of_escapes(text)


def bytes_of_escapes(text: str) -> bytes:
    """Read the escape format of bytea: a backslash is doubled, or followed by three octal digits."""
    source, index, out = text.encode(), 0, bytearray()
    while index < len(source):
        if source[index] != 0x5C:
            out.append(source[index])
            index += 1
        elif source[index + 1 : index + 2] == b"\\":
            out.append(0x5C)
            index += 2
        elif re.match(rb"[0-3][0-7][0-7]", source[index + 1 : index + 4]):
            out.append(int(source[index + 1 : index + 4], 8))
            index += 4
        else:
            raise PostgresError("22P02", "invalid input syntax for type bytea")
    return bytes(out)


_PAIRS = re.compile(r"(?:[ \n\t\r]*[0-9a-fA-F]{2})*[ \n\t\r]*")


def bytes_of_hex(text: str) -> bytes:
    """Decode pairs of hexadecimal digits. Blanks are allowed between pairs, but not within them."""
    pairs = _PAIRS.match(text)
    assert pairs is not None
    rest = text[pairs.end() :]
    if not rest:
        return bytes.fromhex(text)
    bad = next((character for character in rest[:2] if character not in "0123456789abcdefABCDEF"), None)
    if bad is not None:
        raise PostgresError("22023", f'invalid hexadecimal digit: "{bad}"')
    raise PostgresError("22023", "invalid hexadecimal data: odd number of digits")


def write_bytea(values: pa.Array, form: str) -> pa.StringArray:
    """Print bytea as byteaout in the format of bytea_output: hex or escape."""
    if form == "escape":
        return pa.array([None if value is None else _escape(value) for value in values.to_pylist()], pa.string())
    data, offsets = buffers.packed(values)
    mask = buffers.valid(values)
    present = np.ones(len(values), np.int64) if mask is None else mask.astype(np.int64)
    offsets_out = buffers.offsets_of((np.diff(offsets) + present) * 2)
    shown = np.empty(int(offsets_out[-1]), np.uint8)
    digit = np.ones(len(shown), np.bool_)
    starts = offsets_out[:-1] if mask is None else offsets_out[:-1][mask]
    digit[starts] = digit[starts + 1] = False
    shown[starts], shown[starts + 1] = ord("\\"), ord("x")
    shown[digit] = HEX[data].view(np.uint8)
    return buffers.strings(shown, offsets_out, mask, pa.string())


def _escape(value: bytes) -> str:
    return "".join("\\\\" if byte == 0x5C else chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}" for byte in value)


def _receive_uuid(wire: Wire, _modifier: int) -> pa.StringArray:
    count = len(wire.starts)
    digits = HEX[wire.rows(16)].view(np.uint8).reshape(count, 32)
    shown = np.full((count, 36), ord("-"), np.uint8)
    for target, source, size in ((0, 0, 8), (9, 8, 4), (14, 12, 4), (19, 16, 4), (24, 20, 12)):
        shown[:, target : target + size] = digits[:, source : source + size]
    return buffers.strings(shown.ravel(), np.arange(count + 1) * 36, wire.mask, pa.string())


def _send_uuid(array: pa.StringArray) -> pa.LargeBinaryArray:
    mask = buffers.valid(array)
    data, offsets = buffers.packed(array)
    rows = data.reshape(-1, 36) if mask is None else buffers.rows_at(data, offsets[:-1][mask], 36)
    digits = DIGIT[rows[:, [index for index in range(36) if index not in (8, 13, 18, 23)]]]
    raw: buffers.Bytes = (digits[:, 0::2] << 4 | digits[:, 1::2]).astype(np.uint8)
    if mask is None:
        return fixed_rows(raw, None)
    full = np.zeros((len(array), 16), np.uint8)
    full[mask] = raw
    return fixed_rows(full, mask)


def _receive_char(raw: bytes) -> str:
    (byte,) = struct.unpack("B", raw)
    return f"\\{byte:03o}" if byte > 127 else chr(byte) if byte else ""


def _send_char(text: str) -> bytes:
    return bytes([int(text[1:], 8)]) if len(text) == 4 else text.encode() or b"\0"


def _key_of_char(text: str) -> bytes:
    return bytes([int(text[1:], 8)]) if len(text) == 4 else key_of_text(text)


def _text(read: Reader, key: Key | None = key_of_text, *, in_order: bool = True, one_text: bool = True, hashed: bool = True) -> BaseType:
    """Describe a type whose binary form is its text."""
    return BaseType(
        read=read,
        receive=text_received(read),
        send=text_sent,
        key=key,
        in_order=in_order,
        one_text=one_text,
        hashing=Hashing.BYTES if hashed else None,
    )


def _as_text(strings: pa.StringArray, _modifier: int, _settings: text_column.TextSettings) -> pa.StringArray:
    return read_text(strings)


TEXT_LIKE = _text(_as_text, None, in_order=False, hashed=False)
"""The description of types without a description of their own: they have only a text."""
TYPES = {
    registry.TEXT: _text(_as_text),
    registry.VARCHAR: _text(lambda strings, modifier, _settings: read_varchar(strings, modifier)),
    registry.BPCHAR: _text(
        lambda strings, modifier, _settings: read_bpchar(strings, modifier),
        lambda text: key_of_text(text.rstrip(" ")),
        in_order=False,
        one_text=False,
    ),
    registry.NAME: _text(lambda strings, _modifier, _settings: read_name(strings)),
    registry.UNKNOWN: _text(_as_text, hashed=False),
    **dict.fromkeys((registry.REFCURSOR, registry.CSTRING), TEXT_LIKE),
    registry.CHAR: singly(lambda strings, _modifier, _settings: read_char(strings), _receive_char, _send_char, _key_of_char),
    registry.BYTEA: BaseType(
        read=lambda strings, _modifier, _settings: read_bytea(strings),
        write=lambda values, settings: write_bytea(values, settings.bytea_output),
        receive=lambda wire, _modifier: wire.column(pa.binary()),
        send=lambda values, _encoding: values.cast(pa.large_binary()),
        stored=pa.binary(),
        restyled=lambda settings: settings.bytea_output != text_column.PLAIN.bytea_output,
        key=lambda text: bytes.fromhex(text[2:]),
        in_order=True,
        hashing=Hashing.BYTES,
    ),
    registry.UUID: BaseType(
        read=lambda strings, _modifier, _settings: read_uuid(strings),
        receive=_receive_uuid,
        send=lambda values, _encoding: _send_uuid(values),
        key=key_of_text,
        in_order=True,
        hashing=Hashing.BYTES,
    ),
}
