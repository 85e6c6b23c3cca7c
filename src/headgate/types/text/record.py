"""Composite values, which are stored as text: record_in and record_out on whole columns.

Called by `text`, `binary` and `order`. Rows are taken apart one by one, each different text once; the fields of all rows go through the
reader and the writer of their attribute together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PostgresError
from headgate.types import quoted_field, registry, text_column

Convert = Callable[[pa.StringArray, registry.Attribute], pa.StringArray]
"""Input, modifier and output function of an attribute."""

_SPECIAL = re.compile(r'\A\Z|["\\(),\s]')


def read_record(strings: pa.StringArray, kind: registry.PgType, convert: Convert) -> pa.StringArray:
    """record_in. 22P02, and what the attributes' input functions raise."""
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
        convert(pa.array([row[place] for row in rows], pa.string()), attribute).to_pylist()
        for place, attribute in enumerate(kind.attributes)
    ]
    return pa.array([print_record([column[place] for column in columns]) for place in range(len(rows))], pa.string())


def _check(text: str, kind: registry.PgType, convert: Convert) -> None:
    """Raises the error of one text: fields are read as they are found."""
    found: list[str | None] = []
    try:
        parse(text, len(kind.attributes), found)
    finally:
        for item, attribute in zip(found, kind.attributes, strict=False):
            convert(pa.array([item], pa.string()), attribute)


def parse(text: str, count: int, found: list[str | None] | None = None) -> list[str | None]:
    """The texts of the fields of one value, which are added to `found` one by one. 22P02."""
    found = [] if found is None else found
    at = len(text) - len(text.lstrip(text_column.SPACE))
    if text[at : at + 1] != "(":
        raise _malformed(text, "Missing left parenthesis.")
    at += 1
    for place in range(count):
        if place:
            if text[at : at + 1] != ",":
                raise _malformed(text, "Too few columns.")
            at += 1
        try:
            item, at = quoted_field.read(text, at, ",)")
        except ValueError:
            raise _malformed(text, "Unexpected end of input.") from None
        found.append(item)
    if text[at : at + 1] != ")":
        raise _malformed(text, "Too many columns.")
    if text[at + 1 :].strip(text_column.SPACE):
        raise _malformed(text, "Junk after right parenthesis.")
    return found


def _malformed(text: str, detail: str) -> PostgresError:
    return PostgresError("22P02", f'malformed record literal: "{text}"', detail=detail)


def print_record(items: Sequence[str | None]) -> str:
    """record_out."""
    return "(" + ",".join("" if item is None else quoted(item) for item in items) + ")"


def quoted(item: str) -> str:
    """A field as record_out prints it."""
    if _SPECIAL.search(item) is None:
        return item
    return '"' + item.replace("\\", "\\\\").replace('"', '""') + '"'


def columns(strings: pa.StringArray, kind: registry.PgType) -> list[pa.StringArray]:
    """The fields of a column of values in normal form, a column each; NULL where the value is."""
    rows = [None if text is None else parse(text, len(kind.attributes)) for text in strings.to_pylist()]
    return [pa.array([None if row is None else row[place] for row in rows], pa.string()) for place in range(len(kind.attributes))]


def joined(fields: Sequence[pa.StringArray], present: pa.BooleanArray) -> pa.StringArray:
    """A column of values from the columns of their fields; NULL where `present` is false."""
    rows = list(zip(*(each.to_pylist() for each in fields), strict=True)) if fields else [()] * len(present)
    return pc.if_else(present, pa.array([print_record(row) for row in rows], pa.string()), pa.scalar(None, pa.string()))
