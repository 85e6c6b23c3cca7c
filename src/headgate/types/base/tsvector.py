"""tsvector, stored as text: tsvectorin … tsvectorsend on whole columns, as tsvector.c has them. Described by `TYPES`.

Each different text is read by itself. `tsquery` takes its words apart with the same parser.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import registry, text_column
from headgate.types.base.base_type import BaseType, ended, singly
from headgate.types.text_column import TextSettings

Position = tuple[int, int]
"""Where a word stands, from 1, and its weight: 3 for A to 0 for D."""
Lexemes = list[tuple[bytes, list[Position]]]

MAX_WORD = 2047
"""Bytes from which on a word is too long."""
MAX_BYTES = (1 << 20) - 1
_MAX_POSITION = 1 << 14
_MAX_POSITIONS = 256
OPERATORS = "!&|()<"
_WEIGHTS = {"a": 3, "*": 3, "b": 2, "c": 1, "d": 0}
_DIGITS = re.compile("[0-9]+")


@dataclass
class WordReader:
    """gettoken_tsvector: takes words off a text. `in_query`: operators end a word, and it has no positions."""

    text: str
    in_query: bool = False
    at: int = 0

    def _error(self, words: str = "syntax error in {}") -> PostgresError:
        shown = words.format("tsquery" if self.in_query else "tsvector")
        return PostgresError("42601", f'{shown}: "{self.text}"')

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def next(self) -> tuple[str, list[Position]] | None:
        """The next word with its positions; None at the end. 42601."""
        while self._peek() and self._peek() in text_column.SPACE:
            self.at += 1
        char = self._peek()
        if not char:
            return None
        if self.in_query and char in OPERATORS:
            raise self._error()
        word = self._quoted() if char == "'" else self._plain()
        if self.in_query or self._peek() != ":":
            return word, []
        self.at += 1
        return word, self._positions()

    def _escaped(self) -> str:
        self.at += 1
        char = self._peek()
        if not char:
            raise self._error("there is no escaped character")
        self.at += 1
        return char

    def _character(self, char: str) -> str:
        """Take `char`, or what a backslash protects."""
        if char == "\\":
            return self._escaped()
        self.at += 1
        return char

    def _plain(self) -> str:
        made: list[str] = []
        while True:
            char = self._peek()
            if not char or char in text_column.SPACE or (self.in_query and char in OPERATORS) or (made and char == ":"):
                break
            made.append(self._character(char))
        if not made:
            raise self._error()
        return "".join(made)

    def _quoted(self) -> str:
        made: list[str] = []
        self.at += 1
        while True:
            char = self._peek()
            if not char:
                raise self._error()
            if char == "'":
                self.at += 1
                if self._peek() != "'":
                    break
            made.append(self._character(char))
        if not made:
            raise self._error()
        return "".join(made)

    def _positions(self) -> list[Position]:
        found: list[Position] = []
        while True:
            digits = _DIGITS.match(self.text, self.at)
            if digits is None:
                raise self._error()
            place = _limited(digits[0])
            if not place:
                raise self._error("wrong position info in {}")
            found.append((place, 0))
            self.at = digits.end()
            while True:
                char = self._peek()
                if not char or char in text_column.SPACE:
                    return found
                self.at += 1
                if char == ",":
                    break
                if char.lower() in _WEIGHTS:
                    if found[-1][1]:
                        raise self._error()
                    found[-1] = (place, _WEIGHTS[char.lower()])
                elif char not in "0123456789":
                    raise self._error()


def _limited(digits: str) -> int:
    """LIMITPOS of atoi, with the overflow of C."""
    value = min(int(digits[:30]), (1 << 63) - 1) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return (_MAX_POSITION - 1 if value >= _MAX_POSITION else value) & (_MAX_POSITION - 1)


def lexemes_of(text: str) -> Lexemes:
    """tsvectorin: the words in order, each once. 42601, 54000."""
    reader = WordReader(text)
    found: dict[bytes, list[Position]] = {}
    total = 0
    while (token := reader.next()) is not None:
        word = token[0].encode()
        if len(word) >= MAX_WORD:
            raise PostgresError("54000", f"word is too long ({len(word)} bytes, max {MAX_WORD - 1} bytes)")
        if total > MAX_BYTES:
            raise PostgresError("54000", f"string is too long for tsvector ({total} bytes, max {MAX_BYTES} bytes)")
        total += len(word)
        found.setdefault(word, []).extend(token[1])
    made = [(word, _unique(found[word])) for word in sorted(found)]
    if (size := _size(made)) > MAX_BYTES:
        raise PostgresError("54000", f"string is too long for tsvector ({size} bytes, max {MAX_BYTES} bytes)")
    return made


def _unique(positions: Sequence[Position]) -> list[Position]:
    """uniquePos: each position once with its greatest weight, 256 at most."""
    if len(positions) <= 1:
        return list(positions)
    made: list[Position] = []
    for place, weight in sorted(positions):
        if made and made[-1][0] == place:
            made[-1] = place, max(weight, made[-1][1])
            continue
        if len(made) >= _MAX_POSITIONS or (made and made[-1][0] == _MAX_POSITION - 1):
            break
        made.append((place, weight))
    return made


def _size(lexemes: Lexemes) -> int:
    """The bytes of the words and positions as PostgreSQL stores them."""
    size = 0
    for word, positions in lexemes:
        size += len(word)
        if positions:
            size += size % 2 + 2 + 2 * len(positions)
    return size


def printed(lexemes: Lexemes) -> str:
    """tsvectorout."""
    return " ".join(quoted(word.decode()) + _printed_positions(positions) for word, positions in lexemes)


def quoted(word: str) -> str:
    """A word as tsvectorout and tsqueryout print it."""
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _printed_positions(positions: Sequence[Position]) -> str:
    return ":" + ",".join(f"{place}{('', 'C', 'B', 'A')[weight]}" for place, weight in positions) if positions else ""


def _read(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return text_column.read_normal(strings, pa.array([False] * len(strings)), lambda text: printed(lexemes_of(text)))


def _receive(raw: bytes) -> str:
    (count,) = struct.unpack_from(">i", raw)
    at, found = 4, dict[bytes, list[Position]]()
    for _ in range(count):
        end = raw.index(b"\0", at)
        word = raw[at:end]
        (places,) = struct.unpack_from(">H", raw, end + 1)
        held = struct.unpack_from(f">{places}H", raw, end + 3)
        at = end + 3 + 2 * places
        positions = [(each & (_MAX_POSITION - 1), each >> 14) for each in held]
        word.decode()
        if word in found or len(word) > MAX_WORD or places > _MAX_POSITIONS or any(a[0] >= b[0] for a, b in itertools.pairwise(positions)):
            raise ValueError("lexeme")
        found[word] = positions
    if at != len(raw):
        raise ValueError("junk")
    return printed(sorted(found.items()))


def _send(text: str) -> bytes:
    lexemes = lexemes_of(text)
    out = [struct.pack(">i", len(lexemes))]
    for word, positions in lexemes:
        out.append(
            word + b"\0" + struct.pack(f">H{len(positions)}H", len(positions), *(weight << 14 | place for place, weight in positions))
        )
    return b"".join(out)


def key(text: str) -> bytes:
    """silly_cmp_tsvector: by the size, the number of words, then word by word, those with positions first."""
    lexemes = lexemes_of(text)
    out = [struct.pack(">II", _size(lexemes) + 4 * len(lexemes), len(lexemes))]
    for word, positions in lexemes:
        out.append(bytes([not positions]) + ended(word))
        if positions:
            out.append(struct.pack(">H", 0xFFFF - len(positions)))
            out += [struct.pack(">HB", 0xFFFF - place, 3 - weight) for place, weight in positions]
    return b"".join(out)


TYPES: dict[int, BaseType] = {registry.TSVECTOR: singly(_read, _receive, _send, key)}
