"""PostgreSQL's receive and send functions on whole columns: binary form to stored form and back.

Called by COPY BINARY, the decoder of pgoutput with ``binary = true``, the parallel initial copy, and the server for clients
that ask for binary. A column of values is a byte buffer with the start and the length of each value (-1: NULL), so that
nothing is cut into Python objects. Base types are `base`'s and `system_type`'s, arrays `binary_array`'s, composite types
`binary_record`'s; enums and domains follow from what they are made of.

What must hold: malformed bytes end in 22P03, 08P01 or 22021, never in an IndexError; ``read_binary(write_binary(x)) == x``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import PostgresError, not_supported
from headgate.settings.encoding import UTF8, Encoding
from headgate.types import registry as r
from headgate.types.base.base_type import BaseType, Wire
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.base.string import TEXT_LIKE
from headgate.types.binary import binary_array, binary_record
from headgate.types.binary.system_type import SYSTEM_TYPES
from headgate.types.buffers import Bytes, Positions
from headgate.types.storage import arrow_type
from headgate.types.text import text

Lengths = npt.NDArray[np.int32]


def read_binary(
    data: Bytes,
    starts: Positions,
    lengths: Lengths,
    oid: int,
    typmod: int = -1,
    *,
    registry: r.TypeRegistry | None = None,
    encoding: Encoding = UTF8,
) -> pa.Array:
    """Reads a column of binary forms, whose text is in `encoding`: an array of ``arrow_type(oid, typmod)``.

    `data` is the whole buffer (uint8), `starts` (int64) and `lengths` (int32, -1 for NULL) one entry per value. Errors as
    `headgate.types.text.text.read_text` for values that do not fit, 22P03 for bytes that are no value of the type.
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
    described = _described(oid, types)
    if described is not None:
        if described.receive is None:
            raise _no_form(oid, types)
        return described.receive(wire, typmod)
    if (composite := _composite(oid, types)) is not None:
        return binary_record.receive(wire, composite, types)
    found = _array(oid, types)
    values = [None if each is None else binary_array.receive(each, found, types, wire.encoding) for each in _values(wire)]
    texts = pa.array(values, pa.string())
    return text.read_text(texts, oid, typmod, registry=types) if typmod >= 0 else texts


def _values(wire: Wire) -> list[bytes | None]:
    values: list[bytes | None] = wire.column(pa.large_binary()).to_pylist()
    return values


def _described(oid: int, types: r.TypeRegistry) -> BaseType | None:
    """The description by which values of the type cross the wire; None for arrays and types without a binary form."""
    described = BASE_TYPES.get(oid) or SYSTEM_TYPES.get(oid)
    if described is not None:
        return described
    found = types.find(oid)
    return TEXT_LIKE if found is None or found.kind is r.TypeKind.ENUM else None


def _composite(oid: int, types: r.TypeRegistry) -> r.PgType | None:
    found = types.find(oid)
    return found if found is not None and found.kind is r.TypeKind.COMPOSITE else None


def _array(oid: int, types: r.TypeRegistry) -> r.PgType:
    found = types.by_oid(oid)
    if not found.is_array:
        raise _no_form(oid, types)
    return found


def _no_form(oid: int, types: r.TypeRegistry) -> PostgresError:
    return not_supported(f"binary form of type {types.format_type(oid)} is not supported")


def write_binary(
    array: pa.Array | pa.ChunkedArray, oid: int, typmod: int = -1, *, registry: r.TypeRegistry | None = None, encoding: Encoding = UTF8
) -> pa.LargeBinaryArray:
    """The binary forms of a column in stored form, NULL = null; text in `encoding`."""
    if isinstance(array, pa.ChunkedArray):
        chunks = [write_binary(chunk, oid, typmod, registry=registry, encoding=encoding) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.large_binary())
    types = registry or r.known()
    oid, _ = types.base(oid)
    described = _described(oid, types)
    if described is not None:
        if described.send is None:
            raise _no_form(oid, types)
        return described.send(array, encoding)
    if (composite := _composite(oid, types)) is not None:
        return binary_record.send(array, composite, types, encoding)
    found = _array(oid, types)
    return pa.array(
        [None if each is None else binary_array.send(each, found, types, encoding) for each in array.to_pylist()], pa.large_binary()
    )
