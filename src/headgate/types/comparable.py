"""Converts columns to a form that Arrow orders and compares as PostgreSQL does, in collation C.

Called by `headgate.storage.routing` for LIST and RANGE partitioning. Numbers, dates and timestamps are already stored in such a form. Text
compares by its bytes. Other types use the keys of `headgate.types.order`, one per distinct value. numeric that is stored as text becomes
bytes that order as the numbers do:

    first byte     0 -Infinity, 1 negative, 2 zero, 3 positive, 4 Infinity, 5 NaN
    then           weight + 2^15 and the base-10000 digits, 16 bits big-endian each, padded with zeros to one width; all bits
                   are inverted for negative numbers
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.types import order, registry
from headgate.types.base.base_types import base_type
from headgate.types.base.binary_numeric import digits_of
from headgate.types.binary import binary
from headgate.types.storage import arrow_type


def comparable(parts: Sequence[pa.Array], oid: int, typmod: int = -1) -> list[pa.Array]:
    """Convert columns of one type to a common form. NULL stays NULL."""
    if oid == registry.NUMERIC and arrow_type(oid, typmod) == pa.string():
        whole = _numbers(pa.concat_arrays([part.cast(pa.string()) for part in parts]))
        starts = np.cumsum([0, *(len(part) for part in parts)])
        return [whole.slice(first, len(part)) for first, part in zip(starts, parts, strict=False)]
    return [_plain(part, oid) for part in parts]


def _plain(values: pa.Array, oid: int) -> pa.Array:
    described = base_type(oid)
    if oid == registry.BPCHAR:
        values = pc.utf8_rtrim(values, " ")
    if oid == registry.BPCHAR or (described.in_order and described.stored == pa.string()):
        return values.cast(pa.large_string()).cast(pa.large_binary())
    if pa.types.is_floating(values.type):
        return pc.add(values.cast(pa.float64()), 0.0)  # converts -0 to 0
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8())
    if not pa.types.is_string(values.type):
        return values
    coded = values.dictionary_encode()
    key = order.key_of(oid)
    keys = pa.array([key(text) for text in coded.dictionary.to_pylist()], pa.large_binary())
    return keys.take(coded.indices)


def _numbers(values: pa.Array) -> pa.Array:
    """Convert numeric to bytes that order as the numbers do."""
    present = np.asarray(values.is_valid())
    forms = pc.fill_null(binary.write_binary(values, registry.NUMERIC), b"\0" * 8).cast(pa.large_binary())
    _, offsets, data = forms.buffers()
    starts = np.frombuffer(offsets, np.int64)[forms.offset : forms.offset + len(forms)]
    raw = np.concatenate([np.frombuffer(data, np.uint8), np.zeros(8, np.uint8)]) if data is not None else np.zeros(8, np.uint8)
    head = raw[starts[:, None] + np.arange(8)].view(">u2").astype(np.int64)
    count, sign = head[:, 0], head[:, 2]
    weight = head[:, 1].astype(np.int16).astype(np.int64)
    digits = digits_of(raw, starts, count)
    kind = np.where(digits.any(axis=1), np.where(sign == 0x4000, 1, 3), 2)
    kind = np.select([sign == 0xF000, sign == 0xD000, sign == 0xC000], [0, 4, 5], kind)
    fields = np.concatenate([(weight + 0x8000)[:, None], digits], axis=1).astype(">u2")
    fields[(kind != 1) & (kind != 3)] = 0
    fields = np.where((kind == 1)[:, None], ~fields, fields).astype(">u2")
    rows = np.concatenate([kind.astype(np.uint8)[:, None], np.ascontiguousarray(fields).view(np.uint8)], axis=1)
    size = rows.shape[1]
    begins = np.arange(len(count) + 1, dtype=np.int64) * size
    joined = pa.Array.from_buffers(
        pa.large_binary(), len(count), [None, pa.py_buffer(begins), pa.py_buffer(np.ascontiguousarray(rows).tobytes())]
    )
    return pc.if_else(pa.array(present), joined, pa.scalar(None, pa.large_binary()))
