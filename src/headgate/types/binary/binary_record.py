"""The binary form of composite values: record_recv and record_send. Fields are read and written as columns.

Called by `binary`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import registry as r
from headgate.types.base.base_type import Wire
from headgate.types.text import record, text


def receive(wire: Wire, kind: r.PgType, types: r.TypeRegistry) -> pa.StringArray:
    """Return the text forms of a column of values. Raise 22P03 or 08P01, or 42804 if the fields differ from the type's."""
    from headgate.types.binary import binary  # a circular import

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
        values = binary.read_binary(wire.data, starts[index], lengths[index], oid, modifier, registry=types, encoding=wire.encoding)
        fields.append(text.write_text(values, attribute.type_oid, registry=types))
    return record.joined(fields, pa.array(present))


def _take_apart(raw: bytes, begin: int, kind: r.PgType, types: r.TypeRegistry, places: tuple[np.ndarray, np.ndarray]) -> None:
    """Record the starts and sizes of the fields of one value."""
    (count,) = struct.unpack_from(">i", raw)
    if count != len(kind.attributes):
        raise PostgresError("42804", f"wrong number of columns: {count}, expected {len(kind.attributes)}")
    offset = 4
    for index, attribute in enumerate(kind.attributes):
        oid, size = struct.unpack_from(">Ii", raw, offset)
        if oid != attribute.type_oid:
            names = types.format_type(oid), types.format_type(attribute.type_oid)
            message = f"binary data has type {oid} ({names[0]}) instead of expected {attribute.type_oid} ({names[1]})"
            raise PostgresError("42804", f"{message} in record column {index + 1}")
        offset += 8
        if size < -1 or offset + max(size, 0) > len(raw):
            raise PostgresError("08P01", "insufficient data left in message")
        places[0][index], places[1][index] = begin + offset, size
        offset += max(size, 0)
    if offset != len(raw):
        raise PostgresError("08P01", "invalid message format")


def send(values: pa.StringArray, attributes: Sequence[r.Attribute], types: r.TypeRegistry, encoding: Encoding) -> pa.LargeBinaryArray:
    """Return the binary forms of a column of values in normal text form."""
    from headgate.types.binary import binary

    sent: list[Sequence[bytes | None]] = []
    for attribute, texts in zip(attributes, record.columns(values, len(attributes)), strict=True):
        typed = text.read_text(texts, attribute.type_oid, attribute.typmod, registry=types)
        sent.append(binary.write_binary(typed, attribute.type_oid, attribute.typmod, registry=types, encoding=encoding).to_pylist())
    return pa.array(
        [_put_together(attributes, [column[row] for column in sent]) if values[row].is_valid else None for row in range(len(values))],
        pa.large_binary(),
    )


def _put_together(attributes: Sequence[r.Attribute], items: Sequence[bytes | None]) -> bytes:
    out = [struct.pack(">i", len(items))]
    for attribute, item in zip(attributes, items, strict=True):
        out.append(struct.pack(">Ii", attribute.type_oid, -1 if item is None else len(item)) + (item or b""))
    return b"".join(out)
