"""DataRow and CopyData messages for whole record batches (manual, 55.7).

The values of a result are text columns in Arrow. `data_rows` builds the messages of a batch in one buffer: for each row the header, then
for each column the length and the bytes. Arrow's element-wise join copies them, so no Python loop runs over rows. Called by the portal
(SELECT) and by COPY OUT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.types import buffers

ROWS_A_PIECE = 32_768
"""The number of rows joined at once. It keeps the offsets below 2 GiB and the working set in the CPU cache."""


def data_rows(columns: Sequence[pa.Array], rows: int) -> Iterator[memoryview]:
    """Yield the DataRow messages of `rows` rows. A column is a string or binary array; null is NULL."""
    for start in range(0, rows, ROWS_A_PIECE):
        yield _piece([as_binary(column.slice(start, ROWS_A_PIECE)) for column in columns], min(ROWS_A_PIECE, rows - start))


def copy_data(lines: pa.Array) -> Iterator[memoryview]:
    """Yield one CopyData message for each element. A single value is not copied: it may be large."""
    if len(lines) == 1:
        value = memoryview(lines[0].as_buffer())
        yield memoryview(b"d" + (len(value) + 4).to_bytes(4, "big"))
        yield value
        return
    for start in range(0, len(lines), ROWS_A_PIECE):
        values = as_binary(lines.slice(start, ROWS_A_PIECE))
        headers = np.empty((len(values), 5), np.uint8)
        headers[:, 0] = ord("d")
        headers[:, 1:] = _big_endian(_lengths(values) + 4)
        yield _join([_fixed(headers), values])


def _piece(columns: list[pa.LargeBinaryArray], rows: int) -> memoryview:
    sizes = np.full(rows, 6 + 4 * len(columns), np.int64)
    parts: list[pa.Array] = []
    for column in columns:
        lengths = _lengths(column)
        sizes += lengths
        if column.null_count:
            lengths = np.where(_nulls(column), -1, lengths)
        parts += [_fixed(_big_endian(lengths)), column]
    headers = np.empty((rows, 7), np.uint8)
    headers[:, 0] = ord("D")
    headers[:, 1:5] = _big_endian(sizes)
    headers[:, 5:] = np.frombuffer(len(columns).to_bytes(2, "big"), np.uint8)
    return _join([_fixed(headers), *parts])


def _join(parts: list[pa.Array]) -> memoryview:
    if len(parts) == 1:
        joined = parts[0]
    else:
        empty = pa.scalar(b"", pa.large_binary())
        joined = pc.binary_join_element_wise(*parts, empty, null_handling="replace", null_replacement="")
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def as_binary(column: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """Return the column as large_binary. Strings keep their UTF-8 bytes."""
    column = buffers.whole(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_binary())
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    return column.cast(pa.large_binary())


def _lengths(column: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    return np.where(_nulls(column), 0, lengths) if column.null_count else lengths


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _big_endian(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    return numbers.astype(">i4").view(np.uint8).reshape(len(numbers), 4)


def _fixed(table: npt.NDArray[np.uint8]) -> pa.LargeBinaryArray:
    rows, width = table.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))])
