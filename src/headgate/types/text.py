"""PostgreSQL's input and output functions on whole columns: text form to stored form and back.

Called by COPY, INSERT, the decoder of pgoutput, the result of every query. `read_text` is input function plus type modifier,
`write_text` the output function with DateStyle ISO. Both work on a column at once; each type family has its module.

What must hold: ``write_text(read_text(x))`` is what PostgreSQL prints for x; the first value in row order that PostgreSQL
would refuse raises its error; NULL stays NULL. `registry` knows user types (enums); without it built-in types only, and an
oid that it does not know is taken as text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import moment, number, numeric, string
from headgate.types import registry as r
from headgate.types.column import Session
from headgate.types.storage import arrow_type

Strings = pa.StringArray | pa.LargeStringArray | pa.ChunkedArray


def read_text(strings: Strings, oid: int, typmod: int = -1, *, timezone: str = "UTC", registry: r.TypeRegistry | None = None) -> pa.Array:
    """Reads a column of text forms: an array of ``arrow_type(oid, typmod)``.

    Raises PostgresError with PostgreSQL's own text: 22P02, 22003, 22001, 22007, 22008 …, and 0A000 where PostgreSQL has the
    value and the stored type has not.
    """
    session = Session(timezone)
    if isinstance(strings, pa.ChunkedArray):
        chunks = [read_text(chunk, oid, typmod, timezone=timezone, registry=registry) for chunk in strings.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, arrow_type(oid, typmod))
    plain = strings if pa.types.is_string(strings.type) else strings.cast(pa.string())
    if not len(plain):
        return pa.nulls(0, arrow_type(oid, typmod))
    return _read(plain, oid, typmod, session, registry or r.builtin())


def _read(strings: pa.StringArray, oid: int, typmod: int, session: Session, types: r.TypeRegistry) -> pa.Array:
    match oid:
        case r.INT2 | r.INT4 | r.INT8:
            return number.read_integer(strings, oid)
        case r.TEXT | r.UNKNOWN:
            return string.read_text(strings)
        case r.VARCHAR:
            return string.read_varchar(strings, typmod)
        case r.BPCHAR:
            return string.read_bpchar(strings, typmod)
        case r.NUMERIC:
            return numeric.read_numeric(strings, typmod)
        case r.BOOL:
            return number.read_bool(strings)
        case r.FLOAT4 | r.FLOAT8:
            return number.read_float(strings, oid)
        case r.DATE:
            return moment.read_date(strings, session)
        case r.TIMESTAMP:
            return moment.read_timestamp(strings, typmod, session)
        case r.TIMESTAMPTZ:
            return moment.read_timestamptz(strings, typmod, session)
        case r.BYTEA:
            return string.read_bytea(strings)
        case r.UUID:
            return string.read_uuid(strings)
        case r.NAME:
            return string.read_name(strings)
        case r.CHAR:
            return string.read_char(strings)
        case r.OID | r.XID | r.CID:
            return number.read_oid(strings, r.by_oid(oid).name)
        case _:
            return string.read_text(strings)


def write_text(
    array: pa.Array | pa.ChunkedArray,
    oid: int,
    typmod: int = -1,
    *,
    timezone: str = "UTC",
    extra_float_digits: int = 1,
    bytea_output: str = "hex",
    registry: r.TypeRegistry | None = None,
) -> pa.StringArray:
    """The text forms of a column that is in stored form."""
    session = Session(timezone, extra_float_digits, bytea_output)
    if isinstance(array, pa.ChunkedArray):
        chunks = [_write(chunk, oid, session) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())
    return _write(array, oid, session)


def _write(array: pa.Array, oid: int, session: Session) -> pa.StringArray:
    match oid:
        case r.INT2 | r.INT4 | r.INT8 | r.OID | r.XID | r.CID:
            return number.write_integer(array)
        case r.NUMERIC:
            return numeric.write_numeric(array)
        case r.BOOL:
            return number.write_bool(array)
        case r.FLOAT4 | r.FLOAT8:
            return number.write_float(array, oid, session.extra_float_digits)
        case r.DATE:
            return moment.write_date(array)
        case r.TIMESTAMP:
            return moment.write_timestamp(array)
        case r.TIMESTAMPTZ:
            return moment.write_timestamptz(array, session)
        case r.BYTEA:
            return string.write_bytea(array, session.bytea_output)
        case _:
            return array if pa.types.is_string(array.type) else array.cast(pa.string())


def read_scalar(text: str | None, oid: int, typmod: int = -1, *, timezone: str = "UTC", registry: r.TypeRegistry | None = None) -> Any:
    """One value in stored form, as a `pa.Scalar` (``.as_py()`` fails only for years outside Python's own)."""
    return read_text(pa.array([text], pa.string()), oid, typmod, timezone=timezone, registry=registry)[0]


def write_scalar(value: Any, oid: int, typmod: int = -1, *, timezone: str = "UTC") -> str | None:
    """The text form of one value in stored form: a `pa.Scalar`, or a Python value that Arrow takes for the stored type."""
    target = arrow_type(oid, typmod)
    array = pa.array([value.as_py()] if isinstance(value, pa.Scalar) and not pa.types.is_temporal(target) else [value], target)
    shown: str | None = write_text(array, oid, typmod, timezone=timezone)[0].as_py()
    return shown


def normal_form(text: str, oid: int, typmod: int = -1, *, timezone: str = "UTC", registry: r.TypeRegistry | None = None) -> str:
    """What PostgreSQL prints for a literal of the type: ``'+1'::int4`` is ``1``."""
    shown: str = write_text(
        read_text(pa.array([text], pa.string()), oid, typmod, timezone=timezone, registry=registry), oid, typmod, timezone=timezone
    )[0].as_py()
    return shown


def first_refused(strings: pa.StringArray, oid: int, typmod: int = -1, *, timezone: str = "UTC") -> int | None:
    """The row of the first value that `read_text` refuses, None if it reads all: for the CONTEXT of COPY. Found by halving."""
    low, high = 0, len(strings)
    if _reads(strings, oid, typmod, timezone):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _reads(strings.slice(low, middle - low), oid, typmod, timezone) else (low, middle)
    return low


def _reads(strings: pa.StringArray, oid: int, typmod: int, timezone: str) -> bool:
    try:
        read_text(strings, oid, typmod, timezone=timezone)
    except PostgresError:
        return False
    return True
