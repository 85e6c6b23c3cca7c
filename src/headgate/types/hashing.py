"""PostgreSQL's extended hash functions on whole columns: what hash partitioning places rows by (hashfn.c, partbounds.c).

Called by `headgate.storage.routing`. The values come in their binary form (`write_binary`), so the way a type is stored does not
matter here. Rows must lie in the partition in which PostgreSQL would put them: a subscriber may be either.

    bool, int2, int4, date, oid    hash_bytes_uint32_extended of the value as 32 bits
    int8, timestamp[tz], time      the same of both halves folded, so that equal int4 and int8 hash alike
    float4, float8                 the 8 bytes of the double; 0 hashes to the seed
    text, varchar, name, bytea, char(n) without trailing blanks, uuid    hash_bytes_extended of the bytes
    numeric                        hash_bytes_extended of the base-10000 digits without leading and trailing zeros, xor the weight
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import not_supported
from headgate.types import registry
from headgate.types.base.base_type import Hashing
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.binary import binary

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

SEED = 0x7A5B22367996DCFD
"""HASH_PARTITION_SEED."""

_INITIAL = 0x9E3779B9 + 3923095
HASHED = frozenset(oid for oid, described in BASE_TYPES.items() if described.hashing is not None)
"""Types by which a table can be partitioned by hash here."""


def partition_hash(columns: Sequence[tuple[pa.Array, int]]) -> Words:
    """compute_partition_hash_value of each row; `columns`: (values in stored form, type) of the partition key. NULLs are left out.

    >>> int(partition_hash([(pa.array([1], pa.int32()), registry.INT4)])[0] % 4)
    0
    """
    whole: Words = np.zeros(len(columns[0][0]), np.uint64)
    for values, oid in columns:
        present = np.asarray(pc.is_valid(values))
        joined = _combine(whole, hashed(values, oid))
        whole = np.where(present, joined, whole)
    return whole


def hashed(values: pa.Array, oid: int, seed: int = SEED) -> Words:
    """The extended hash function of the type's default hash operator class; anything for NULL."""
    described = BASE_TYPES.get(oid)
    if described is None or described.hashing is None:
        raise not_supported(f"hash partitioning by type {registry.format_type(oid)} is not supported")
    if oid == registry.BPCHAR:
        values = pc.utf8_rtrim(values, " ")
    raw, offsets = _buffers(pc.fill_null(binary.write_binary(values, oid), b""))
    lengths = np.diff(offsets)
    if described.hashing is Hashing.NUMERIC:
        return _numeric(raw, offsets, lengths, seed)
    if described.hashing is Hashing.BYTES:
        return _hash_bytes(raw, offsets[:-1], lengths, seed)
    kind = np.dtype(described.code or ">i8")  # time is stored as text, and a number on the wire
    fixed = _fixed(raw, offsets, lengths, kind.itemsize).view(kind).ravel()
    match described.hashing:
        case Hashing.LONG:
            return _hash_long(fixed.astype(np.int64), seed)
        case Hashing.DOUBLE:
            return _hash_double(fixed.astype(np.float64), seed)
        case Hashing.WORD:
            return _hash_word(fixed.astype(np.int64).astype(np.uint32), seed)


def _buffers(values: pa.Array) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """All bytes, and where each value begins; one more for the end."""
    whole = values.cast(pa.large_binary())
    _, offsets, data = whole.buffers()
    at = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return raw, at


def _fixed(raw: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], width: int) -> Bytes:
    """Values of one width as rows of bytes, zeros for NULL."""
    rows = np.zeros((len(lengths), width), np.uint8)
    present = lengths == width
    at = offsets[:-1][present][:, None] + np.arange(width)
    rows[present] = raw[at] if len(at) else rows[present]
    return rows


def _combine(one: Words, other: Words) -> Words:
    """hash_combine64."""
    with np.errstate(over="ignore"):
        joined: Words = one ^ (other + np.uint64(0x49A0F4DD15E5A8E3) + (one << np.uint64(54)) + (one >> np.uint64(7)))
    return joined


# ---- Jenkins' lookup3, as hashfn.c has it --------------------------------------------------------------------------


def _rot(x: Halves, k: int) -> Halves:
    return (x << np.uint32(k)) | (x >> np.uint32(32 - k))


def _mix(a: Halves, b: Halves, c: Halves) -> tuple[Halves, Halves, Halves]:
    a = (a - c) ^ _rot(c, 4)
    c = c + b
    b = (b - a) ^ _rot(a, 6)
    a = a + c
    c = (c - b) ^ _rot(b, 8)
    b = b + a
    a = (a - c) ^ _rot(c, 16)
    c = c + b
    b = (b - a) ^ _rot(a, 19)
    a = a + c
    c = (c - b) ^ _rot(b, 4)
    b = b + a
    return a, b, c


def _final(a: Halves, b: Halves, c: Halves) -> Words:
    for one in (14, 11, 25, 16, 4, 14, 24):
        # the three take turns: c ^= b, a ^= c, b ^= a
        c = (c ^ b) - _rot(b, one)
        a, b, c = b, c, a
    # after seven turns the names have moved on by one: what was b is a, what was c is b
    return (a.astype(np.uint64) << np.uint64(32)) | b.astype(np.uint64)


def _begin(lengths: npt.NDArray[np.int64], seed: int) -> tuple[Halves, Halves, Halves]:
    start: Halves = (lengths + _INITIAL).astype(np.uint64).astype(np.uint32)
    a, b, c = start, start, start
    if seed:
        a = a + np.uint32(seed >> 32)
        b = b + np.uint32(seed & 0xFFFFFFFF)
        a, b, c = _mix(a, b, c)
    return a, b, c


def _hash_word(values: Halves, seed: int) -> Words:
    """hash_bytes_uint32_extended."""
    with np.errstate(over="ignore"):
        a, b, c = _begin(np.full(len(values), 4, np.int64), seed)
        return _final(a + values, b, c)


def _hash_long(values: npt.NDArray[np.int64], seed: int) -> Words:
    """hashint8extended."""
    bits = values.view(np.uint64)
    low, high = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    return _hash_word(low ^ np.where(values >= 0, high, ~high), seed)


def _hash_double(values: npt.NDArray[np.float64], seed: int) -> Words:
    """hashfloat8extended."""
    values = np.where(np.isnan(values), np.float64("nan"), values)
    raw = np.ascontiguousarray(values.astype("<f8")).view(np.uint8)
    count = len(values)
    found = _hash_bytes(raw, np.arange(count, dtype=np.int64) * 8, np.full(count, 8, np.int64), seed)
    return np.where(values == 0, np.uint64(seed), found)


def _hash_bytes(raw: Bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seed: int) -> Words:
    """hash_bytes_extended of each value: twelve bytes of all values at a time, as long as there are values with so many left."""
    with np.errstate(over="ignore"):
        a, b, c = _begin(lengths, seed)
        padded = np.concatenate([raw, np.zeros(12, np.uint8)])
        left = lengths.copy()
        at = starts.copy()
        while (more := np.flatnonzero(left >= 12)).size:
            block = padded[at[more][:, None] + np.arange(12)].view("<u4")
            a[more], b[more], c[more] = _mix(a[more] + block[:, 0], b[more] + block[:, 1], c[more] + block[:, 2])
            at[more] += 12
            left[more] -= 12
        last = padded[at[:, None] + np.arange(12)]
        last[np.arange(12)[None, :] >= left[:, None]] = 0
        shifted = np.zeros_like(last)  # the lowest byte of c is the length's
        shifted[:, :8] = last[:, :8]
        shifted[:, 9:] = last[:, 8:11]
        block = shifted.view("<u4")
        return _final(a + block[:, 0], b + block[:, 1], c + block[:, 2])


def _numeric(raw: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seed: int) -> Words:
    """hash_numeric_extended, of the binary form: digits, weight, sign, scale, then the digits, all 16 bits big-endian."""
    padded = np.concatenate([raw, np.zeros(8, np.uint8)])
    head = padded[offsets[:-1][:, None] + np.arange(8)].view(">u2").astype(np.int64)
    count = np.where(lengths >= 8, head[:, 0], 0)
    weight = head[:, 1].astype(np.int16).astype(np.int64)
    special = (head[:, 2] & 0xC000) == 0xC000
    width = int(count.max(initial=0))
    digits = np.zeros((len(count), max(width, 1)), np.int64)
    for place in range(width):
        there = np.flatnonzero(count > place)
        at = offsets[:-1][there] + 8 + 2 * place
        digits[there, place] = (raw[at].astype(np.int64) << 8) | raw[at + 1]
    nonzero = digits != 0
    first = np.argmax(nonzero, axis=1)
    last = digits.shape[1] - np.argmax(nonzero[:, ::-1], axis=1)
    is_zero = ~nonzero.any(axis=1)
    native = np.ascontiguousarray(digits.astype("<i2")).view(np.uint8).ravel()
    starts = (np.arange(len(count), dtype=np.int64) * digits.shape[1] + first) * 2
    found = _hash_bytes(native, starts, np.where(is_zero, 0, (last - first) * 2), seed)
    found = found ^ (weight - first).view(np.uint64)
    found = np.where(is_zero, np.uint64((seed - 1) & 0xFFFFFFFFFFFFFFFF), found)
    return np.where(special, np.uint64(seed), found)
