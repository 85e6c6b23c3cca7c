"""Errors in a JSON text, as PostgreSQL reports them: DETAIL names the token, CONTEXT the line up to it (src/common/jsonapi.c).

Called by `json_text` for a text that Python's scanner has rejected. `explained` parses it again as PostgreSQL does, token by token with one
token of lookahead, and stops where PostgreSQL stops.
"""

from __future__ import annotations

import re
from typing import NoReturn

from headgate.errors import PostgresError

_WORD = re.compile(r"[A-Za-z0-9_\x80-\U0010ffff]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+|(?!\.))(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_\x80-\U0010ffff])")
_SIMPLE = '"\\/bfnrt'
_LONGEST = 50
"""The maximum bytes of a line in CONTEXT."""
_END = ""


def explained(text: str, *, escapes: bool) -> PostgresError | None:
    r"""Return the error of a text that is not JSON: 22P02, or 22P05 for ``\u0000``. None if it is JSON.

    `escapes`: whether escapes are decoded, as for jsonb.
    """
    try:
        _Reader(text, escapes=escapes).document()
    except PostgresError as error:
        return error
    return None


class _Reader:
    """A parser. `start` and `end` enclose the current token. `kind` is its first character, ``0`` for a number, ``w`` for a word."""

    def __init__(self, text: str, *, escapes: bool) -> None:
        self.text = text
        self.escapes = escapes
        self.start = self.end = 0
        self.kind = " "

    def document(self) -> None:
        self.next()
        self._value()
        self._expect(_END, "end of input")

    def next(self) -> None:
        """Read the next token (jsonapi.c, json_lex)."""
        spaces = re.compile(r"[ \t\n\r]*").match(self.text, self.end)
        assert spaces is not None
        self.start = spaces.end()
        first = self.text[self.start : self.start + 1]
        if first == "":
            self.end, self.kind = self.start, _END
        elif first in "{}[],:":
            self.end, self.kind = self.start + 1, first
        elif first == '"':
            self._string()
        elif first == "-" or first in "0123456789":
            self._number()
        else:
            word = _WORD.match(self.text, self.start)
            self.end = word.end() if word else self.start + 1
            if self.text[self.start : self.end] not in ("true", "false", "null"):
                self._invalid()
            self.kind = "w"

    def _number(self) -> None:
        match = _NUMBER.match(self.text, self.start)
        if match is None:
            valid_part = re.compile(r"-?(?:0|[1-9][0-9]*)?(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?").match(
                self.text, self.start
            )
            assert valid_part is not None
            rest = _WORD.match(self.text, valid_part.end())
            self.end = rest.end() if rest else valid_part.end()
            self._invalid()
        self.end, self.kind = match.end(), "0"

    def _string(self) -> None:
        self.end = self.start + 1
        high = False
        while (char := self._at(self.end)) != '"':
            if char < " ":
                self._raise(f"Character with value 0x{ord(char):02x} must be escaped.")
            self.end += 1
            high = self._awaits_low_surrogate(high, self._escape() if char == "\\" else None)
        self.end, self.kind = self.end + 1, '"'
        self._awaits_low_surrogate(high, None)

    def _awaits_low_surrogate(self, high: bool, value: int | None) -> bool:
        r"""Return whether a high surrogate waits for its low one after a character. `value` is that of a ``\u`` escape, else None."""
        if not self.escapes:
            return False
        if value is not None and 0xD800 <= value < 0xDC00:
            if high:
                self._raise("Unicode high surrogate must not follow a high surrogate.")
            return True
        if high != (value is not None and 0xDC00 <= value < 0xE000):
            self._raise("Unicode low surrogate must follow a high surrogate.")
        return False

    def _at(self, index: int) -> str:
        if index >= len(self.text):
            self.end = index
            self._invalid()
        return self.text[index]

    def _escape(self) -> int | None:
        r"""Read an escape after its backslash. Return the code point of ``\u``, else None."""
        char = self._at(self.end)
        if char == "u":
            return self._code_point()
        if char not in _SIMPLE:
            self.start, self.end = self.end, self.end + 1
            self._raise(f'Escape sequence "\\{self.text[self.start : self.end]}" is invalid.')
        self.end += 1
        return None

    def _code_point(self) -> int:
        for index in range(self.end + 1, self.end + 5):
            if self._at(index) not in "0123456789abcdefABCDEF":
                self.end = index + 1
                self._raise('"\\u" must be followed by four hexadecimal digits.')
        value, self.end = int(self.text[self.end + 1 : self.end + 5], 16), self.end + 5
        if self.escapes and value == 0:
            self._raise("\\u0000 cannot be converted to text.", "22P05", "unsupported Unicode escape sequence")
        return value

    def _value(self) -> None:
        if self.kind == "{":
            self._object()
        elif self.kind == "[":
            self._array()
        elif self.kind in ('"', "0", "w"):
            self.next()
        else:
            self._raise_unexpected("JSON value")

    def _object(self) -> None:
        self.next()
        if self.kind == '"':
            self._field()
            while self.kind == ",":
                self.next()
                self._field()
        elif self.kind != "}":
            self._raise_unexpected('string or "}"')
        self._expect("}", '"," or "}"')

    def _field(self) -> None:
        self._expect('"', "string")
        self._expect(":", '":"')
        self._value()

    def _array(self) -> None:
        self.next()
        if self.kind != "]":
            self._value()
            while self.kind == ",":
                self.next()
                self._value()
        self._expect("]", '"," or "]"')

    def _expect(self, kind: str, expected: str) -> None:
        if self.kind != kind:
            self._raise_unexpected(expected)
        if kind != _END:
            self.next()

    def _raise_unexpected(self, expected: str) -> NoReturn:
        if self.kind == _END:
            self._raise("The input string ended unexpectedly.")
        self._raise(f'Expected {expected}, but found "{self.text[self.start : self.end]}".')

    def _invalid(self) -> NoReturn:
        self._raise(f'Token "{self.text[self.start : self.end]}" is invalid.')

    def _raise(self, detail: str, sqlstate: str = "22P02", message: str = "invalid input syntax for type json") -> NoReturn:
        raise PostgresError(sqlstate, message, detail=detail, context=self._context())

    def _context(self) -> str:
        """Return the CONTEXT of an error (jsonapi.c, report_json_context)."""
        line = self.text.count("\n", 0, self.start) + 1
        first = start = self.text.rfind("\n", 0, self.start) + 1
        while len(self.text[start : self.end].encode("utf-8", "surrogatepass")) >= _LONGEST:
            start += 1
        if len(self.text[first:start].encode("utf-8", "surrogatepass")) <= 3:
            start = first
        more = self.kind != _END and self.end < len(self.text) and self.text[self.end] not in "\n\r"
        return f"JSON data, line {line}: {'...' if start > first else ''}{self.text[start : self.end]}{'...' if more else ''}"
