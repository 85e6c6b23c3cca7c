"""Functions of json (not jsonb) on its text, which preserve blanks, duplicate keys and the order of keys.

Called by `implementation.json` inside Arrow functions and by `functions.set_returning`. Functions of jsonb are in `jsonb`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from headgate.errors import PostgresError
from headgate.types.base import json_error, json_text
from headgate.types.base.json_text import Number
from headgate.types.text import array

_INTEGER = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+\Z")
_INT_MAX = 2**31 - 1
_ODD_ESCAPE = re.compile(r"\\u(0000|[dD][89a-fA-F])")
"""An escape of the character 0 or of a part of a surrogate pair."""


class Spans:
    """A json text (not jsonb), with access to the parts of the text that are an object's or array's values.

    `decodes`: whether the caller decodes the strings of the text. Then an escape that no text can contain is an error.
    """

    def __init__(self, text: str, *, decodes: bool = True) -> None:
        if decodes and _ODD_ESCAPE.search(text) and (error := json_error.explained(text, escapes=True)):
            raise error
        self.text = text
        self.decoder = json.JSONDecoder(parse_float=Number, parse_int=Number)

    def _skip(self, place: int) -> int:
        while self.text[place] in " \t\n\r":
            place += 1
        return place

    def root(self) -> str:
        """Return the first character that is not blank, which identifies the kind of value."""
        return self.text[self._skip(0)]

    def _value(self, place: int) -> tuple[str, int]:
        start = self._skip(place)
        _, end = self.decoder.raw_decode(self.text, start)
        return self.text[start:end], self._skip_to_end(end)

    def _skip_to_end(self, place: int) -> int:
        while place < len(self.text) and self.text[place] in " \t\n\r":
            place += 1
        return place

    def fields(self) -> list[tuple[str, str]]:
        """Return the pairs of an object, including duplicate keys."""
        pairs: list[tuple[str, str]] = []
        place = self._skip(self._skip(0) + 1)
        while self.text[place] != "}":
            key, place = self.decoder.raw_decode(self.text, place)
            value, place = self._value(self._skip(place) + 1)
            pairs.append((key, value))
            place = self._skip(place + 1) if self.text[place] == "," else place
        return pairs

    def items(self) -> list[str]:
        elements: list[str] = []
        place = self._skip(self._skip(0) + 1)
        while self.text[place] != "]":
            value, place = self._value(place)
            elements.append(value)
            place = self._skip(place + 1) if self.text[place] == "," else place
        return elements


def bare(piece: str | None) -> str | None:
    """Return json's ->> of a part of the text: null becomes NULL, a string has no quotes."""
    if piece is None or piece == "null":
        return None
    return str(json.loads(piece)) if piece[0] == '"' else piece


def field(text: str, key: str) -> str | None:
    """Return json -> text: the last one of equal keys."""
    spans = Spans(text)
    if spans.root() != "{":
        return None
    return next((value for name, value in reversed(spans.fields()) if name == key), None)


def element(text: str, index: int) -> str | None:
    """Return json -> integer."""
    spans = Spans(text)
    if spans.root() != "[":
        return None
    items = spans.items()
    return items[index] if -len(items) <= index < len(items) else None


def at_path(text: str, path: str) -> str | None:
    """Return json #> text[]."""
    piece: str | None = Spans(text).text
    steps = array.parts(path)[1]
    for step in steps:
        if step is None or piece is None:
            return None
        if Spans(piece).root() == "{":
            piece = field(piece, step)
        elif _INTEGER.match(step) and -_INT_MAX <= int(step) <= _INT_MAX:
            piece = element(piece, int(step))
        else:
            return None
    return piece if steps or piece is None else piece.strip(" \t\n\r")


def bare_part(get: Callable[..., str | None], text: str, place: str | int) -> str | None:
    """Return what `get` finds as text: json ->> text, json ->> integer, json #>> text[]."""
    return bare(get(text, place))


def typeof(text: str) -> str:
    """Return the name of the value's json type (json_typeof)."""
    first = Spans(text, decodes=False).root()
    return {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}.get(first, "number")


def array_length(text: str) -> int:
    """Return the number of elements (json_array_length)."""
    spans = Spans(text, decodes=False)
    root = spans.root()
    if root != "[":
        raise PostgresError("22023", f"cannot get array length of a {'non-array' if root == '{' else 'scalar'}")
    return len(spans.items())


def strip_nulls(text: str) -> str:
    """Remove blanks and, at all levels, fields that are null (json_strip_nulls)."""
    spans = Spans(text)
    match spans.root():
        case "{":
            fields = [f"{json_text.quoted(key)}:{strip_nulls(value)}" for key, value in spans.fields() if value != "null"]
            return "{" + ",".join(fields) + "}"
        case "[":
            return "[" + ",".join(map(strip_nulls, spans.items())) + "]"
        case '"':
            return json_text.quoted(str(json.loads(text)))
        case _:
            return text.strip(" \t\n\r")
