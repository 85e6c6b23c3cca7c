"""The binary form of arrays, one value at a time: array_recv and array_send.

Called by `binary`, which reads and writes their elements as a column.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import registry as r
from headgate.types.text import array, text


def receive(raw: bytes, array_type: r.PgType, types: r.TypeRegistry, encoding: Encoding) -> str:
    """Return the text form of one array. Raise 22P03 for malformed bytes, 42804 for elements of another type."""
    from headgate.types.binary import binary  # a circular import

    try:
        shape, element, items = array.take_apart(raw)
    except (struct.error, ValueError) as error:
        raise PostgresError("22P03", "incorrect binary data format") from error
    if element != array_type.element:
        raise PostgresError("42804", "wrong element type")
    lengths = np.array([-1 if item is None else len(item) for item in items], np.int32)
    starts = np.cumsum(np.maximum(lengths, 0), dtype=np.int64) - np.maximum(lengths, 0)
    data = np.frombuffer(b"".join(item for item in items if item is not None), np.uint8)
    typed = binary.read_binary(data, starts, lengths, element, registry=types, encoding=encoding)
    values = text.write_text(typed, element, registry=types)
    return array.print_array(shape, values.to_pylist(), types.by_oid(element).delimiter)


def send(value: str, array_type: r.PgType, types: r.TypeRegistry, encoding: Encoding) -> bytes:
    from headgate.types.binary import binary

    shape, items = array.parse(value, types.by_oid(array_type.element).delimiter)
    values = text.read_text(pa.array(items, pa.string()), array_type.element, registry=types)
    sent: list[bytes | None] = binary.write_binary(values, array_type.element, registry=types, encoding=encoding).to_pylist()
    return array.put_together(shape, array_type.element, sent)
