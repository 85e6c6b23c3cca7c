"""Functions of strings on single values, under the C collation and UTF8 (varlena.c, formatting.c, quote.c).

Run by `vectorised` in Spark's workers, and for constants when a call is planned. The tables that refer to them are in
`implementation.character.string`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from headgate.errors import PostgresError, not_supported
from headgate.expression.functions import size_limit
from headgate.expression.functions.array import written
from headgate.sql import names
from headgate.types.text import array

_MAX_INT = 2**31 - 1
_CODECS = {
    "utf8": "utf-8", "unicode": "utf-8", "latin1": "latin-1", "iso88591": "latin-1", "latin2": "iso8859-2", "iso88592": "iso8859-2",
    "latin9": "iso8859-15", "iso885915": "iso8859-15", "win1252": "cp1252", "windows1252": "cp1252", "win1250": "cp1250",
    "windows1250": "cp1250", "win1251": "cp1251", "windows1251": "cp1251", "sqlascii": "utf-8",
}  # fmt: skip


def initcap(text: str) -> str:
    """Convert the first letter of each word to upper case, the rest to lower case. Words consist of ASCII letters and digits."""
    characters, in_word = [], False
    for character in text:
        is_ascii = character.isascii()
        characters.append((character.lower() if in_word else character.upper()) if is_ascii else character)
        in_word = is_ascii and character.isalnum()
    return "".join(characters)


def quote_ident(text: str) -> str:
    """Return the text as an identifier, quoted if needed."""
    return names.quote_ident(text) if text else '""'


def quote_literal(text: str) -> str:
    """Return the text as a string constant, prefixed with E if it has backslashes."""
    doubled = text.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"


def quote_nullable(text: str | None) -> str:
    """Return the text as a string constant, or NULL for NULL."""
    return "NULL" if text is None else quote_literal(text)


def normalized(text: str, form: str = "NFC") -> str:
    """Return the text in a Unicode normal form, by Unicode 14, the version of PostgreSQL 15."""
    return unicodedata.normalize(_form(form), text)


def is_normalized(text: str, form: str = "NFC") -> bool:
    return unicodedata.is_normalized(_form(form), text)


def _form(form: str) -> Literal["NFC", "NFD", "NFKC", "NFKD"]:
    for known in _FORMS:
        if form.upper() == known:
            return known
    raise PostgresError("22023", f"invalid normalization form: {form}")


_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{4})|u([0-9A-Fa-f]{4})|\+([0-9A-Fa-f]{6})|U([0-9A-Fa-f]{8})|(\\))|(\\)|([^\\]+)", re.DOTALL)
_PAIR = PostgresError("42601", "invalid Unicode surrogate pair")


def unistr(text: str) -> str:
    """Return the text with Unicode escapes replaced."""
    parts, high = [], 0
    for match in _ESCAPE.finditer(text):
        digits = match[1] or match[2] or match[3] or match[4]
        if match[6]:
            raise PostgresError(
                "42601",
                "invalid Unicode escape",
                hint="Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.",
            )
        if digits is None:
            if high:
                raise _PAIR
            parts.append(match[5] or match[7])
            continue
        code = int(digits, 16)
        if not 0 < code <= 0x10FFFF:
            raise PostgresError("22023", f"invalid Unicode code point: {code:04X}")
        if high:
            if not 0xDC00 <= code <= 0xDFFF:
                raise _PAIR
            code, high = 0x10000 + ((high & 0x3FF) << 10) + (code & 0x3FF), 0
        elif 0xDC00 <= code <= 0xDFFF:
            raise _PAIR
        if 0xD800 <= code <= 0xDBFF:
            high = code
        else:
            parts.append(chr(code))
    if high:
        raise _PAIR
    return "".join(parts)


def to_encoding(text: str, encoding: str) -> bytes:
    """Return the text's bytes in an encoding. Raise 22P05 for a character that the encoding does not have."""
    codec = _codec(encoding)
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        character = text[error.start]
        digits = " ".join(f"0x{byte:02x}" for byte in character.encode())
        raise PostgresError(
            "22P05",
            f'character with byte sequence {digits} in encoding "UTF8" has no equivalent in encoding "{_shown_encoding(encoding)}"',
        ) from error


def from_encoding(data: bytes, encoding: str) -> str:
    """Decode bytes of an encoding. Raise 22021 for bytes that are not valid in it."""
    codec = _codec(encoding)
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        bad = " ".join(f"0x{byte:02x}" for byte in data[error.start : max(error.end, error.start + 1)])
        raise PostgresError("22021", f'invalid byte sequence for encoding "{_shown_encoding(encoding)}": {bad}') from error
    if "\0" in text:
        raise PostgresError("22021", f'invalid byte sequence for encoding "{_shown_encoding(encoding)}": 0x00')
    return text


def _plain_encoding(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _codec(name: str) -> str:
    codec = _CODECS.get(_plain_encoding(name))
    if codec is None:
        raise not_supported(f'conversion to and from encoding "{name}" is not supported')
    return codec


def _shown_encoding(name: str) -> str:
    plain = _plain_encoding(name)
    return {"unicode": "UTF8", "iso88591": "LATIN1", "iso88592": "LATIN2", "iso885915": "LATIN9"}.get(plain, plain.upper())


def concat(*values: str | None) -> str:
    """Concatenate the values. NULL counts as the empty string."""
    return "".join(value for value in values if value is not None)


def concat_spread(values: str | None) -> str | None:
    """Return `concat` of the elements of an array."""
    return None if values is None else concat(*array.parts(values)[1])


def concat_between(separator: str | None, *values: str | None) -> str | None:
    """Join the values that are not NULL with the separator."""
    return None if separator is None else separator.join(value for value in values if value is not None)


def concat_between_spread(separator: str | None, values: str | None) -> str | None:
    """Return `concat_between` of the elements of an array."""
    return None if separator is None or values is None else concat_between(separator, *array.parts(values)[1])


def format_spread(pattern: str | None, values: str | None) -> str | None:
    """Return `format_text` of the elements of an array."""
    return format_text(pattern, *(() if values is None else array.parts(values)[1]))


def format_text(pattern: str | None, *values: str | None) -> str | None:
    """Return the pattern with %s, %I and %L replaced (text_format)."""
    return None if pattern is None else _Format(pattern, values).done()


_UNTERMINATED = PostgresError("22023", "unterminated format() type specifier", hint='For a single "%" use "%%".')


class _Format:
    """One call of format(). `place` is a position in the pattern, `next` the number of the next value."""

    def __init__(self, pattern: str, values: Sequence[str | None]) -> None:
        self.pattern = pattern
        self.values = values
        self.place = 0
        self.next = 1

    def done(self) -> str:
        parts: list[str] = []
        while True:
            position = self.pattern.find("%", self.place)
            if position < 0:
                return "".join([*parts, self.pattern[self.place :]])
            parts.append(self.pattern[self.place : position])
            self.place = position
            self._advance()
            parts.append("%" if self._sees() == "%" else self._format_specified())
            self.place += 1

    def _sees(self) -> str:
        return self.pattern[self.place]

    def _advance(self) -> None:
        self.place += 1
        if self.place >= len(self.pattern):
            raise _UNTERMINATED

    def _number(self) -> int | None:
        number = None
        while self._sees() in "0123456789":
            number = (number or 0) * 10 + int(self._sees())
            if number > _MAX_INT:
                raise PostgresError("22003", "number is out of range")
            self._advance()
        return number

    def _format_specified(self) -> str:
        left, width, number = False, 0, self._number()
        position = 0
        if number is not None and self._sees() != "$":
            width = number
        else:
            if number is not None:
                position = self._position(number)
            while self._sees() == "-":
                left = True
                self._advance()
            width = self._width()
        kind = self._sees()
        if kind not in "sIL":
            raise PostgresError("22023", f'unrecognized format() type specifier "{kind}"', hint='For a single "%" use "%%".')
        text = self._show(kind, self._value(position))
        if width < 0:
            left, width = True, -width
        size_limit.text(max(width, len(text)))
        return text.ljust(width) if left else text.rjust(width)

    def _position(self, number: int) -> int:
        if number == 0:
            raise PostgresError("22023", "format specifies argument 0, but arguments are numbered from 1")
        self._advance()
        return number

    def _width(self) -> int:
        if self._sees() != "*":
            return self._number() or 0
        self._advance()
        number, position = self._number(), 0
        if number is not None:
            if self._sees() != "$":
                raise PostgresError("22023", 'width argument position must be ended by "$"')
            position = self._position(number)
        value = self._value(position)
        if value is None:
            return 0
        if not re.fullmatch(r"[ \t\n\v\f\r]*[+-]?[0-9]+[ \t\n\v\f\r]*", value, re.ASCII):
            raise PostgresError("22P02", f'invalid input syntax for type integer: "{value}"')
        width = int(value)
        if not -_MAX_INT <= width <= _MAX_INT:
            raise PostgresError("22003", "number is out of range")
        return width

    def _value(self, position: int) -> str | None:
        self.next = position or self.next
        if self.next > len(self.values):
            raise PostgresError("22023", "too few arguments for format()")
        self.next += 1
        return self.values[self.next - 2]

    def _show(self, kind: str, value: str | None) -> str:
        if kind == "s":
            return value or ""
        if kind == "L":
            return quote_nullable(value)
        if value is None:
            raise PostgresError("22004", "null values cannot be formatted as an SQL identifier")
        return quote_ident(value)


_SMALL = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_IDENTIFIER = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([A-Za-z_\u0080-\U0010ffff][A-Za-z_\u0080-\U0010ffff0-9$]*))\s*')


def parse_identifier(text: str, strict: bool = True) -> str:
    """Return the parts of a qualified name as an array (parse_ident). Unquoted words are down-cased (misc.c)."""
    parts, position = [], 0
    while True:
        match = _IDENTIFIER.match(text, position)
        if match is None or match[1] == "":
            raise PostgresError("22023", f'string is not a valid identifier: "{text}"', detail=_wrong_identifier(text, position))
        word = match[1].replace('""', '"') if match[1] is not None else match[2].translate(_SMALL)
        parts.append(word)
        position = match.end()
        if position < len(text) and text[position] == ".":
            position += 1
        elif position == len(text) or not strict:
            return written(parts)
        else:
            raise PostgresError("22023", f'string is not a valid identifier: "{text}"')


def _wrong_identifier(text: str, at: int) -> str | None:
    rest = text[at:].lstrip()
    if rest.startswith('""'):
        return "Quoted identifier must not be empty."
    if rest.startswith('"'):
        return "String has unclosed double quotes."
    if rest.startswith("."):
        return 'No valid identifier before ".".'
    return 'No valid identifier after ".".' if text[:at].rstrip().endswith(".") else None
