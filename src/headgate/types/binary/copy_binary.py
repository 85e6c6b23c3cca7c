"""The framing of COPY … (FORMAT binary): finds the values of each row, and builds rows from columns (manual, COPY, File Formats).

Called by the initial copy (walreceiver, subscriber) and by COPY in commands. A row is an int16 count, then per column an int32 length
(-1: NULL) and the bytes. The start of a row is known only from the row before it. To avoid a Python loop over rows, all positions that look
like the start of a row are tried at once. The true ones are those that can be reached from the first, found by doubling the length of the
jumps. Rows of one shape, the most common case, are found by their stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import buffers
from headgate.types.buffers import Bytes, Numbers

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
HEADER = SIGNATURE + bytes(8)
TRAILER = b"\xff\xff"
HEADER_READ = 19
"""The bytes that contain the length of the header."""
ALLOCATED = 0x3FFFFFFF
"""MaxAllocSize: PostgreSQL cannot hold a value of so many bytes."""
_WINDOW = 8 << 20
"""The bytes in which rows are searched at a time: each may be a candidate for the start of a row."""


@dataclass(frozen=True)
class CopyRows:
    """Whole rows found in a chunk: per column the start of each value in the chunk and its length (-1: NULL).

    `consumed` bytes of the chunk are used, the rest belongs to the next chunk. `ended` is set after the trailer.
    """

    starts: tuple[Numbers, ...]
    lengths: tuple[npt.NDArray[np.int32], ...]
    consumed: int
    ended: bool

    @property
    def row_count(self) -> int:
        return len(self.starts[0]) if self.starts else 0


def header_length(chunk: bytes | memoryview) -> int | None:
    """Return the length of the header with its extension, or None if more bytes are needed. Raise 22P04 if it is not a header."""
    head = bytes(chunk[:HEADER_READ])
    if not SIGNATURE.startswith(head[:11]) and not head.startswith(SIGNATURE):
        raise PostgresError("22P04", "COPY file signature not recognized")
    if len(head) < HEADER_READ:
        return None
    critical = int.from_bytes(head[11:13], "big")
    if critical & 1:
        raise PostgresError("22P04", "invalid COPY file header (WITH OIDS)")
    if critical:
        raise PostgresError("22P04", "unrecognized critical flags in COPY file header")
    extension = int.from_bytes(head[15:19], "big", signed=True)
    if extension < 0:
        raise PostgresError("22P04", "invalid COPY file header (missing length)")
    return HEADER_READ + extension


def read_copy_binary(chunk: bytes | memoryview | Bytes, columns: int, *, at: int = 0) -> CopyRows:
    """Find the whole rows of a chunk from byte `at` (the end of the header, or 0 in a later chunk).

    Raise 22P04 if the first row has another number of columns or a negative length. A later row like this is left for the next call.
    """
    data = chunk if isinstance(chunk, np.ndarray) else np.frombuffer(chunk, np.uint8)
    blocks: list[tuple[Numbers, ...]] = []
    place, ended = at, False
    while not ended:
        count = int.from_bytes(data[place : place + 2].tobytes(), "big", signed=True)
        if len(data) - place < 2:
            break
        if count == -1:
            place, ended = place + 2, True
            break
        whole, end = _fields(data, place, columns)
        error = _refused(data, end) if whole < columns else None
        if count != columns:
            error = PostgresError("22P04", f"row field count is {count}, expected {columns}")
        if error is not None and not blocks:
            raise error
        if error is not None or whole < columns:
            break
        if end - place > _WINDOW:
            starts, place = np.array([place], np.int64), end
        else:
            window = data[: place + _WINDOW] if columns else data
            starts, place = _one_shape(window, place, end, columns) or _chain(window, place, columns)
        blocks.append((starts,) if columns else ())
        if not columns:
            break
    return _columns(data, blocks, columns, place, ended)


def _length_at(data: Bytes, positions: Numbers) -> Numbers:
    """Return the int32 at each position."""
    value = data[positions].astype(np.int64) << 24
    value |= data[positions + 1].astype(np.int64) << 16
    value |= data[positions + 2].astype(np.int64) << 8
    value |= data[positions + 3]
    return (value ^ 0x80000000) - 0x80000000


def whole_fields(row: bytes, columns: int) -> int | None:
    """Return how many fields at the begin of a row are whole, or None if it has not this number of columns."""
    if len(row) < 2 or int.from_bytes(row[:2], "big", signed=True) != columns:
        return None
    return _fields(np.frombuffer(row, np.uint8), 0, columns)[0]


def _fields(data: Bytes, place: int, columns: int) -> tuple[int, int]:
    """Return how many fields of the row at `place` are whole, and where the last of them ends."""
    place += 2
    for field in range(columns):
        size = _size_at(data, place)
        if size is None or _refused(data, place) or place + 4 + max(size, 0) > len(data):
            return field, place
        place += 4 + max(size, 0)
    return columns, place


def _size_at(data: Bytes, place: int) -> int | None:
    return int.from_bytes(data[place : place + 4].tobytes(), "big", signed=True) if place + 4 <= len(data) else None


def _refused(data: Bytes, place: int) -> PostgresError | None:
    """Return the error for the size of the field at `place`, if PostgreSQL refuses it."""
    size = _size_at(data, place)
    if size is None or -1 <= size < ALLOCATED:
        return None
    if size < -1:
        return PostgresError("22P04", "invalid field size")
    return PostgresError("54000", "out of memory", detail=f"Cannot enlarge string buffer containing 0 bytes by {size} more bytes.")


def _one_shape(data: Bytes, place: int, end: int, columns: int) -> tuple[Numbers, int] | None:
    """Return the starts and the end of the consecutive rows from `place` with the lengths of the first, which ends at `end`, if many."""
    size = end - place
    rows = (len(data) - place) // size
    if rows < 16:
        return None
    table = np.lib.stride_tricks.as_strided(data[place:], (rows, size), (size, 1), writeable=False)
    fixed, offset = [0, 1], 2
    for _ in range(columns):
        fixed += range(offset, offset + 4)
        offset += 4 + max(int.from_bytes(data[place + offset : place + offset + 4].tobytes(), "big", signed=True), 0)
    probe = (table[:16, fixed] == table[0, fixed]).all()
    if not probe:
        return None
    same = np.ones(rows, np.bool_)
    for column in fixed:
        same &= table[:, column] == table[0, column]
    count = rows if same.all() else int(np.argmin(same))
    return place + np.arange(count, dtype=np.int64) * size, place + count * size


def _chain(data: Bytes, place: int, columns: int) -> tuple[Numbers, int]:
    """Return the starts of the whole rows from `place` on, whatever their shapes, and the end of the last. The first must be complete."""
    part = data[place:]
    candidates = np.flatnonzero((part[:-1] == columns >> 8) & (part[1:] == columns & 0xFF)).astype(np.int64) + place
    ends = candidates + 2
    alive = np.arange(len(candidates))
    for _ in range(columns):
        inside = ends[alive] + 4 <= len(data)
        alive = alive[inside]
        sizes = _length_at(data, ends[alive])
        is_valid = (sizes >= -1) & (sizes <= len(data))
        alive, sizes = alive[is_valid], sizes[is_valid]
        ends[alive] += 4 + np.maximum(sizes, 0)
    alive = alive[ends[alive] <= len(data)]
    starts, ends = candidates[alive], ends[alive]
    reached = _reachable(starts, ends)
    return starts[reached], int(ends[reached[-1]])


def _reachable(starts: Numbers, ends: Numbers) -> Numbers:
    """Return the indexes of the candidates reachable from the first. Each leads to the one that starts where it ends."""
    stop = len(starts)
    following = np.searchsorted(starts, ends)
    hit = following < stop
    hit[hit] = starts[following[hit]] == ends[hit]
    jump = np.append(np.where(hit, following, stop), stop)
    reached = np.zeros(1, np.int64)
    while True:
        next_ones = jump[reached]
        next_ones = next_ones[next_ones < stop]
        reached = np.concatenate([reached, next_ones])
        if len(next_ones) < len(reached) - len(next_ones):
            return reached
        jump = jump[jump]


def _columns(data: Bytes, blocks: list[tuple[Numbers, ...]], columns: int, consumed: int, ended: bool) -> CopyRows:
    rows = np.concatenate([block[0] for block in blocks]) if blocks and columns else np.zeros(0, np.int64)
    positions = rows + 2
    starts: list[Numbers] = []
    lengths: list[npt.NDArray[np.int32]] = []
    for _ in range(columns):
        sizes = _length_at(data, positions)
        starts.append(positions + 4)
        lengths.append(sizes.astype(np.int32))
        positions = positions + 4 + np.maximum(sizes, 0)
    return CopyRows(tuple(starts), tuple(lengths), consumed, ended)


def write_copy_binary(columns: Sequence[pa.Array]) -> bytes:
    """Return rows (without header and trailer) of columns in binary form, as `headgate.types.binary.binary.write_binary` returns them."""
    if not columns:
        return b""
    nothing = pa.scalar(b"", pa.large_binary())
    pieces: list[pa.Array | pa.Scalar] = [pa.scalar(len(columns).to_bytes(2, "big"), pa.large_binary())]
    for column in columns:
        pieces += [_length_prefixes(column), pc.fill_null(column, b"")]
    data, _ = buffers.view(pc.binary_join_element_wise(*pieces, nothing))
    return data.tobytes()


def _length_prefixes(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    _, offsets = buffers.packed(column)
    mask = buffers.valid(column)
    sizes = np.diff(offsets) if mask is None else np.where(mask, np.diff(offsets), -1)
    return buffers.strings(sizes.astype(">i4").view(np.uint8), np.arange(len(sizes) + 1) * 4, None, pa.large_binary())
