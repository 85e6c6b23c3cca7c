"""Columns of text in a client's encoding, and back: `settings.encoding` in bulk.

Called where rows go to or come from a client: results, COPY, the binary forms of text, the walsender. A column is converted in one piece:
its values with a zero byte between them, which no text has and no encoding uses for anything else.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.settings.encoding import Encoding
from headgate.types import buffers
from headgate.types.buffers import Bytes, Mask, Positions


def encoded(values: pa.Array, encoding: Encoding) -> pa.Array:
    """Strings as bytes in the encoding, NULL = null; the strings themselves where their bytes are the same. 22P05."""
    if encoding.unicode or not len(values):
        return values
    data, offsets = buffers.packed(values)
    if not (data & 0x80).any():
        return values
    text = _divided(data, offsets).decode()
    return _values(encoding.encode(text), buffers.valid(values), pa.large_binary())


def as_strings(values: pa.Array) -> pa.Array:
    """Text in any encoding as strings, for who tells by an array's kind that it is text; nobody may read them as UTF-8."""
    if not pa.types.is_large_binary(values.type):
        return values
    return buffers.strings(*buffers.packed(values), buffers.valid(values), pa.large_string())


def decoded(values: pa.Array, encoding: Encoding) -> pa.Array:
    """A client's bytes as strings, NULL = null. 22021, 22P05."""
    data, offsets = buffers.packed(values)
    if not len(values) or (not (data & 0x80).any() and data.all()):
        return buffers.strings(data, offsets, buffers.valid(values), pa.large_string())
    try:
        if not data.all():
            raise ValueError("a value with a zero byte")
        text = encoding.decode_divided(_divided(data, offsets))
    except ValueError:
        for each in values.to_pylist():
            encoding.decode(each or b"")
        raise
    return _values(text.encode(), buffers.valid(values), pa.large_string())


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


def _divided(data: Bytes, offsets: Positions) -> bytes:
    """The values with a zero byte between them."""
    return np.insert(data, offsets[1:-1], 0).tobytes()


def _values(divided: bytes, mask: Mask | None, kind: pa.DataType) -> pa.Array:
    """What was divided, as an array."""
    data = np.frombuffer(divided, np.uint8)
    ends = np.append(np.flatnonzero(data == 0), len(data))
    return buffers.strings(data[data != 0], np.append(0, ends - np.arange(len(ends))), mask, kind)
