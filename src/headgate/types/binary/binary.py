"""PostgreSQL's receive and send functions on whole columns: binary form to stored form and back.

Called by COPY BINARY, the decoder of pgoutput with ``binary = true``, the parallel initial copy, and the server for clients
that ask for binary. A column of values is a byte buffer with the start and the length of each value (-1: NULL), so that
nothing is cut into Python objects. Fixed widths, text, bytea, numeric, dates and times are read with NumPy; the rest goes
value by value through `binary_value`.

What must hold: malformed bytes end in 22P03, 08P01 or 22021, never in an IndexError; ``read_binary(write_binary(x)) == x``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.settings.encoding import UTF8, Encoding
from headgate.types import buffers
from headgate.types import registry as r
from headgate.types.binary import binary_numeric, binary_value
from headgate.types.buffers import Bytes, Positions
from headgate.types.datetime import calendar, timestamp, timestamp_input
from headgate.types.storage import arrow_type
from headgate.types.text import string, text
from headgate.types.text.encoded import decoded, encoded

Lengths = npt.NDArray[np.int32]

_INTEGERS = {
    r.BOOL: ("u1", pa.uint8()),
    r.INT2: (">i2", pa.int16()),
    r.INT4: (">i4", pa.int32()),
    r.INT8: (">i8", pa.int64()),
    r.OID: (">u4", pa.int64()),
    r.XID: (">u4", pa.int64()),
    r.CID: (">u4", pa.int64()),
    r.FLOAT4: (">f4", pa.float32()),
    r.FLOAT8: (">f8", pa.float64()),
    r.DATE: (">i4", pa.int32()),
    r.TIMESTAMP: (">i8", pa.int64()),
    r.TIMESTAMPTZ: (">i8", pa.int64()),
}
_EARLY_DAY, _LATE_DAY = np.iinfo(np.int32).min, np.iinfo(np.int32).max
_EARLY_MICROS, _LATE_MICROS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""-infinity and infinity on the wire."""
TEXTS = frozenset({r.TEXT, r.VARCHAR, r.BPCHAR, r.NAME, r.JSON, r.XML, r.UNKNOWN, r.REFCURSOR, r.CSTRING})
"""Types whose binary form is their text."""


def read_binary(
    data: Bytes,
    starts: Positions,
    lengths: Lengths,
    oid: int,
    typmod: int = -1,
    *,
    registry: r.TypeRegistry | None = None,
    encoding: Encoding = UTF8,
) -> pa.Array:
    """Reads a column of binary forms, whose text is in `encoding`: an array of ``arrow_type(oid, typmod)``.

    `data` is the whole buffer (uint8), `starts` (int64) and `lengths` (int32, -1 for NULL) one entry per value. Errors as
    `headgate.types.text.text.read_text` for values that do not fit, 22P03 for bytes that are no value of the type.
    """
    types = registry or r.known()
    oid, typmod = types.base(oid, typmod)
    if not len(starts):
        return pa.nulls(0, arrow_type(oid, typmod))
    sizes = np.asarray(lengths, np.int64)
    present = sizes >= 0
    mask = None if present.all() else present
    sizes = np.maximum(sizes, 0)
    if int(starts.min()) < 0 or int((starts + sizes).max()) > len(data):
        raise PostgresError("08P01", "insufficient data left in message")
    return _read(data, starts, sizes, mask, oid, typmod, Kinds(types, encoding))


@dataclass(frozen=True)
class Kinds:
    """What the values of one conversion have in common: the types, and the encoding of their text."""

    types: r.TypeRegistry
    encoding: Encoding


def _read(data: Bytes, starts: Positions, sizes: Positions, mask: buffers.Mask | None, oid: int, typmod: int, kinds: Kinds) -> pa.Array:
    if oid in _INTEGERS:
        return _read_fixed(data, starts, sizes, mask, oid, typmod)
    if oid == r.NUMERIC:
        return binary_numeric.read(data, starts, sizes, mask, typmod)
    if oid == r.BYTEA:
        return buffers.strings(*buffers.gather(data, starts, sizes), mask, pa.binary())
    if oid == r.UUID:
        return _read_uuid(data, starts, sizes, mask)
    if oid == r.JSONB:
        if ((sizes < 1) if mask is None else (sizes < 1) & mask).any():
            raise PostgresError("08P01", "insufficient data left in message")
        versions = data[starts] if mask is None else data[starts[mask]]
        if len(versions) and (versions != 1).any():
            raise PostgresError("XX000", f"unsupported jsonb version number {int(versions[versions != 1][0])}")
        starts, sizes = starts + 1, np.maximum(sizes - 1, 0)
    types = kinds.types
    found = types.find(oid)
    if oid in TEXTS or oid == r.JSONB or found is None or found.kind is r.TypeKind.ENUM:
        raw = buffers.strings(*buffers.gather(data, starts, sizes), mask, pa.binary())
        shown = utf8(raw) if kinds.encoding.unicode else decoded(raw, kinds.encoding).cast(pa.string())
        return (
            text.read_text(shown, oid, typmod, registry=types)
            if typmod >= 0 or oid in (r.NAME, r.JSON, r.JSONB)
            else string.read_text(shown)
        )
    values = _slices(data, starts, sizes, mask)
    shown = pa.array([None if each is None else binary_value.receive(each, oid, kinds) for each in values], pa.string())
    return text.read_text(shown, oid, typmod, registry=types) if typmod >= 0 else shown


def _slices(data: Bytes, starts: Positions, sizes: Positions, mask: buffers.Mask | None) -> list[bytes | None]:
    cut: list[bytes | None] = buffers.strings(*buffers.gather(data, starts, sizes), mask, pa.large_binary()).to_pylist()
    return cut


def utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text; 22021 if they are not UTF-8."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        for each in values.to_pylist():
            if each is not None:
                _check_utf8(each)
        raise


def _check_utf8(value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        shown = " ".join(f"0x{byte:02x}" for byte in value[error.start : max(error.end, error.start + 1)])
        raise PostgresError("22021", f'invalid byte sequence for encoding "UTF8": {shown}') from None


def fixed(data: Bytes, starts: Positions, sizes: Positions, mask: buffers.Mask | None, width: int) -> Bytes:
    """The bytes of values that all have `width` bytes, one row each; a NULL's row is of zeros. 22P03 for another length."""
    wrong = sizes != width
    if mask is not None:
        wrong &= mask
    if wrong.any():
        raise PostgresError("22P03", "incorrect binary data format")
    if mask is None:
        return buffers.rows_at(data, starts, width)
    rows = np.zeros((len(starts), width), np.uint8)
    rows[mask] = buffers.rows_at(data, starts[mask], width)
    return rows


def _read_fixed(data: Bytes, starts: Positions, sizes: Positions, mask: buffers.Mask | None, oid: int, typmod: int) -> pa.Array:
    code, plain = _INTEGERS[oid]
    kind = np.dtype(code)
    values = fixed(data, starts, sizes, mask, kind.itemsize).view(kind).ravel()
    values = values.astype(plain.to_pandas_dtype())
    if oid == r.DATE:
        values = _days(values, mask)
    elif oid in (r.TIMESTAMP, r.TIMESTAMPTZ):
        values = _micros(values, mask)
    array = pa.Array.from_buffers(plain, len(values), [buffers.validity(mask), pa.py_buffer(np.ascontiguousarray(values))])
    if oid == r.BOOL:
        return pc.not_equal(array, pa.scalar(0, pa.uint8()))
    if oid in (r.TIMESTAMP, r.TIMESTAMPTZ):
        array = timestamp.rounded(array, oid, typmod)
    return pc.cast(array, arrow_type(oid, typmod))


def _days(values: npt.NDArray[np.int32], mask: buffers.Mask | None) -> npt.NDArray[np.int32]:
    late, early = values == _LATE_DAY, values == _EARLY_DAY
    days = np.where(late | early, 0, values.astype(np.int64)) + calendar.EPOCH_DAYS
    if (days < timestamp_input.MIN_DAYS).any() or (days >= timestamp_input.END_DAYS).any():
        raise PostgresError("22008", "date out of range")
    return np.select([late, early], [calendar.INFINITE_DAY, -calendar.INFINITE_DAY], days).astype(np.int32)


def _micros(values: npt.NDArray[np.int64], mask: buffers.Mask | None) -> npt.NDArray[np.int64]:
    late, early = values == _LATE_MICROS, values == _EARLY_MICROS
    values = np.where(late | early, 0, values)
    if (values < timestamp_input.MIN_MICROS - calendar.EPOCH_MICROS).any() or (
        values >= timestamp_input.END_MICROS - calendar.EPOCH_MICROS
    ).any():
        raise PostgresError("22008", "timestamp out of range")
    if (values >= np.iinfo(np.int64).max - calendar.EPOCH_MICROS).any():
        raise timestamp_input.not_storable(timestamp.print_timestamp(int(values.max()) + calendar.EPOCH_MICROS))
    return np.select([late, early], [calendar.INFINITE_MICROS, -calendar.INFINITE_MICROS], values + calendar.EPOCH_MICROS)


def _read_uuid(data: Bytes, starts: Positions, sizes: Positions, mask: buffers.Mask | None) -> pa.StringArray:
    digits = string.HEX[fixed(data, starts, sizes, mask, 16)].view(np.uint8).reshape(len(starts), 32)
    shown = np.full((len(starts), 36), ord("-"), np.uint8)
    for target, source, size in ((0, 0, 8), (9, 8, 4), (14, 12, 4), (19, 16, 4), (24, 20, 12)):
        shown[:, target : target + size] = digits[:, source : source + size]
    return buffers.strings(shown.ravel(), np.arange(len(starts) + 1) * 36, mask, pa.string())


def write_binary(
    array: pa.Array | pa.ChunkedArray, oid: int, typmod: int = -1, *, registry: r.TypeRegistry | None = None, encoding: Encoding = UTF8
) -> pa.LargeBinaryArray:
    """The binary forms of a column in stored form, NULL = null; text in `encoding`."""
    if isinstance(array, pa.ChunkedArray):
        chunks = [write_binary(chunk, oid, typmod, registry=registry, encoding=encoding) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.large_binary())
    types = registry or r.known()
    oid, _ = types.base(oid)
    found = types.find(oid)
    if oid in _INTEGERS:
        return _write_fixed(array, oid)
    if oid == r.NUMERIC:
        return binary_numeric.write(array)
    if oid == r.BYTEA:
        return array.cast(pa.large_binary())
    if oid in TEXTS or found is None or found.kind is r.TypeKind.ENUM:
        return encoded(array, encoding).cast(pa.large_binary())
    if oid == r.JSONB:
        return pc.binary_join_element_wise(
            pa.scalar(b"\x01", pa.large_binary()), encoded(array, encoding).cast(pa.large_binary()), pa.scalar(b"", pa.large_binary())
        )
    if oid == r.UUID:
        return _write_uuid(array)
    kinds = Kinds(types, encoding)
    values = [None if each is None else binary_value.send(each, oid, kinds) for each in array.to_pylist()]
    return pa.array(values, pa.large_binary())


def fixed_rows(rows: Bytes, mask: buffers.Mask | None) -> pa.LargeBinaryArray:
    """Rows of bytes as values of one width; a NULL takes none."""
    width = rows.shape[1]
    sizes = np.full(len(rows), width, np.int64)
    if mask is not None:
        sizes[~mask] = 0
        rows = rows[mask]
    return buffers.strings(rows.ravel(), buffers.offsets_of(sizes), mask, pa.large_binary())


def _write_fixed(array: pa.Array, oid: int) -> pa.LargeBinaryArray:
    code, plain = _INTEGERS[oid]
    mask = buffers.valid(array)
    numbers = array.cast(plain)
    values = np.asarray((numbers.fill_null(0) if mask is not None else numbers).to_numpy(zero_copy_only=False))
    if oid == r.DATE:
        ends = values == calendar.INFINITE_DAY, values == -calendar.INFINITE_DAY
        values = np.select(ends, (_LATE_DAY, _EARLY_DAY), values.astype(np.int64) - calendar.EPOCH_DAYS)
    elif oid in (r.TIMESTAMP, r.TIMESTAMPTZ):
        ends = values == calendar.INFINITE_MICROS, values == -calendar.INFINITE_MICROS
        moved = np.where(ends[0] | ends[1], 0, values) - calendar.EPOCH_MICROS
        values = np.select(ends, (_LATE_MICROS, _EARLY_MICROS), moved)
    kind = np.dtype(code)
    return fixed_rows(values.astype(kind).view(np.uint8).reshape(len(array), kind.itemsize), mask)


def _write_uuid(array: pa.StringArray) -> pa.LargeBinaryArray:
    mask = buffers.valid(array)
    data, offsets = buffers.packed(array)
    if mask is not None:
        offsets = offsets[:-1][mask]
        rows = buffers.rows_at(data, offsets, 36)
    else:
        rows = data.reshape(-1, 36)
    digits = string.DIGIT[rows[:, [place for place in range(36) if place not in (8, 13, 18, 23)]]]
    raw: Bytes = (digits[:, 0::2] << 4 | digits[:, 1::2]).astype(np.uint8)
    if mask is None:
        return fixed_rows(raw, None)
    full = np.zeros((len(array), 16), np.uint8)
    full[mask] = raw
    return fixed_rows(full, mask)
