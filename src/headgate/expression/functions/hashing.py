"""hashtext and similar: PostgreSQL's hash_bytes (Bob Jenkins' lookup3), on a little-endian machine.

Called by `implementation.system` inside Arrow functions. Users compare the two sides of a replication by sums of such hashes.
"""

from __future__ import annotations

import struct

_MASK = 0xFFFFFFFF


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> 32 - count) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a = (a - c & _MASK) ^ _rotate(c, first)
        c = c + b & _MASK
        b = (b - a & _MASK) ^ _rotate(a, second)
        a = a + c & _MASK
        c = (c - b & _MASK) ^ _rotate(b, third)
        b = b + a & _MASK
    return a, b, c


def _final(a: int, b: int, c: int) -> int:
    c = (c ^ b) - _rotate(b, 14) & _MASK
    a = (a ^ c) - _rotate(c, 11) & _MASK
    b = (b ^ a) - _rotate(a, 25) & _MASK
    c = (c ^ b) - _rotate(b, 16) & _MASK
    a = (a ^ c) - _rotate(c, 4) & _MASK
    b = (b ^ a) - _rotate(a, 14) & _MASK
    return (c ^ b) - _rotate(b, 24) & _MASK


def of_bytes(data: bytes) -> int:
    """Return hash_bytes as a signed 32-bit integer."""
    a = b = c = 0x9E3779B9 + len(data) + 3923095 & _MASK
    place = 0
    while len(data) - place >= 12:
        first, second, third = struct.unpack_from("<III", data, place)
        a, b, c = _mix(a + first & _MASK, b + second & _MASK, c + third & _MASK)
        place += 12
    rest = data[place:]
    # hash_bytes reserves the lowest byte of c for the length
    a = a + int.from_bytes(rest[:4], "little") & _MASK
    b = b + int.from_bytes(rest[4:8], "little") & _MASK
    c = c + (int.from_bytes(rest[8:], "little") << 8) & _MASK
    hashed = _final(a, b, c)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def of_text(text: str) -> int:
    """Return the hash of a text (hashtext)."""
    return of_bytes(text.encode())


def of_bigint(value: int) -> int:
    """Return hashint8, which equals hashint4 for values in its range."""
    low, high = value & _MASK, value >> 32 & _MASK
    return _of_word(low ^ (high if value >= 0 else ~high & _MASK))


def _of_word(value: int) -> int:
    """Return the hash of a 32-bit word as a signed integer (hash_bytes_uint32)."""
    a = b = c = 0x9E3779B9 + 4 + 3923095 & _MASK
    hashed = _final(a + value & _MASK, b, c)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def of_integer(value: int) -> int:
    """Return the hash of an integer or a smallint (hashint4, hashint2)."""
    return _of_word(value & _MASK)
