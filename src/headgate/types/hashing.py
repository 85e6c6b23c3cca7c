"""PostgreSQL's hash functions on whole columns (hashfn.c, partbounds.c).

Called by `headgate.storage.routing`, because hash partitioning routes rows by them, and by hashtext and similar functions.
The functions hash the binary form of values (`write_binary`), so the stored form of a type does not matter. Rows must be routed to the
partition that PostgreSQL would choose, because a subscriber may be either.

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
from headgate.types.base.binary_numeric import digits_of
from headgate.types.binary import binary
from headgate.types.buffers import Bytes

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint32]

SEED = 0x7A5B22367996DCFD
"""HASH_PARTITION_SEED."""

_INITIAL = 0x9E3779B9 + 3923095
HASHED = frozenset(oid for oid, described in BASE_TYPES.items() if described.hashing is not None)
"""The types that can be columns of a hash partition key here."""


def partition_hash(columns: Sequence[tuple[pa.Array, int]]) -> Words:
    """Return compute_partition_hash_value of each row. NULLs are skipped.

    `columns`: the values in stored form and the type of each column of the partition key.

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
    """Return the extended hash of each value, by the type's default hash operator class. The result for NULL is arbitrary."""
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


def plain_hash(oid: int, values: pa.Array) -> pa.Array:
    """Return the integer that hashtext, hashint4 and similar return: the lower half of the extended hash without a seed."""
    return pa.array(hashed(values, oid, seed=0).astype(np.uint32).view(np.int32))


def _buffers(values: pa.Array) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Return all bytes, and the start of each value with the end as last element."""
    whole = values.cast(pa.large_binary())
    _, offsets, data = whole.buffers()
    starts = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return raw, starts


def _fixed(raw: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], width: int) -> Bytes:
    """Return values of one width as rows of bytes; NULL is a row of zeros."""
    rows = np.zeros((len(lengths), width), np.uint8)
    present = lengths == width
    positions = offsets[:-1][present][:, None] + np.arange(width)
    rows[present] = raw[positions] if len(positions) else rows[present]
    return rows


def _combine(left: Words, right: Words) -> Words:
    """Combine hashes as hash_combine64."""
    with np.errstate(over="ignore"):
        joined: Words = left ^ (right + np.uint64(0x49A0F4DD15E5A8E3) + (left << np.uint64(54)) + (left >> np.uint64(7)))
    return joined


# ---- Jenkins' lookup3, as in hashfn.c ----------------------------------------------------------------------------


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
    for shift in (14, 11, 25, 16, 4, 14, 24):
        # the three rotate: c ^= b, a ^= c, b ^= a
        c = (c ^ b) - _rot(b, shift)
        a, b, c = b, c, a
    # after seven turns the names are rotated by one: the final b is a, and c is b
    return (a.astype(np.uint64) << np.uint64(32)) | b.astype(np.uint64)


def _begin(lengths: npt.NDArray[np.int64], seed: int) -> tuple[Halves, Halves, Halves]:
    start: Halves = (lengths + _INITIAL).astype(np.uint64).astype(np.uint32)
    a, b, c = start, start.copy(), start.copy()  # _hash_bytes changes them in place
    if seed:
        a = a + np.uint32(seed >> 32)
        b = b + np.uint32(seed & 0xFFFFFFFF)
        a, b, c = _mix(a, b, c)
    return a, b, c


def _hash_word(values: Halves, seed: int) -> Words:
    """Hash as hash_bytes_uint32_extended."""
    with np.errstate(over="ignore"):
        a, b, c = _begin(np.full(len(values), 4, np.int64), seed)
        return _final(a + values, b, c)


def _hash_long(values: npt.NDArray[np.int64], seed: int) -> Words:
    """Hash as hashint8extended."""
    bits = values.view(np.uint64)
    low, high = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    return _hash_word(low ^ np.where(values >= 0, high, ~high), seed)


def _hash_double(values: npt.NDArray[np.float64], seed: int) -> Words:
    """Hash as hashfloat8extended."""
    values = np.where(np.isnan(values), np.float64("nan"), values)
    raw = np.ascontiguousarray(values.astype("<f8")).view(np.uint8)
    count = len(values)
    hashes = _hash_bytes(raw, np.arange(count, dtype=np.int64) * 8, np.full(count, 8, np.int64), seed)
    return np.where(values == 0, np.uint64(seed), hashes)


def _hash_bytes(raw: Bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seed: int) -> Words:
    """Hash each value as hash_bytes_extended: 12 bytes of all values per step, while any value has as many left."""
    with np.errstate(over="ignore"):
        a, b, c = _begin(lengths, seed)
        padded = np.concatenate([raw, np.zeros(12, np.uint8)])
        remaining = lengths.copy()
        positions = starts.copy()
        while (more := np.flatnonzero(remaining >= 12)).size:
            block = padded[positions[more][:, None] + np.arange(12)].view("<u4")
            a[more], b[more], c[more] = _mix(a[more] + block[:, 0], b[more] + block[:, 1], c[more] + block[:, 2])
            positions[more] += 12
            remaining[more] -= 12
        last = padded[positions[:, None] + np.arange(12)]
        last[np.arange(12)[None, :] >= remaining[:, None]] = 0
        shifted = np.zeros_like(last)  # the lowest byte of c is for the length
        shifted[:, :8] = last[:, :8]
        shifted[:, 9:] = last[:, 8:11]
        block = shifted.view("<u4")
        return _final(a + block[:, 0], b + block[:, 1], c + block[:, 2])


def _numeric(raw: Bytes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seed: int) -> Words:
    """Hash as hash_numeric_extended. The binary form is digit count, weight, sign, scale, then the digits, each 16 bits big-endian."""
    padded = np.concatenate([raw, np.zeros(8, np.uint8)])
    head = padded[offsets[:-1][:, None] + np.arange(8)].view(">u2").astype(np.int64)
    count = np.where(lengths >= 8, head[:, 0], 0)
    weight = head[:, 1].astype(np.int16).astype(np.int64)
    special = (head[:, 2] & 0xC000) == 0xC000
    digits = digits_of(raw, offsets[:-1], count)
    nonzero = digits != 0
    first = np.argmax(nonzero, axis=1)
    last = digits.shape[1] - np.argmax(nonzero[:, ::-1], axis=1)
    is_zero = ~nonzero.any(axis=1)
    native = np.ascontiguousarray(digits.astype("<i2")).view(np.uint8).ravel()
    starts = (np.arange(len(count), dtype=np.int64) * digits.shape[1] + first) * 2
    hashes = _hash_bytes(native, starts, np.where(is_zero, 0, (last - first) * 2), seed)
    hashes = hashes ^ (weight - first).view(np.uint64)
    hashes = np.where(is_zero, np.uint64((seed - 1) & 0xFFFFFFFFFFFFFFFF), hashes)
    return np.where(special, np.uint64(seed), hashes)
