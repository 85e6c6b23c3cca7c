"""Functions of bytea on single values (varlena.c, encode.c, cryptohash), with PostgreSQL's errors, which Spark's own do not raise."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TypeVar

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.expression.functions.regex import similar
from headgate.types.base.string import bytes_of_escapes, bytes_of_hex
from headgate.types.binary.binary import write_binary
from headgate.types.storage import arrow_type

T = TypeVar("T", bytes, str)
_INT_MAX = 2**31 - 1


def get_byte(data: bytes, place: int) -> int:
    """Return a byte (get_byte), counted from 0."""
    _check(place, len(data))
    return data[place]


def _check(place: int, size: int) -> None:
    if not 0 <= place < size:
        raise PostgresError("2202E", f"index {place} out of valid range, 0..{size - 1}")


def set_byte(data: bytes, place: int, value: int) -> bytes:
    """Set a byte (set_byte) to the lowest eight bits of the value."""
    _check(place, len(data))
    return data[:place] + bytes([value & 255]) + data[place + 1 :]


def get_bit(data: bytes, place: int) -> int:
    """Return a bit (get_bit). Bits of a byte are counted from the lowest one."""
    _check(place, len(data) * 8)
    return data[place // 8] >> place % 8 & 1


def set_bit(data: bytes, place: int, value: int) -> bytes:
    """Return the bytes with one bit changed (set_bit)."""
    _check(place, len(data) * 8)
    if value not in (0, 1):
        raise PostgresError("22023", "new bit must be 0 or 1")
    byte = data[place // 8] & ~(1 << place % 8) | value << place % 8
    return data[: place // 8] + bytes([byte]) + data[place // 8 + 1 :]


def position(data: bytes, part: bytes) -> int:
    """Return the position of a part, counted from 1, or 0 if it does not occur. It is 1 for an empty part."""
    return data.find(part) + 1


def overlay(data: T, new: T, start: int, count: int) -> T:
    """Return OVERLAY … PLACING … FROM … FOR, of bytes or of the digits of a bit string."""
    if start <= 0:
        raise PostgresError("22011", "negative substring length not allowed")
    end = start + count
    if end > _INT_MAX:
        raise PostgresError("22003", "integer out of range")
    return data[: start - 1] + new + data[max(end, 1) - 1 :]


def overlay_whole(data: T, new: T, start: int) -> T:
    """Return OVERLAY … PLACING … FROM, without FOR."""
    return overlay(data, new, start, len(new))


def trim(data: bytes, characters: bytes) -> bytes:
    """Remove these bytes at both ends (btrim)."""
    return data.strip(characters) if characters else data


def trim_left(data: bytes, characters: bytes) -> bytes:
    """Remove these bytes at the start (ltrim)."""
    return data.lstrip(characters) if characters else data


def trim_right(data: bytes, characters: bytes) -> bytes:
    """Remove these bytes at the end (rtrim)."""
    return data.rstrip(characters) if characters else data


def count_set(data: bytes) -> int:
    """Return the number of bits that are 1 (bit_count)."""
    return int.from_bytes(data, "big").bit_count()


def bit_length(data: bytes) -> int:
    """Return the number of bits (bit_length)."""
    return len(data) * 8


def digest(name: str, data: bytes) -> bytes:
    """Return the hash of sha224, sha256, sha384 or sha512."""
    return hashlib.new(name, data).digest()


def encode(data: bytes, form: str) -> str:
    """Encode bytes as hex, base64 or escape."""
    match form.lower():
        case "hex":
            return data.hex()
        case "base64":
            whole = base64.b64encode(data).decode()
            return "\n".join(whole[place : place + 76] for place in range(0, len(whole), 76))
        case "escape":
            return "".join("\\\\" if byte == 92 else f"\\{byte:03o}" if byte > 127 or byte == 0 else chr(byte) for byte in data)
        case _:
            raise PostgresError("22023", f'unrecognized encoding: "{form}"')


def decode(text: str, form: str) -> bytes:
    """Decode a text in hex, base64 or escape."""
    match form.lower():
        case "hex":
            return bytes_of_hex(text)
        case "base64":
            return _from_base64(text)
        case "escape":
            return bytes_of_escapes(text)
        case _:
            raise PostgresError("22023", f'unrecognized encoding: "{form}"')


def _from_base64(text: str) -> bytes:
    plain = re.sub(r"[ \t\n\r]", "", text)
    bad = re.search(r"[^A-Za-z0-9+/=]", plain)
    if bad:
        raise PostgresError("22023", f'invalid symbol "{bad[0]}" found while decoding base64 sequence')
    unpadded = re.match(r"[^=]*", plain)
    body = unpadded[0] if unpadded else ""
    padding = plain[len(body) :]
    if padding.strip("=") or (padding and len(body) % 4 < 2):
        raise PostgresError("22023", 'unexpected "=" while decoding base64 sequence')
    if (len(body) + len(padding)) % 4 or len(padding) > 2:
        raise PostgresError(
            "22023", "invalid base64 end sequence", hint="Input data is missing padding, is truncated, or is otherwise corrupted."
        )
    try:
        return base64.b64decode(plain)
    except binascii.Error as error:
        raise PostgresError("22023", "invalid base64 end sequence") from error


def like(data: bytes, pattern: bytes) -> bool:
    """Match a pattern as LIKE does, byte by byte (bytealike)."""
    return similar.like(data.decode("latin-1"), pattern.decode("latin-1"))


def not_like(data: bytes, pattern: bytes) -> bool:
    """Return NOT LIKE of bytea (byteanlike)."""
    return not like(data, pattern)


def like_escape(pattern: bytes, escape: bytes) -> bytes:
    """Return the pattern converted to backslash as escape character (like_escape of bytea)."""
    return similar.like_escape(pattern.decode("latin-1"), escape.decode("latin-1")).encode("latin-1")


def sent(type_oid: int, values: pa.Array) -> pa.BinaryArray:
    """Return the binary forms of plain values of a type."""
    return write_binary(values.cast(arrow_type(type_oid, -1)), type_oid).cast(pa.binary())
