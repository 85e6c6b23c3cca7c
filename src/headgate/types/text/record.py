"""Composite values, which are stored as text: record_in and record_out on whole columns.

Called by `text`, `binary` and `order`. Rows are split one by one, each different text once. Then the fields of all rows are converted
together by the reader and the writer of their attribute.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import quoted_field, registry, text_column

Convert = Callable[[pa.StringArray, registry.Attribute], pa.StringArray]
"""The input function, modifier and output function of an attribute."""

_SPECIAL = re.compile(r'\A\Z|["\\(),\s]')


def read_record(strings: pa.StringArray, kind: registry.PgType, convert: Convert) -> pa.StringArray:
    """Read records as record_in. Raise 22P02 and the errors of the attributes' input functions."""
    coded = strings.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    if not texts:
        return strings
    try:
        shown = _read([parse(text, len(kind.attributes)) for text in texts], kind, convert)
    except PostgresError:
        for text in texts:  # the error is that of the first value
            _check(text, kind, convert)
        raise
    return shown.take(coded.indices)


def _read(rows: Sequence[Sequence[str | None]], kind: registry.PgType, convert: Convert) -> pa.StringArray:
    columns = [
        convert(pa.array([row[index] for row in rows], pa.string()), attribute).to_pylist()
        for index, attribute in enumerate(kind.attributes)
    ]
    return pa.array([print_record([column[index] for column in columns]) for index in range(len(rows))], pa.string())


def _check(text: str, kind: registry.PgType, convert: Convert) -> None:
    """Raise the error of one text. Fields are converted in order, also those before a syntax error."""
    fields: list[str | None] = []
    try:
        parse(text, len(kind.attributes), fields)
    finally:
        for item, attribute in zip(fields, kind.attributes, strict=False):
            convert(pa.array([item], pa.string()), attribute)


def parse(text: str, count: int | None, fields: list[str | None] | None = None) -> list[str | None]:
    """Return the texts of the fields of one value. They are also appended to `fields` one by one. Raise 22P02.

    `count`: the number of fields, or None for a record of unknown type.
    """
    fields = [] if fields is None else fields
    index = len(text) - len(text.lstrip(text_column.SPACE))
    if text[index : index + 1] != "(":
        raise _malformed_error(text, "Missing left parenthesis.")
    index += 1
    for number in itertools.count() if count is None else range(count):
        if count is None and (text[index : index + 1] == ")" if number else text[index:].strip(text_column.SPACE) == ")"):
            break
        if number:
            if text[index : index + 1] != ",":
                raise _malformed_error(text, "Too few columns.")
            index += 1
        try:
            item, index = quoted_field.read(text, index, ",)")
        except ValueError:
            raise _malformed_error(text, "Unexpected end of input.") from None
        fields.append(item)
    if text[index : index + 1] != ")":
        raise _malformed_error(text, "Too many columns.")
    if text[index + 1 :].strip(text_column.SPACE):
        raise _malformed_error(text, "Junk after right parenthesis.")
    return fields


def _malformed_error(text: str, detail: str) -> PostgresError:
    return PostgresError("22P02", f'malformed record literal: "{text}"', detail=detail)


def print_record(items: Sequence[str | None]) -> str:
    return "(" + ",".join("" if item is None else quoted(item) for item in items) + ")"


def quoted(item: str) -> str:
    """Print a field as record_out."""
    if _SPECIAL.search(item) is None:
        return item
    return '"' + item.replace("\\", "\\\\").replace('"', '""') + '"'


def columns(strings: pa.StringArray, count: int) -> list[pa.StringArray]:
    """Split values of `count` fields in normal form into a column per field. A field is NULL if the value is."""
    rows = [None if text is None else parse(text, count) for text in strings.to_pylist()]
    return [pa.array([None if row is None else row[index] for row in rows], pa.string()) for index in range(count)]


def joined(fields: Sequence[pa.StringArray], present: pa.BooleanArray) -> pa.StringArray:
    """Return a column of values for the columns of their fields. It is NULL where `present` is false."""
    rows = list(zip(*(field.to_pylist() for field in fields), strict=True)) if fields else [()] * len(present)
    return pc.if_else(present, pa.array([print_record(row) for row in rows], pa.string()), pa.scalar(None, pa.string()))
