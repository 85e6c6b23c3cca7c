"""Converts columns from PostgreSQL's text form to Arrow, in the types that a node stores (docs/types.md).

`postgresql` calls it for changes and for the rows of a table. The text form is that of the settings in `walsender.SETTINGS`.
Types that Spark does not have are strings.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.types import buffers
from headgate.types.datetime import calendar

_DATE, _TIMESTAMP, _TIMESTAMPTZ = pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
_TYPES = {
    16: pa.bool_(), 17: pa.binary(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 26: pa.int64(), 28: pa.int64(), 29: pa.int64(),
    700: pa.float32(), 701: pa.float64(), 1082: _DATE, 1114: _TIMESTAMP, 1184: _TIMESTAMPTZ,
}  # fmt: skip
"""The Arrow types of PostgreSQL's types by OID: boolean, bytea, numbers and times. Others but numeric are strings."""
_NUMERIC = 1700
_MOST_DIGITS = 38
_USUAL = {
    _DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    _TIMESTAMP: r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}([.][0-9]+)?$",
    _TIMESTAMPTZ: r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}([.][0-9]+)?[+]00$",
}
"""The form that Arrow reads. The others are infinity, years before 1 and years of more than four digits."""
_MOMENT = re.compile(r"([0-9]{4,})-([0-9]{2})-([0-9]{2})(?: ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.]([0-9]{1,6}))?)?(?:[+]00)?( BC)?\Z")
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def arrow_type(type_oid: int, modifier: int) -> pa.DataType:
    """Return the Arrow type of a column. `type_oid` is not that of a domain."""
    if type_oid != _NUMERIC or modifier < 4:
        return _TYPES.get(type_oid, pa.string())
    precision, scale = (modifier - 4) >> 16, ((modifier - 4) & 0x7FF ^ 0x400) - 0x400
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS and 0 <= scale <= precision else pa.string()


def read_text(texts: pa.StringArray, kind: pa.DataType, column: str) -> pa.Array:
    """Return the values of a column. Raise ValueError, which names the column and no value, if its type cannot hold one of them."""
    try:
        return _read(texts, kind)
    except (pa.ArrowInvalid, OverflowError):
        raise ValueError(f'column "{column}" has a value that the type {kind} cannot hold') from None


def _read(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    if kind == pa.bool_():
        return pc.equal(texts, "t")
    if kind == pa.binary():
        return _bytes(texts)
    return _moments(texts, kind) if kind in _USUAL else pc.cast(texts, kind)


def _bytes(texts: pa.StringArray) -> pa.BinaryArray:
    r"""Return the bytes of ``\x0a1b``."""
    data, offsets = buffers.packed(texts)
    digits = _HEX[data].reshape(-1, 2)
    content = digits[:, 0] << 4 | digits[:, 1]
    lengths = np.diff(offsets) // 2
    prefixes = offsets[:-1][lengths > 0] // 2
    return buffers.strings(np.delete(content, prefixes), buffers.offsets_of(np.maximum(lengths - 1, 0)), buffers.valid(texts), pa.binary())


def _moments(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    usual = pc.match_substring_regex(texts, _USUAL[kind])
    chosen = pc.if_else(usual, texts, None)
    if kind == _TIMESTAMPTZ:
        chosen = pc.utf8_slice_codeunits(chosen, 0, -3)
    moments = pc.cast(pc.cast(chosen, _TIMESTAMP), kind) if kind == _TIMESTAMPTZ else pc.cast(chosen, kind)
    unusual = pc.fill_null(pc.invert(usual), False)
    if not pc.any(unusual, min_count=0).as_py():
        return moments
    values = pa.array([_moment(text, kind) for text in texts.filter(unusual).to_pylist()], pa.int32() if kind == _DATE else pa.int64())
    return pc.replace_with_mask(moments, unusual, values.cast(kind))


def _moment(text: str, kind: pa.DataType) -> int:
    """Return the number of a date or a timestamp in a rare form."""
    if text in ("infinity", "-infinity"):
        number = calendar.INFINITE_DAY if kind == _DATE else calendar.INFINITE_MICROS
        return -number if text.startswith("-") else number
    match = _MOMENT.match(text)
    if match is None:
        raise pa.ArrowInvalid("not a date")
    days = calendar.days_of(1 - int(match[1]) if match[8] else int(match[1]), int(match[2]), int(match[3]))
    if kind == _DATE:
        return days
    seconds = (int(match[4]) * 60 + int(match[5])) * 60 + int(match[6])
    return days * calendar.DAY + seconds * 1_000_000 + int((match[7] or "").ljust(6, "0"))
