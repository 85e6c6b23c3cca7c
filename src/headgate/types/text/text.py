"""PostgreSQL's input and output functions on whole columns: text form to stored form and back.

Called by COPY, INSERT, the decoder of pgoutput, the result of every query. `read_text` is input function plus type modifier,
`write_text` the output function. Both work on a column at once, under the settings of a session (`text_column.TextSettings`); each type
family has its module.

What must hold: ``write_text(read_text(x))`` is what PostgreSQL prints for x under the same settings; what is stored depends on none of
them but as far as they say what a text means; the first value in row order that PostgreSQL
would refuse raises its error; NULL stays NULL. `registry` knows user types (enums); without it built-in types only, and an
oid that it does not know is taken as text.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import registry as r
from headgate.types.datetime import interval, interval_style, time_of_day, timestamp
from headgate.types.storage import arrow_type
from headgate.types.text import array, json_text, network, number, numeric, string
from headgate.types.text_column import PLAIN, TextSettings

Reader = Callable[[pa.StringArray, int, int, TextSettings], pa.Array]


def read_text(
    strings: pa.Array | pa.ChunkedArray,
    oid: int,
    typmod: int = -1,
    *,
    session: TextSettings = PLAIN,
    registry: r.TypeRegistry | None = None,
) -> pa.Array:
    """Reads a column of text forms: an array of ``arrow_type(oid, typmod)``.

    Raises PostgresError with PostgreSQL's own text: 22P02, 22003, 22001, 22007, 22008 …, and 0A000 where PostgreSQL has the
    value and the stored type has not.
    """
    if isinstance(strings, pa.ChunkedArray):
        chunks = [read_text(chunk, oid, typmod, session=session, registry=registry) for chunk in strings.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, arrow_type(oid, typmod))
    plain = strings if pa.types.is_string(strings.type) else strings.cast(pa.string())
    if not len(plain):
        return pa.nulls(0, arrow_type(oid, typmod))
    return _read(plain, oid, typmod, session, registry or r.known())


def _read(strings: pa.StringArray, oid: int, typmod: int, session: TextSettings, types: r.TypeRegistry) -> pa.Array:
    reader = _READERS.get(oid)
    if reader is not None:
        return reader(strings, oid, typmod, session)
    found = types.find(oid)
    if found is None:
        return string.read_text(strings)
    if found.kind is r.TypeKind.ENUM:
        return _read_enum(strings, found)
    if found.kind is r.TypeKind.DOMAIN:
        return _read(strings, *types.base(oid), session, types)
    if found.is_array:
        delimiter = types.by_oid(found.element).delimiter

        def convert(items: pa.StringArray) -> pa.StringArray:
            if found.element == r.NUMERIC:
                return numeric.read_as_text(items, typmod)
            return _write(_read(items, found.element, typmod, session, types), found.element, PLAIN, types)

        return array.read_array(string.read_text(strings), delimiter, convert)
    return string.read_text(strings)


def _read_enum(strings: pa.StringArray, found: r.PgType) -> pa.StringArray:
    unknown = pc.and_(pc.is_valid(strings), pc.invert(pc.is_in(strings, value_set=pa.array(found.labels, pa.string()))))
    if pc.any(unknown).as_py():
        label = strings.filter(unknown)[0].as_py()
        raise PostgresError("22P02", f'invalid input value for enum {found.plain}: "{label}"')
    return strings


_READERS: dict[int, Reader] = {
    r.BOOL: lambda strings, _oid, _typmod, _session: number.read_bool(strings),
    r.INT2: lambda strings, oid, _typmod, _session: number.read_integer(strings, oid),
    r.INT4: lambda strings, oid, _typmod, _session: number.read_integer(strings, oid),
    r.INT8: lambda strings, oid, _typmod, _session: number.read_integer(strings, oid),
    r.OID: lambda strings, _oid, _typmod, _session: number.read_oid(strings, "oid"),
    r.XID: lambda strings, _oid, _typmod, _session: number.read_oid(strings, "xid"),
    r.CID: lambda strings, _oid, _typmod, _session: number.read_oid(strings, "cid"),
    r.FLOAT4: lambda strings, oid, _typmod, _session: number.read_float(strings, oid),
    r.FLOAT8: lambda strings, oid, _typmod, _session: number.read_float(strings, oid),
    r.NUMERIC: lambda strings, _oid, typmod, _session: numeric.read_numeric(strings, typmod),
    r.TEXT: lambda strings, _oid, _typmod, _session: string.read_text(strings),
    r.VARCHAR: lambda strings, _oid, typmod, _session: string.read_varchar(strings, typmod),
    r.BPCHAR: lambda strings, _oid, typmod, _session: string.read_bpchar(strings, typmod),
    r.NAME: lambda strings, _oid, _typmod, _session: string.read_name(strings),
    r.CHAR: lambda strings, _oid, _typmod, _session: string.read_char(strings),
    r.BYTEA: lambda strings, _oid, _typmod, _session: string.read_bytea(strings),
    r.UUID: lambda strings, _oid, _typmod, _session: string.read_uuid(strings),
    r.DATE: lambda strings, _oid, _typmod, session: timestamp.read_date(strings, session),
    r.TIMESTAMP: lambda strings, _oid, typmod, session: timestamp.read_timestamp(strings, typmod, session),
    r.TIMESTAMPTZ: lambda strings, _oid, typmod, session: timestamp.read_timestamptz(strings, typmod, session),
    r.TIME: time_of_day.read_time,
    r.TIMETZ: time_of_day.read_time,
    r.INTERVAL: lambda strings, _oid, typmod, session: interval.read_interval(strings, typmod, session.interval_style),
    r.JSON: lambda strings, _oid, _typmod, _session: json_text.read_json(string.read_text(strings)),
    r.JSONB: lambda strings, _oid, _typmod, _session: json_text.read_jsonb(string.read_text(strings)),
    r.INET: lambda strings, oid, _typmod, _session: network.read_address(strings, oid),
    r.CIDR: lambda strings, oid, _typmod, _session: network.read_address(strings, oid),
    r.MACADDR: lambda strings, oid, _typmod, _session: network.read_address(strings, oid),
    r.MACADDR8: lambda strings, oid, _typmod, _session: network.read_address(strings, oid),
    r.BIT: lambda strings, oid, typmod, _session: network.read_bits(strings, oid, typmod),
    r.VARBIT: lambda strings, oid, typmod, _session: network.read_bits(strings, oid, typmod),
    r.PG_LSN: lambda strings, _oid, _typmod, _session: network.read_lsn(strings),
}


def write_text(
    values: pa.Array | pa.ChunkedArray,
    oid: int,
    typmod: int = -1,
    *,
    session: TextSettings = PLAIN,
    registry: r.TypeRegistry | None = None,
) -> pa.StringArray:
    """The text forms of a column that is in stored form."""
    types = registry or r.known()
    if isinstance(values, pa.ChunkedArray):
        chunks = [_write(chunk, oid, session, types) for chunk in values.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())
    return _write(values, oid, session, types)


def _write(values: pa.Array, oid: int, session: TextSettings, types: r.TypeRegistry) -> pa.StringArray:
    oid, _ = types.base(oid)
    match oid:
        case r.INT2 | r.INT4 | r.INT8 | r.OID | r.XID | r.CID:
            return number.write_integer(values)
        case r.NUMERIC:
            return numeric.write_numeric(values)
        case r.BOOL:
            return number.write_bool(values)
        case r.FLOAT4 | r.FLOAT8:
            return number.write_float(values, oid, session.extra_float_digits)
        case r.DATE:
            return timestamp.write_date(values, session)
        case r.TIMESTAMP:
            return timestamp.write_timestamp(values, session)
        case r.TIMESTAMPTZ:
            return timestamp.write_timestamptz(values, session)
        case r.BYTEA:
            return string.write_bytea(values, session.bytea_output)
        case r.INTERVAL:
            return interval_style.write_interval(values, session.interval_style)
        case _:
            shown = values if pa.types.is_string(values.type) else values.cast(pa.string())
            found = types.find(oid)
            if found is not None and found.is_array and depends_on(found.element, session, types):
                return _rewrite(shown, found, session, types)
            return shown


_DATES = frozenset({r.DATE, r.TIMESTAMP, r.TIMESTAMPTZ})


def depends_on(oid: int, session: TextSettings, types: r.TypeRegistry | None = None) -> bool:
    """Whether a value of the type has another text under these settings than the plain one, in which arrays and intervals are stored."""
    types = types or r.known()
    oid, _ = types.base(oid)
    found = types.find(oid)
    if found is not None and found.is_array:
        return depends_on(found.element, session, types)
    return (
        (oid in _DATES and session.date_style != PLAIN.date_style)
        or (oid == r.TIMESTAMPTZ and session.timezone != PLAIN.timezone)
        or (oid == r.INTERVAL and session.interval_style != PLAIN.interval_style)
        or (oid == r.BYTEA and session.bytea_output != PLAIN.bytea_output)
        or (oid in (r.FLOAT4, r.FLOAT8) and session.extra_float_digits <= 0)
    )


def _rewrite(strings: pa.StringArray, found: r.PgType, session: TextSettings, types: r.TypeRegistry) -> pa.StringArray:
    def convert(items: pa.StringArray) -> pa.StringArray:
        return _write(_read(items, found.element, -1, PLAIN, types), found.element, session, types)

    return array.read_array(strings, types.by_oid(found.element).delimiter, convert)


def read_scalar(
    text: str | None, oid: int, typmod: int = -1, *, session: TextSettings = PLAIN, registry: r.TypeRegistry | None = None
) -> pa.Scalar:
    """One value in stored form, as a `pa.Scalar` (``.as_py()`` fails only for years outside Python's own)."""
    return read_text(pa.array([text], pa.string()), oid, typmod, session=session, registry=registry)[0]


def write_scalar(value: object, oid: int, typmod: int = -1, *, session: TextSettings = PLAIN) -> str | None:
    """The text form of one value in stored form: a `pa.Scalar`, or a Python value that Arrow takes for the stored type."""
    target = arrow_type(oid, typmod)
    values = pa.array([value], target)
    shown: str | None = write_text(values, oid, typmod, session=session)[0].as_py()
    return shown


def normal_form(text: str, oid: int, typmod: int = -1, *, session: TextSettings = PLAIN, registry: r.TypeRegistry | None = None) -> str:
    """What PostgreSQL makes of a literal of the type, as it is held: ``'+1'::int4`` is ``1``, a date is in ISO whatever the style."""
    values = read_text(pa.array([text], pa.string()), oid, typmod, session=session, registry=registry)
    shown: str = write_text(values, oid, typmod, session=session.held)[0].as_py()
    return shown


def styled(texts: pa.StringArray, oid: int, typmod: int, session: TextSettings) -> pa.StringArray:
    """Texts of a result (`TextSettings.of_results`) in the session's DateStyle and IntervalStyle."""
    if not depends_on(oid, session.styles):
        return texts
    return write_text(read_text(texts, oid, typmod), oid, typmod, session=session)


def first_refused(strings: pa.StringArray, oid: int, typmod: int = -1, *, session: TextSettings = PLAIN) -> int | None:
    """The row of the first value that `read_text` refuses, None if it reads all: for the CONTEXT of COPY. Found by halving."""
    low, high = 0, len(strings)
    if _reads(strings, oid, typmod, session):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _reads(strings.slice(low, middle - low), oid, typmod, session) else (low, middle)
    return low


def _reads(strings: pa.StringArray, oid: int, typmod: int, session: TextSettings) -> bool:
    try:
        read_text(strings, oid, typmod, session=session)
    except PostgresError:
        return False
    return True
