"""Converts columns of text to a client's encoding and back: `settings.encoding` in bulk.

Called for rows from or to a client: results, COPY, the binary forms of text, the walsender. A column is converted as one string: its values
separated by zero bytes, which do not occur in text and which no encoding uses otherwise.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.settings.encoding import Encoding
from headgate.types import buffers
from headgate.types.buffers import Bytes, Mask, Numbers


def encoded(values: pa.Array, encoding: Encoding) -> pa.Array:
    """Return strings as bytes in the encoding, or unchanged if their bytes are the same. NULL = null. Raise 22P05."""
    if encoding.unicode or not len(values):
        return values
    data, offsets = buffers.packed(values)
    if not (data & 0x80).any():
        return values
    text = _join(data, offsets).decode()
    return _values(encoding.encode(text), buffers.valid(values), pa.large_binary())


def as_strings(values: pa.Array) -> pa.Array:
    """Return text in any encoding as a string array, for code that recognizes text by the array's type. It must not be read as UTF-8."""
    if not pa.types.is_large_binary(values.type):
        return values
    return buffers.strings(*buffers.packed(values), buffers.valid(values), pa.large_string())


def decoded(values: pa.Array, encoding: Encoding) -> pa.Array:
    """Return a client's bytes as strings, NULL = null. Raise 22021 or 22P05."""
    data, offsets = buffers.packed(values)
    if not len(values) or (not (data & 0x80).any() and data.all()):
        return buffers.strings(data, offsets, buffers.valid(values), pa.large_string())
    try:
        if not data.all():
            raise ValueError("a value with a zero byte")
        text = encoding.decode_divided(_join(data, offsets))
    except ValueError:
        for value in values.to_pylist():
            encoding.decode(value or b"")
        raise
    return _values(text.encode(), buffers.valid(values), pa.large_string())


def utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as text. Raise 22021 if they are not UTF-8."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        raise buffers.not_utf8(values) from None


def _join(data: Bytes, offsets: Numbers) -> bytes:
    """Join the values with zero bytes between them."""
    return np.insert(data, offsets[1:-1], 0).tobytes()


def _values(divided: bytes, mask: Mask | None, kind: pa.DataType) -> pa.Array:
    data = np.frombuffer(divided, np.uint8)
    ends = np.append(np.flatnonzero(data == 0), len(data))
    return buffers.strings(data[data != 0], np.append(0, ends - np.arange(len(ends))), mask, kind)
