"""PostgreSQL's receive and send functions on whole columns: binary form to stored form and back.

Called by COPY BINARY, by the pgoutput decoder with ``binary = true``, by the parallel initial copy, and by the server for clients that
request binary results. A column is a byte buffer with the start and length of each value (-1: NULL), so that values are not split into
Python objects. `base` implements base types. Enums and domains follow from their labels and base types.
`_SYSTEM_TYPES` are void and vectors, which are otherwise handled as text. Drivers that request all results in binary need them: asyncpg for
``SELECT pg_notify(…)``, ADBC for catalogs.

Invariants: malformed bytes raise 22P03, 08P01 or 22021, never an IndexError. ``read_binary(write_binary(x)) == x``.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import PostgresError, not_supported
from headgate.settings.encoding import UTF8, Encoding
from headgate.types import registry
from headgate.types import registry as r
from headgate.types.base.base_type import BaseType, Wire, received_singly, sent_singly
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.base.string import TEXT_LIKE
from headgate.types.buffers import Bytes, Numbers
from headgate.types.storage import arrow_type
from headgate.types.text import array, record, text


def _type(receive: Callable[[bytes], str], send: Callable[[str], bytes]) -> BaseType:
    return dataclasses.replace(TEXT_LIKE, receive=received_singly(receive, TEXT_LIKE.read), send=sent_singly(send), in_bulk=False)


def _vector(element: int, code: str) -> BaseType:
    """Describe numbers separated by spaces; in binary a one-dimensional array with subscripts from 0, also if it is empty."""

    def receive(raw: bytes) -> str:
        shape, element_oid, items = array.take_apart(raw)
        if element_oid != element or len(shape.lengths) > 1 or any(lower != 0 for lower in shape.lowers):
            raise ValueError("no vector")
        if None in items:
            raise ValueError("NULL")
        return " ".join(str(struct.unpack(code, item)[0]) for item in items if item is not None)

    def send(text: str) -> bytes:
        numbers = text.split()
        return array.put_together(array.Shape([len(numbers)], [0]), element, [struct.pack(code, int(value)) for value in numbers])

    return _type(receive, send)


_SYSTEM_TYPES = {
    registry.VOID: _type(lambda _raw: "", lambda _text: b""),
    registry.INT2VECTOR: _vector(registry.INT2, ">h"),
    registry.OIDVECTOR: _vector(registry.OID, ">I"),
}


_FIRST_UNSTABLE = 10_000
"""The first OID that may differ between servers (FirstGenbkiObjectId)."""


def _receive_array(raw: bytes, array_type: r.PgType, types: r.TypeRegistry, encoding: Encoding) -> str:
    """Return the text form of one array. Raise 22P03 for malformed bytes, 42804 for elements of another type."""
    try:
        shape, element, items = array.take_apart(raw)
    except (struct.error, ValueError) as error:
        raise PostgresError("22P03", "incorrect binary data format") from error
    _check_type("array element type", element, array_type.element, types)
    lengths = np.array([-1 if item is None else len(item) for item in items], np.int32)
    starts = np.cumsum(np.maximum(lengths, 0), dtype=np.int64) - np.maximum(lengths, 0)
    data = np.frombuffer(b"".join(item for item in items if item is not None), np.uint8)
    typed = read_binary(data, starts, lengths, array_type.element, registry=types, encoding=encoding)
    values = text.write_text(typed, array_type.element, registry=types)
    return array.print_array(shape, values.to_pylist(), types.by_oid(array_type.element).delimiter)


def _check_type(word: str, sent: int, expected: int, types: r.TypeRegistry, place: str = "") -> None:
    """Raise 42804 if the sender has another built-in type. OIDs of other types differ between servers."""
    if sent != expected and max(sent, expected) < _FIRST_UNSTABLE:
        names = types.format_type(sent), types.format_type(expected)
        raise PostgresError("42804", f"binary data has {word} {sent} ({names[0]}) instead of expected {expected} ({names[1]}){place}")


def _send_array(value: str, array_type: r.PgType, types: r.TypeRegistry, encoding: Encoding) -> bytes:
    shape, items = array.parse(value, types.by_oid(array_type.element).delimiter)
    values = text.read_text(pa.array(items, pa.string()), array_type.element, registry=types)
    sent: list[bytes | None] = write_binary(values, array_type.element, registry=types, encoding=encoding).to_pylist()
    return array.put_together(shape, array_type.element, sent)


def _receive_record(wire: Wire, kind: r.PgType, types: r.TypeRegistry) -> pa.StringArray:
    """Return the text forms of a column of composite values (record_recv).

    Raise 22P03 or 08P01, or 42804 if the fields differ from the type's.
    """
    count = len(kind.attributes)
    starts, lengths = np.zeros((count, len(wire.starts)), np.int64), np.full((count, len(wire.starts)), -1, np.int32)
    present = np.ones(len(wire.starts), np.bool_) if wire.mask is None else wire.mask
    data = wire.data.tobytes()
    for row in np.flatnonzero(present):
        start, end = int(wire.starts[row]), int(wire.starts[row] + wire.sizes[row])
        try:
            _take_apart(data[start:end], start, kind, types, (starts[:, row], lengths[:, row]))
        except struct.error as error:
            raise PostgresError("08P01", "insufficient data left in message") from error
    fields = []
    for index, attribute in enumerate(kind.attributes):
        oid, modifier = attribute.type_oid, attribute.typmod
        values = read_binary(wire.data, starts[index], lengths[index], oid, modifier, registry=types, encoding=wire.encoding)
        fields.append(text.write_text(values, attribute.type_oid, registry=types))
    return record.joined(fields, pa.array(present))


def _take_apart(raw: bytes, begin: int, kind: r.PgType, types: r.TypeRegistry, places: tuple[np.ndarray, np.ndarray]) -> None:
    """Record the starts and sizes of the fields of one composite value."""
    (count,) = struct.unpack_from(">i", raw)
    if count != len(kind.attributes):
        raise PostgresError("42804", f"wrong number of columns: {count}, expected {len(kind.attributes)}")
    offset = 4
    for index, attribute in enumerate(kind.attributes):
        oid, size = struct.unpack_from(">Ii", raw, offset)
        _check_type("type", oid, attribute.type_oid, types, f" in record column {index + 1}")
        offset += 8
        if size < -1 or offset + max(size, 0) > len(raw):
            raise PostgresError("08P01", "insufficient data left in message")
        places[0][index], places[1][index] = begin + offset, size
        offset += max(size, 0)
    if offset != len(raw):
        raise PostgresError("08P01", "invalid message format")


def send_record(
    values: pa.StringArray, attributes: Sequence[r.Attribute], types: r.TypeRegistry, encoding: Encoding
) -> pa.LargeBinaryArray:
    """Return the binary forms of a column of composite values in normal text form (record_send)."""
    sent: list[Sequence[bytes | None]] = []
    for attribute, texts in zip(attributes, record.columns(values, len(attributes)), strict=True):
        typed = text.read_text(texts, attribute.type_oid, attribute.typmod, registry=types)
        sent.append(write_binary(typed, attribute.type_oid, attribute.typmod, registry=types, encoding=encoding).to_pylist())
    return pa.array(
        [_put_together(attributes, [column[row] for column in sent]) if values[row].is_valid else None for row in range(len(values))],
        pa.large_binary(),
    )


def _put_together(attributes: Sequence[r.Attribute], items: Sequence[bytes | None]) -> bytes:
    out = [struct.pack(">i", len(items))]
    for attribute, item in zip(attributes, items, strict=True):
        out.append(struct.pack(">Ii", attribute.type_oid, -1 if item is None else len(item)) + (item or b""))
    return b"".join(out)


Lengths = npt.NDArray[np.int32]


def read_binary(
    data: Bytes,
    starts: Numbers,
    lengths: Lengths,
    oid: int,
    typmod: int = -1,
    *,
    registry: r.TypeRegistry | None = None,
    encoding: Encoding = UTF8,
) -> pa.Array:
    """Read a column of binary forms, whose text is in `encoding`. Return an array of ``arrow_type(oid, typmod)``.

    `data` is the whole buffer (uint8). `starts` (int64) and `lengths` (int32, -1 for NULL) have an entry per value. Raise the errors of
    `headgate.types.text.text.read_text` for values that do not fit, 22P03 for bytes that are not a value of the type.
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
    return _read(Wire(data, starts, sizes, mask, encoding), oid, typmod, types)


def _read(wire: Wire, oid: int, typmod: int, types: r.TypeRegistry) -> pa.Array:
    described = _description(oid, types)
    if described is not None:
        if described.receive is None:
            raise _no_form(oid, types)
        return described.receive(wire, typmod)
    if (composite := _composite(oid, types)) is not None:
        return _receive_record(wire, composite, types)
    array_type = _array(oid, types)
    values = [None if raw is None else _receive_array(raw, array_type, types, wire.encoding) for raw in _values(wire)]
    texts = pa.array(values, pa.string())
    return text.read_text(texts, oid, typmod, registry=types) if typmod >= 0 else texts


def _values(wire: Wire) -> list[bytes | None]:
    values: list[bytes | None] = wire.column(pa.large_binary()).to_pylist()
    return values


def _description(oid: int, types: r.TypeRegistry) -> BaseType | None:
    """Return the description that defines the type's binary form, or None for arrays, composite types and unsupported types."""
    described = BASE_TYPES.get(oid) or _SYSTEM_TYPES.get(oid)
    if described is not None:
        return described
    pg_type = types.find(oid)
    return TEXT_LIKE if pg_type is None or pg_type.kind is r.TypeKind.ENUM else None


def _composite(oid: int, types: r.TypeRegistry) -> r.PgType | None:
    pg_type = types.find(oid)
    return pg_type if pg_type is not None and pg_type.kind is r.TypeKind.COMPOSITE else None


def _array(oid: int, types: r.TypeRegistry) -> r.PgType:
    pg_type = types.by_oid(oid)
    if not pg_type.is_array:
        raise _no_form(oid, types)
    return pg_type


def _no_form(oid: int, types: r.TypeRegistry) -> PostgresError:
    return not_supported(f"binary form of type {types.format_type(oid)} is not supported")


def write_binary(
    array: pa.Array | pa.ChunkedArray, oid: int, typmod: int = -1, *, registry: r.TypeRegistry | None = None, encoding: Encoding = UTF8
) -> pa.LargeBinaryArray:
    """Return the binary forms of a column in stored form, NULL = null. Text is in `encoding`."""
    if isinstance(array, pa.ChunkedArray):
        chunks = [write_binary(chunk, oid, typmod, registry=registry, encoding=encoding) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.large_binary())
    types = registry or r.known()
    oid, _ = types.base(oid)
    described = _description(oid, types)
    if described is not None:
        if described.send is None:
            raise _no_form(oid, types)
        return described.send(array, encoding)
    if (composite := _composite(oid, types)) is not None:
        return send_record(array, composite.attributes, types, encoding)
    array_type = _array(oid, types)
    return pa.array(
        [None if value is None else _send_array(value, array_type, types, encoding) for value in array.to_pylist()], pa.large_binary()
    )
