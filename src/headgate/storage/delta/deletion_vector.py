"""Deletion vectors: the deleted rows of a Parquet file (Delta protocol, Deletion Vector Format).

Read and written here without Spark, for writes of a few thousand rows. Delta's own Spark job makes large ones
(`delta_table.DeltaTable.deletions`). A vector is a RoaringBitmapArray in its portable form: a magic number, a count, and for each upper
half of 32 bits a bitmap in the portable format of the Roaring specification. Its containers hold 65,536 rows each as an array (up to 4,096
values), a bitmap or runs. It is stored in a file next to the data, several to a file, or inline in Z85.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import PostgresError
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

Rows = npt.NDArray[np.int64]


class DeletionVector(TypedDict):
    """The `deletionVector` of an action."""

    storageType: str
    pathOrInlineDv: str
    sizeInBytes: int
    cardinality: int
    offset: NotRequired[int]


_MAGIC = 1681511377
_NO_RUNS, _RUNS = 12346, 12347
_ARRAY_MOST = 4096
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGIT = {c: i for i, c in enumerate(_Z85)}


def z85(data: bytes) -> str:
    """Return the Z85 text of bytes whose number is a multiple of 4 (ZeroMQ RFC 32).

    >>> z85(bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B]))
    'HelloWorld'
    """
    out = bytearray()
    for (word,) in struct.iter_unpack(">I", data):
        out += bytes(_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return out.decode()


def unz85(text: str) -> bytes:
    """Return the bytes of Z85 text. Raise XX001 if it is not valid."""
    try:
        digits = [_DIGIT[c] for c in text.encode()]
        words = [sum(d * 85**p for d, p in zip(digits[i : i + 5], (4, 3, 2, 1, 0), strict=True)) for i in range(0, len(digits), 5)]
        return b"".join(struct.pack(">I", word) for word in words)
    except (KeyError, ValueError, struct.error) as error:
        raise PostgresError("XX001", "deletion vector is not valid Z85") from error


def serialise(rows: Rows) -> bytes:
    """Return the portable form of sorted, distinct row numbers."""
    high = rows >> 32
    keys = np.unique(high)
    out = [struct.pack("<Iq", _MAGIC, len(keys))]
    for key in keys:
        out.append(struct.pack("<I", int(key)))
        out.append(_bitmap32((rows[high == key] & 0xFFFFFFFF).astype(np.uint32)))
    return b"".join(out)


def _bitmap32(values: npt.NDArray[np.uint32]) -> bytes:
    containers, starts = np.unique(values >> 16, return_index=True)
    ends = np.append(starts[1:], len(values))
    low = (values & 0xFFFF).astype("<u2")
    header = np.empty((len(containers), 2), "<u2")
    header[:, 0] = containers
    header[:, 1] = ends - starts - 1
    bodies = [_container(low[start:end]) for start, end in zip(starts, ends, strict=True)]
    first = 8 + 8 * len(containers)
    offsets = np.cumsum([first, *[len(body) for body in bodies[:-1]]]).astype("<u4")
    return b"".join([struct.pack("<II", _NO_RUNS, len(containers)), header.tobytes(), offsets.tobytes(), *bodies])


def _container(low: npt.NDArray[np.uint16]) -> bytes:
    if len(low) <= _ARRAY_MOST:
        return low.tobytes()
    bits = np.zeros(65536, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def deserialise(data: bytes) -> Rows:
    """Return the row numbers of the portable form, ascending. Raise XX001 if it is malformed."""
    try:
        magic, count = struct.unpack_from("<Iq", data)
        if magic != _MAGIC:
            raise PostgresError("XX001", f"deletion vector has magic number {magic}")
        offset, parts = 12, []
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, offset)
            values, offset = _read_bitmap32(data, offset + 4)
            parts.append(values | (key << 32))
    except (struct.error, ValueError, IndexError) as error:
        raise PostgresError("XX001", "deletion vector is cut short") from error
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _read_bitmap32(data: bytes, offset: int) -> tuple[Rows, int]:
    (cookie,) = struct.unpack_from("<I", data, offset)
    if cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        offset += 4
        flags = np.unpackbits(np.frombuffer(data, np.uint8, (count + 7) // 8, offset), bitorder="little")[:count]
        offset += (count + 7) // 8
        has_offsets = count >= 4
    else:
        (count,) = struct.unpack_from("<I", data, offset + 4)
        offset += 8
        flags = np.zeros(count, np.uint8)
        has_offsets = True
    header = np.frombuffer(data, "<u2", 2 * count, offset).reshape(count, 2)
    offset += 4 * count + (4 * count if has_offsets else 0)
    parts = []
    for (key, less), run in zip(header.astype(np.int64), flags, strict=True):
        values, offset = _read_container(data, offset, int(less) + 1, run=bool(run))
        parts.append(values + (key << 16))
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), offset


def _read_container(data: bytes, offset: int, cardinality: int, *, run: bool) -> tuple[Rows, int]:
    if run:
        (count,) = struct.unpack_from("<H", data, offset)
        pairs = np.frombuffer(data, "<u2", 2 * count, offset + 2).reshape(count, 2).astype(np.int64)
        ranges = [np.arange(start, start + less + 1) for start, less in pairs]
        return np.concatenate(ranges), offset + 2 + 4 * count
    if cardinality <= _ARRAY_MOST:
        return np.frombuffer(data, "<u2", cardinality, offset).astype(np.int64), offset + 2 * cardinality
    bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, offset), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), offset + 8192


def file_of(table: DataPath, vector: DeletionVector | None) -> DataPath | None:
    """Return the file that holds a deletion vector, None for an inline one or no vector."""
    if vector is None or vector["storageType"] == "i":
        return None
    location = vector["pathOrInlineDv"]
    if vector["storageType"] == "u":
        prefix, encoded = location[:-20], location[-20:]
        return table / prefix / f"deletion_vector_{uuid.UUID(bytes=unz85(encoded))}.bin"
    return data_location.absolute(table, location)


def read(table: DataPath, vector: DeletionVector | None) -> Rows:
    """Return the deleted rows of a file, by the `deletionVector` of its `add` action. Raise XX001 if the vector is damaged."""
    if vector is None:
        return np.empty(0, np.int64)
    path = file_of(table, vector)
    if path is None:
        return deserialise(unz85(vector["pathOrInlineDv"])[: vector["sizeInBytes"]])
    with data_location.local(path).open("rb") as file:
        file.seek(vector.get("offset") or 0)
        stored = file.read(vector["sizeInBytes"] + 8)
    size, data, checksum = stored[:4], stored[4:-4], stored[-4:]
    if size != struct.pack(">I", len(data)) or checksum != struct.pack(">I", zlib.crc32(data)):
        raise PostgresError("XX001", f'deletion vector in file "{path}" is damaged')
    return deserialise(data)


def without(batches: Iterable[pa.RecordBatch], deleted: Rows) -> Iterator[pa.RecordBatch]:
    """Yield batches of consecutive rows, the first of which has number 0, without the deleted rows. `deleted` is ascending."""
    first = 0
    for batch in batches:
        deleted_here = deleted[np.searchsorted(deleted, first) : np.searchsorted(deleted, first + batch.num_rows)] - first
        first += batch.num_rows
        is_live = np.ones(batch.num_rows, np.bool_)
        is_live[deleted_here] = False
        yield batch.filter(pa.array(is_live)) if len(deleted_here) else batch


def write(table: DataPath, vectors: Mapping[str, Rows]) -> dict[str, DeletionVector]:
    """Write the vectors of several data files, if any, to one new file. Return the `deletionVector` of each by the data file's path."""
    if not vectors:
        return {}
    name = uuid.uuid4()
    body = bytearray([1])
    described: dict[str, DeletionVector] = {}
    for path, rows in vectors.items():
        data = serialise(rows)
        described[path] = {
            "storageType": "u",
            "pathOrInlineDv": z85(name.bytes),
            "offset": len(body),
            "sizeInBytes": len(data),
            "cardinality": len(rows),
        }
        body += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    with data_location.written(table / f"deletion_vector_{name}.bin") as target:
        target.write_bytes(body)
    return described
