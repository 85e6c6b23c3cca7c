"""Converts Arrow string or binary columns to NumPy arrays and back: the bytes, the start of each value, the NULL mask.

Used by all code that processes bytes in bulk: `string` (bytea), `binary` (COPY BINARY), `copy_text`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_COLUMN_BYTES = 1_536
"""Measured: a table of one row takes 4.5 kB with 3 columns, and 45 kB with 30."""


def view(array: pa.Array) -> tuple[Bytes, Numbers]:
    """Return (data, offsets) of a string or binary array: value i is ``data[offsets[i]:offsets[i + 1]]``. Offsets start at 0.

    NULLs may have bytes. Use `packed` if they must not.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    if len(array) == 0:
        offsets = np.zeros(1, np.int64)
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def field(rows: pa.StructArray, name: str) -> pa.Array:
    """Return a field of structs, NULL if the struct is. It is found by index, as Arrow reads a name that begins with a dot as a path."""
    return pc.struct_field(rows, [rows.type.get_field_index(name)])


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. If it is one already, it is not copied, whereas `combine_chunks` always copies."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def memory(rows: pa.Table) -> int:
    """Return about how many bytes of memory a table takes. Arrow needs more than a kilobyte for each column, however few the rows."""
    return int(rows.nbytes + _COLUMN_BYTES * (1 + sum(map(_columns, rows.schema.types))))


def _columns(kind: pa.DataType) -> int:
    """Return the number of arrays that a column of a type consists of."""
    return 1 + (sum(_columns(kind.field(index).type) for index in range(kind.num_fields)) if pa.types.is_nested(kind) else 0)


def packed(array: pa.Array) -> tuple[Bytes, Numbers]:
    """Return the same as `view`, but with all NULLs of length 0."""
    if array.null_count:
        filler = pa.scalar("" if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) else b"", array.type)
        array = pc.fill_null(array, filler)
    return view(array)


def valid(array: pa.Array) -> Mask | None:
    """Return a mask that is True for values that are not NULL, or None if none is NULL."""
    return None if array.null_count == 0 else np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)


def validity(mask: Mask | None) -> pa.Buffer | None:
    """Return the validity bitmap for a mask of values that are not NULL."""
    return None if mask is None or mask.all() else pa.py_buffer(np.packbits(mask, bitorder="little"))


def offsets_of(lengths: Numbers) -> Numbers:
    """Return the offsets of contiguous values with these lengths, with the end of the last."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def strings(data: Bytes, offsets: Numbers, mask: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return a string or binary array over `data`, with 64-bit offsets if `kind` is a large type. The data is not validated."""
    wide = kind in (pa.large_string(), pa.large_binary())
    typed_offsets = np.ascontiguousarray(offsets, np.int64 if wide else np.int32)
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [validity(mask), pa.py_buffer(typed_offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def single(content: pa.Buffer | bytes | npt.NDArray[np.generic]) -> pa.Array:
    """Return a large_binary array with these bytes, not copied, as its only element."""
    data = np.frombuffer(content, np.uint8)
    return strings(data, np.array([0, len(data)]), None, pa.large_binary())


def letters(codes: Bytes) -> pa.Array:
    """Return a string array of one ASCII character for each byte."""
    return strings(codes, np.arange(len(codes) + 1), None, pa.string())


def gather(data: Bytes, starts: Numbers, sizes: Numbers) -> tuple[Bytes, Numbers]:
    """Return the bytes of the values that start at `starts`, contiguous, and their offsets.

    Values in ascending order, the usual case, are taken by Arrow from an array that alternates between a value and the gap after it.
    """
    if not len(starts):
        return data[:0], np.zeros(1, np.int64)
    ends = starts + sizes
    if (ends[:-1] > starts[1:]).any():
        offsets = offsets_of(sizes)
        return data[np.repeat(starts - offsets[:-1], sizes) + np.arange(int(offsets[-1]))], offsets
    boundaries = np.empty(2 * len(starts), np.int64)
    boundaries[0::2], boundaries[1::2] = starts, ends
    whole = strings(data, boundaries, None, pa.large_binary())
    return view(whole.take(pa.array(np.arange(0, 2 * len(starts) - 1, 2))))


def rows_at(data: Bytes, starts: Numbers, width: int) -> Bytes:
    """Return the `width` bytes at each start, one row each."""
    if not len(starts) or not width:
        return np.zeros((len(starts), width), np.uint8)
    windows = np.lib.stride_tricks.as_strided(data, (len(data) - width + 1, width), (1, 1), writeable=False)
    return np.ascontiguousarray(windows[starts])


def not_utf8(values: pa.BinaryArray) -> PostgresError:
    """Return 22021 for the first value that is not UTF-8."""
    for value in values:
        try:
            (value.as_py() or b"").decode()
        except UnicodeDecodeError as error:
            shown = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : max(error.end, error.start + 1)])
            return PostgresError("22021", f'invalid byte sequence for encoding "UTF8": {shown}')
    return PostgresError("22021", 'invalid byte sequence for encoding "UTF8"')
