"""PostgreSQL's input and output functions on whole columns: text form to stored form and back.

Called by COPY, INSERT, the pgoutput decoder and for the results of all queries. `read_text` applies the input function and the type
modifier, `write_text` the output function. Both process a whole column, under the settings of a session (`text_column.TextSettings`).
`base` implements base types. Arrays, composite types, enums and domains are read here by their components.

Invariants: ``write_text(read_text(x))`` is what PostgreSQL prints for x under the same settings. The stored form depends on a setting only
if the meaning of the text does. The first value in row order that PostgreSQL would reject raises its error. NULL stays NULL. `registry`
knows user types (enums), without it only the built-in types are known. An unknown OID is read as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import registry as r
from headgate.types.base import numeric, string
from headgate.types.base.base_type import as_stored
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.storage import arrow_type
from headgate.types.text import array, record
from headgate.types.text_column import PLAIN, TextSettings


def read_text(
    strings: pa.Array | pa.ChunkedArray,
    oid: int,
    typmod: int = -1,
    *,
    session: TextSettings = PLAIN,
    registry: r.TypeRegistry | None = None,
) -> pa.Array:
    """Read a column of text forms. Return an array of ``arrow_type(oid, typmod)``.

    Raise PostgresError with PostgreSQL's own text: 22P02, 22003, 22001, 22007, 22008 …, or 0A000 for a value that PostgreSQL accepts and
    the stored type cannot hold.
    """
    if isinstance(strings, pa.ChunkedArray):
        chunks = [read_text(chunk, oid, typmod, session=session, registry=registry) for chunk in strings.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, arrow_type(oid, typmod))
    plain = strings if pa.types.is_string(strings.type) else strings.cast(pa.string())
    if not len(plain):
        return pa.nulls(0, arrow_type(oid, typmod))
    return _read(plain, oid, typmod, session, registry or r.known())


def _read(strings: pa.StringArray, oid: int, typmod: int, session: TextSettings, types: r.TypeRegistry) -> pa.Array:
    described = BASE_TYPES.get(oid)
    if described is not None:
        return described.read(strings, typmod, session)
    pg_type = types.find(oid)
    if pg_type is None:
        return string.read_text(strings)
    if pg_type.kind is r.TypeKind.ENUM:
        return _read_enum(strings, pg_type)
    if pg_type.kind is r.TypeKind.DOMAIN:
        return _read(strings, *types.base(oid), session, types)
    if pg_type.is_array:
        delimiter = types.by_oid(pg_type.element).delimiter

        def convert(items: pa.StringArray) -> pa.StringArray:
            if pg_type.element == r.NUMERIC:  # elements are stored as text, whatever the modifier
                return numeric.read_as_text(items, typmod)
            return _write(_read(items, pg_type.element, typmod, session, types), pg_type.element, PLAIN, types)

        return array.read_array(string.read_text(strings), delimiter, convert)
    if pg_type.kind is r.TypeKind.COMPOSITE:

        def convert_field(items: pa.StringArray, attribute: r.Attribute) -> pa.StringArray:
            read = _read(items, attribute.type_oid, attribute.typmod, session, types)
            return _write(read, attribute.type_oid, PLAIN, types)

        return record.read_record(string.read_text(strings), pg_type, convert_field)
    return string.read_text(strings)


def _read_enum(strings: pa.StringArray, enum: r.PgType) -> pa.StringArray:
    unknown = pc.and_(pc.is_valid(strings), pc.invert(pc.is_in(strings, value_set=pa.array(enum.labels, pa.string()))))
    if pc.any(unknown).as_py():
        label = strings.filter(unknown)[0].as_py()
        raise PostgresError("22P02", f'invalid input value for enum {enum.plain}: "{label}"')
    return strings


def write_text(
    values: pa.Array | pa.ChunkedArray, oid: int, *, session: TextSettings = PLAIN, registry: r.TypeRegistry | None = None
) -> pa.StringArray:
    """Return the text forms of a column in stored form."""
    types = registry or r.known()
    if isinstance(values, pa.ChunkedArray):
        chunks = [_write(chunk, oid, session, types) for chunk in values.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())
    return _write(values, oid, session, types)


def _write(values: pa.Array, oid: int, session: TextSettings, types: r.TypeRegistry) -> pa.StringArray:
    oid, _ = types.base(oid)
    described = BASE_TYPES.get(oid)
    if described is not None:
        return described.write(values, session)
    shown = as_stored(values, session)
    pg_type = types.find(oid)
    if pg_type is not None and pg_type.is_array and depends_on(pg_type.element, session, types):
        return _rewrite(shown, pg_type, session, types)
    if pg_type is not None and pg_type.attributes and depends_on(oid, session, types):
        return _rewrite_record(shown, pg_type, session, types)
    return shown


def depends_on(oid: int, session: TextSettings, types: r.TypeRegistry | None = None) -> bool:
    """Return whether texts of the type under these settings differ from those under PLAIN, in which arrays and intervals are stored."""
    types = types or r.known()
    oid, _ = types.base(oid)
    pg_type = types.find(oid)
    if pg_type is not None and pg_type.is_array:
        return depends_on(pg_type.element, session, types)
    if pg_type is not None and pg_type.attributes:
        return any(depends_on(attribute.type_oid, session, types) for attribute in pg_type.attributes)
    described = BASE_TYPES.get(oid)
    return described is not None and described.restyled(session)


def _rewrite(strings: pa.StringArray, pg_type: r.PgType, session: TextSettings, types: r.TypeRegistry) -> pa.StringArray:
    def convert(items: pa.StringArray) -> pa.StringArray:
        return _write(_read(items, pg_type.element, -1, PLAIN, types), pg_type.element, session, types)

    return array.read_array(strings, types.by_oid(pg_type.element).delimiter, convert)


def _rewrite_record(strings: pa.StringArray, pg_type: r.PgType, session: TextSettings, types: r.TypeRegistry) -> pa.StringArray:
    def convert(items: pa.StringArray, attribute: r.Attribute) -> pa.StringArray:
        read = _read(items, attribute.type_oid, attribute.typmod, PLAIN, types)
        return _write(read, attribute.type_oid, session, types)

    return record.read_record(strings, pg_type, convert)


def read_scalar(text: str | None, oid: int, typmod: int = -1, *, session: TextSettings = PLAIN) -> pa.Scalar:
    """Return one value in stored form as a `pa.Scalar` (``.as_py()`` fails only for years outside Python's range)."""
    return read_text(pa.array([text], pa.string()), oid, typmod, session=session)[0]


def write_scalar(value: object, oid: int) -> str | None:
    """Return the text form of one value in stored form: a `pa.Scalar`, or a Python value that Arrow accepts for the stored type."""
    shown: str | None = write_text(pa.array([value], arrow_type(oid, -1)), oid)[0].as_py()
    return shown


def normal_form(text: str, oid: int, typmod: int = -1, *, session: TextSettings = PLAIN, registry: r.TypeRegistry | None = None) -> str:
    """Return the held form of a literal as PostgreSQL reads it: ``'+1'::int4`` is ``1``, a date is in ISO whatever the style."""
    values = read_text(pa.array([text], pa.string()), oid, typmod, session=session, registry=registry)
    shown: str = write_text(values, oid, session=session.held)[0].as_py()
    return shown


def styled(texts: pa.StringArray, oid: int, typmod: int, session: TextSettings) -> pa.StringArray:
    """Convert texts of a result (`TextSettings.of_results`) to the session's DateStyle and IntervalStyle."""
    if not depends_on(oid, session.styles):
        return texts
    return write_text(read_text(texts, oid, typmod), oid, session=session)


ColumnReader: TypeAlias = Callable[[int, int], pa.Array]
"""Reads so many values of a column (second argument) from a row on (first argument)."""


def reader(strings: pa.StringArray, oid: int, typmod: int, *, session: TextSettings) -> ColumnReader:
    """Return a reader of text forms."""
    return lambda first, count: read_text(strings.slice(first, count), oid, typmod, session=session)


def first_refused(readers: Sequence[ColumnReader], rows: int) -> int | None:
    """Return the first row with a value that the reader of its column rejects, or None, for the CONTEXT of an error.

    It is found by bisection.
    """
    low, high = 0, rows
    if _all_read(readers, 0, rows):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _all_read(readers, low, middle - low) else (low, middle)
    return low


def _all_read(readers: Sequence[ColumnReader], first: int, count: int) -> bool:
    try:
        for read in readers:
            read(first, count)
    except PostgresError:
        return False
    return True
