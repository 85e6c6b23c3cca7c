"""Text forms of text, varchar(n), char(n), name, "char", bytea and uuid on whole columns.

Called by `text`. Text is UTF-8 by Arrow's own rule for strings; PostgreSQL's lengths count code points, as Arrow's do.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import buffers, registry, text_column, typmod

_UUID = re.compile(r"\{?[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}\}?\Z", re.IGNORECASE)
_NAME_BYTES = 63
HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
DIGIT = np.full(256, 255, np.uint8)
for _place, _digit in enumerate(b"0123456789abcdef"):
    DIGIT[_digit] = _place
    DIGIT[ord(chr(_digit).upper())] = _place


def read_text(strings: pa.StringArray) -> pa.StringArray:
    """textin: any text without the character 0."""
    data, _ = buffers.view(strings)
    if len(data) and not data.all():
        raise PostgresError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    return strings


def read_varchar(strings: pa.StringArray, modifier: int) -> pa.StringArray:
    """varchar(n): blanks beyond n characters are cut, anything else beyond them is 22001."""
    limit = typmod.length(registry.VARCHAR, modifier)
    return read_text(strings) if limit is None else _cut(read_text(strings), limit, "character varying")


def read_bpchar(strings: pa.StringArray, modifier: int) -> pa.StringArray:
    """char(n): as varchar(n), then padded with blanks to n characters. bpchar without n keeps its text."""
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
    """namein: cut to 63 bytes, never inside a character."""
    read_text(strings)
    usual = pc.less_equal(pc.binary_length(strings), _NAME_BYTES)
    return text_column.read(strings, usual, lambda each: each, lambda text: text.encode()[:_NAME_BYTES].decode(errors="ignore"))


def read_char(strings: pa.StringArray) -> pa.StringArray:
    r"""charin of "char", a type of one byte: the first byte, or ``\\ooo``; a byte above 127 is kept as charout prints it, ``\\377``."""
    read_text(strings)
    usual = text_column.matches(strings, r"\A[\x00-\x7f]?\z")
    return text_column.read(strings, usual, lambda each: each, char_of)


def char_of(text: str) -> str:
    """One "char" in text form."""
    octal = re.fullmatch(r"\\([0-3][0-7][0-7])", text)
    byte = int(octal[1], 8) if octal else text.encode()[0]
    return f"\\{byte:03o}" if byte > 127 else chr(byte) if byte else ""


def read_uuid(strings: pa.StringArray) -> pa.StringArray:
    """uuid_in: also in capitals, in braces, with hyphens after any group of four digits."""
    usual = text_column.matches(strings, r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z")
    return text_column.read(strings, usual, lambda each: each, uuid_of)


def uuid_of(text: str) -> str:
    """One uuid in its normal form."""
    if not _UUID.match(text) or (text[0] == "{") != (text[-1] == "}"):
        raise text_column.invalid_syntax("uuid", text)
    digits = text.strip("{}").replace("-", "").lower()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def read_bytea(strings: pa.StringArray) -> pa.BinaryArray:
    """byteain: the hex form in bulk, the escape form one by one."""
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
    """One bytea, hex (white space between the bytes is allowed) or escape."""
    if text.startswith("\\x"):
        return _bytes_of_hex(text[2:])
    source, place, out = text.encode(), 0, bytearray()
    while place < len(source):
        if source[place] != 0x5C:
            out.append(source[place])
            place += 1
        elif source[place + 1 : place + 2] == b"\\":
            out.append(0x5C)
            place += 2
        elif re.match(rb"[0-3][0-7][0-7]", source[place + 1 : place + 4]):
            out.append(int(source[place + 1 : place + 4], 8))
            place += 4
        else:
            raise PostgresError("22P02", "invalid input syntax for type bytea")
    return bytes(out)


def _bytes_of_hex(text: str) -> bytes:
    out, place = bytearray(), 0
    while place < len(text):
        if text[place] in " \n\t\r":
            place += 1
            continue
        pair = text[place : place + 2]
        for digit in pair:
            if digit not in "0123456789abcdefABCDEF":
                raise PostgresError("22023", f'invalid hexadecimal digit: "{digit}"')
        if len(pair) < 2:
            raise PostgresError("22023", "invalid hexadecimal data: odd number of digits")
        out.append(int(pair, 16))
        place += 2
    return bytes(out)


def write_bytea(values: pa.Array, form: str) -> pa.StringArray:
    """byteaout in the form that bytea_output names: hex or escape."""
    if form == "escape":
        return pa.array([None if each is None else _escaped(each) for each in values.to_pylist()], pa.string())
    data, offsets = buffers.packed(values)
    mask = buffers.valid(values)
    present = np.ones(len(values), np.int64) if mask is None else mask.astype(np.int64)
    places = buffers.offsets_of((np.diff(offsets) + present) * 2)
    shown = np.empty(int(places[-1]), np.uint8)
    digit = np.ones(len(shown), np.bool_)
    starts = places[:-1] if mask is None else places[:-1][mask]
    digit[starts] = digit[starts + 1] = False
    shown[starts], shown[starts + 1] = ord("\\"), ord("x")
    shown[digit] = HEX[data].view(np.uint8)
    return buffers.strings(shown, places, mask, pa.string())


def _escaped(value: bytes) -> str:
    return "".join("\\\\" if byte == 0x5C else chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}" for byte in value)
