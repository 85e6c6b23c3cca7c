"""Functions of strings on single values, as the C collation and UTF8 have them (varlena.c, formatting.c, quote.c).

Run by `vectorised` in Spark's workers, and when a call of constants is planned; the tables that name them are
`implementation.character.string`'s.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

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
    """The first letter of each word in upper case, the rest in lower case; words are of ASCII letters and digits."""
    done, inside = [], False
    for each in text:
        plain = each.isascii()
        done.append((each.lower() if inside else each.upper()) if plain else each)
        inside = plain and each.isalnum()
    return "".join(done)


def quote_ident(text: str) -> str:
    """The text as an identifier."""
    return names.quote_ident(text) if text else '""'


def quote_literal(text: str) -> str:
    """The text as a string constant, with an E in front if it has backslashes."""
    doubled = text.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"


def quote_nullable(text: str | None) -> str:
    """As `quote_literal`, and NULL for NULL."""
    return "NULL" if text is None else quote_literal(text)


def normalized(text: str, form: str = "NFC") -> str:
    """The text in a normal form of Unicode 14, which is PostgreSQL 15's."""
    return unicodedata.normalize(_form(form), text)  # type: ignore[arg-type]  # checked by _form


def is_normalized(text: str, form: str = "NFC") -> bool:
    """Whether the text is in a normal form."""
    return unicodedata.is_normalized(_form(form), text)  # type: ignore[arg-type]  # checked by _form


def _form(form: str) -> str:
    if form.upper() not in ("NFC", "NFD", "NFKC", "NFKD"):
        raise PostgresError("22023", f"invalid normalization form: {form}")
    return form.upper()


_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{4})|u([0-9A-Fa-f]{4})|\+([0-9A-Fa-f]{6})|U([0-9A-Fa-f]{8})|(\\))|(\\)|([^\\]+)", re.DOTALL)
_PAIR = PostgresError("42601", "invalid Unicode surrogate pair")


def unistr(text: str) -> str:
    """The text with Unicode escapes put in."""
    done, high = [], 0
    for found in _ESCAPE.finditer(text):
        digits = found[1] or found[2] or found[3] or found[4]
        if found[6]:
            raise PostgresError(
                "42601",
                "invalid Unicode escape",
                hint="Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.",
            )
        if digits is None:
            if high:
                raise _PAIR
            done.append(found[5] or found[7])
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
            done.append(chr(code))
    if high:
        raise _PAIR
    return "".join(done)


def to_encoding(text: str, encoding: str) -> bytes:
    """The text's bytes in an encoding; 22P05 for a character that it does not have."""
    codec = _codec(encoding)
    try:
        return text.encode(codec)
    except UnicodeEncodeError as error:
        character = text[error.start]
        shown = " ".join(f"0x{each:02x}" for each in character.encode())
        raise PostgresError(
            "22P05", f'character with byte sequence {shown} in encoding "UTF8" has no equivalent in encoding "{_shown_encoding(encoding)}"'
        ) from error


def from_encoding(data: bytes, encoding: str) -> str:
    """The text of bytes in an encoding; 22021 for bytes that are none."""
    codec = _codec(encoding)
    try:
        made = data.decode(codec)
    except UnicodeDecodeError as error:
        bad = " ".join(f"0x{each:02x}" for each in data[error.start : max(error.end, error.start + 1)])
        raise PostgresError("22021", f'invalid byte sequence for encoding "{_shown_encoding(encoding)}": {bad}') from error
    if "\0" in made:
        raise PostgresError("22021", f'invalid byte sequence for encoding "{_shown_encoding(encoding)}": 0x00')
    return made


def _plain_encoding(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _codec(name: str) -> str:
    found = _CODECS.get(_plain_encoding(name))
    if found is None:
        raise not_supported(f'conversion to and from encoding "{name}" is not supported')
    return found


def _shown_encoding(name: str) -> str:
    plain = _plain_encoding(name)
    return {"unicode": "UTF8", "iso88591": "LATIN1", "iso88592": "LATIN2", "iso885915": "LATIN9"}.get(plain, plain.upper())


def concat(*values: str | None) -> str:
    """The values one behind the other, NULL as nothing."""
    return "".join(each for each in values if each is not None)


def concat_spread(values: str | None) -> str | None:
    """`concat` of the elements of an array."""
    return None if values is None else concat(*array.parts(values)[1])


def concat_between(separator: str | None, *values: str | None) -> str | None:
    """The values that are not NULL, with the separator between them."""
    return None if separator is None else separator.join(each for each in values if each is not None)


def concat_between_spread(separator: str | None, values: str | None) -> str | None:
    """`concat_between` of the elements of an array."""
    return None if separator is None or values is None else concat_between(separator, *array.parts(values)[1])


def format_spread(pattern: str | None, values: str | None) -> str | None:
    """`format_text` of the elements of an array."""
    return format_text(pattern, *(() if values is None else array.parts(values)[1]))


def format_text(pattern: str | None, *values: str | None) -> str | None:
    """The pattern with %s, %I and %L put in (text_format)."""
    return None if pattern is None else _Format(pattern, values).done()


_UNTERMINATED = PostgresError("22023", "unterminated format() type specifier", hint='For a single "%" use "%%".')


class _Format:
    """One call of format(): `place` in the pattern, `next` the number of the value that comes next."""

    def __init__(self, pattern: str, values: Sequence[str | None]) -> None:
        self.pattern = pattern
        self.values = values
        self.place = 0
        self.next = 1

    def done(self) -> str:
        made: list[str] = []
        while True:
            at = self.pattern.find("%", self.place)
            if at < 0:
                return "".join([*made, self.pattern[self.place :]])
            made.append(self.pattern[self.place : at])
            self.place = at
            self._advance()
            made.append("%" if self._sees() == "%" else self._specified())
            self.place += 1

    def _sees(self) -> str:
        return self.pattern[self.place]

    def _advance(self) -> None:
        self.place += 1
        if self.place >= len(self.pattern):
            raise _UNTERMINATED

    def _number(self) -> int | None:
        found = None
        while self._sees() in "0123456789":
            found = (found or 0) * 10 + int(self._sees())
            if found > _MAX_INT:
                raise PostgresError("22003", "number is out of range")
            self._advance()
        return found

    def _specified(self) -> str:
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
        shown = self._shown(kind, self._value(position))
        if width < 0:
            left, width = True, -width
        size_limit.text(max(width, len(shown)))
        return shown.ljust(width) if left else shown.rjust(width)

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

    def _shown(self, kind: str, value: str | None) -> str:
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
    """parse_ident: the parts of a qualified name, as an array; words without quotes are down-cased (misc.c)."""
    parts, at = [], 0
    while True:
        found = _IDENTIFIER.match(text, at)
        if found is None or found[1] == "":
            raise PostgresError("22023", f'string is not a valid identifier: "{text}"', detail=_wrong_identifier(text, at))
        word = found[1].replace('""', '"') if found[1] is not None else found[2].translate(_SMALL)
        parts.append(word)
        at = found.end()
        if at < len(text) and text[at] == ".":
            at += 1
        elif at == len(text) or not strict:
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
