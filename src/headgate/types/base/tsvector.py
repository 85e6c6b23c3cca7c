"""tsvector, stored as text: tsvectorin … tsvectorsend on whole columns, as in tsvector.c. `TYPES` describes it.

Each different text is read separately. `tsquery` uses the same parser for its words.
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
"""The position of a word, from 1, and its weight, from 3 for A to 0 for D."""
Lexemes = list[tuple[bytes, list[Position]]]

MAX_WORD = 2047
"""The length in bytes from which a word is too long."""
MAX_BYTES = (1 << 20) - 1
_MAX_POSITION = 1 << 14
_MAX_POSITIONS = 256
OPERATORS = "!&|()<"
_WEIGHTS = {"a": 3, "*": 3, "b": 2, "c": 1, "d": 0}
_DIGITS = re.compile("[0-9]+")


@dataclass
class WordReader:
    """A parser of the words of a text (gettoken_tsvector). `in_query`: operators end a word, and words have no positions."""

    text: str
    in_query: bool = False
    at: int = 0

    def _error(self, words: str = "syntax error in {}") -> PostgresError:
        shown = words.format("tsquery" if self.in_query else "tsvector")
        return PostgresError("42601", f'{shown}: "{self.text}"')

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def next(self) -> tuple[str, list[Position]] | None:
        """Return the next word with its positions, or None at the end. Raise 42601."""
        while self._peek() and self._peek() in text_column.SPACE:
            self.at += 1
        char = self._peek()
        if not char:
            return None
        if self.in_query and char in OPERATORS:
            raise self._error()
        word = self._read_quoted() if char == "'" else self._plain()
        if self.in_query or self._peek() != ":":
            return word, []
        self.at += 1
        return word, self._positions()

    def _read_escape(self) -> str:
        self.at += 1
        char = self._peek()
        if not char:
            raise self._error("there is no escaped character")
        self.at += 1
        return char

    def _character(self, char: str) -> str:
        """Consume `char` or, if that is a backslash, the character after it, and return it."""
        if char == "\\":
            return self._read_escape()
        self.at += 1
        return char

    def _plain(self) -> str:
        characters: list[str] = []
        while True:
            char = self._peek()
            if not char or char in text_column.SPACE or (self.in_query and char in OPERATORS) or (characters and char == ":"):
                break
            characters.append(self._character(char))
        if not characters:
            raise self._error()
        return "".join(characters)

    def _read_quoted(self) -> str:
        characters: list[str] = []
        self.at += 1
        while True:
            char = self._peek()
            if not char:
                raise self._error()
            if char == "'":
                self.at += 1
                if self._peek() != "'":
                    break
            characters.append(self._character(char))
        if not characters:
            raise self._error()
        return "".join(characters)

    def _positions(self) -> list[Position]:
        positions: list[Position] = []
        while True:
            digits = _DIGITS.match(self.text, self.at)
            if digits is None:
                raise self._error()
            position = _limit(digits[0])
            if not position:
                raise self._error("wrong position info in {}")
            positions.append((position, 0))
            self.at = digits.end()
            while True:
                char = self._peek()
                if not char or char in text_column.SPACE:
                    return positions
                self.at += 1
                if char == ",":
                    break
                if char.lower() in _WEIGHTS:
                    if positions[-1][1]:
                        raise self._error()
                    positions[-1] = (position, _WEIGHTS[char.lower()])
                elif char not in "0123456789":
                    raise self._error()


def _limit(digits: str) -> int:
    """Convert digits as atoi with the overflow of C, limited as by LIMITPOS."""
    value = min(int(digits[:30]), (1 << 63) - 1) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return (_MAX_POSITION - 1 if value >= _MAX_POSITION else value) & (_MAX_POSITION - 1)


def lexemes_of(text: str) -> Lexemes:
    """Return the words of a text in order, each once (tsvectorin). Raise 42601 or 54000."""
    reader = WordReader(text)
    positions: dict[bytes, list[Position]] = {}
    total = 0
    while (token := reader.next()) is not None:
        word = token[0].encode()
        if len(word) >= MAX_WORD:
            raise PostgresError("54000", f"word is too long ({len(word)} bytes, max {MAX_WORD - 1} bytes)")
        if total > MAX_BYTES:
            raise PostgresError("54000", f"string is too long for tsvector ({total} bytes, max {MAX_BYTES} bytes)")
        total += len(word)
        positions.setdefault(word, []).extend(token[1])
    lexemes = [(word, _unique(positions[word])) for word in sorted(positions)]
    if (size := _size(lexemes)) > MAX_BYTES:
        raise PostgresError("54000", f"string is too long for tsvector ({size} bytes, max {MAX_BYTES} bytes)")
    return lexemes


def _unique(positions: Sequence[Position]) -> list[Position]:
    """Return each position once with its greatest weight, at most 256 (uniquePos)."""
    if len(positions) <= 1:
        return list(positions)
    unique: list[Position] = []
    for position, weight in sorted(positions):
        if unique and unique[-1][0] == position:
            unique[-1] = position, max(weight, unique[-1][1])
            continue
        if len(unique) >= _MAX_POSITIONS or (unique and unique[-1][0] == _MAX_POSITION - 1):
            break
        unique.append((position, weight))
    return unique


def _size(lexemes: Lexemes) -> int:
    """Return the bytes of the words and positions as PostgreSQL stores them."""
    size = 0
    for word, positions in lexemes:
        size += len(word)
        if positions:
            size += size % 2 + 2 + 2 * len(positions)
    return size


def printed(lexemes: Lexemes) -> str:
    return " ".join(quoted(word.decode()) + _printed_positions(positions) for word, positions in lexemes)


def quoted(word: str) -> str:
    """Print a word as tsvectorout and tsqueryout."""
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _printed_positions(positions: Sequence[Position]) -> str:
    return ":" + ",".join(f"{position}{('', 'C', 'B', 'A')[weight]}" for position, weight in positions) if positions else ""


def _read(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return text_column.read_normal(strings, pa.array([False] * len(strings)), lambda text: printed(lexemes_of(text)))


def _receive(raw: bytes) -> str:
    (count,) = struct.unpack_from(">i", raw)
    offset, lexemes = 4, dict[bytes, list[Position]]()
    for _ in range(count):
        end = raw.index(b"\0", offset)
        word = raw[offset:end]
        (count_of_positions,) = struct.unpack_from(">H", raw, end + 1)
        packed = struct.unpack_from(f">{count_of_positions}H", raw, end + 3)
        offset = end + 3 + 2 * count_of_positions
        positions = [(value & (_MAX_POSITION - 1), value >> 14) for value in packed]
        word.decode()
        if (
            word in lexemes
            or len(word) > MAX_WORD
            or count_of_positions > _MAX_POSITIONS
            or any(a[0] >= b[0] for a, b in itertools.pairwise(positions))
        ):
            raise ValueError("lexeme")
        lexemes[word] = positions
    if offset != len(raw):
        raise ValueError("junk")
    return printed(sorted(lexemes.items()))


def _send(text: str) -> bytes:
    lexemes = lexemes_of(text)
    out = [struct.pack(">i", len(lexemes))]
    for word, positions in lexemes:
        out.append(
            word + b"\0" + struct.pack(f">H{len(positions)}H", len(positions), *(weight << 14 | position for position, weight in positions))
        )
    return b"".join(out)


def key(text: str) -> bytes:
    """Return the key of a text (silly_cmp_tsvector): by size, number of words, then word by word, those with positions first."""
    lexemes = lexemes_of(text)
    out = [struct.pack(">II", _size(lexemes) + 4 * len(lexemes), len(lexemes))]
    for word, positions in lexemes:
        out.append(bytes([not positions]) + ended(word))
        if positions:
            out.append(struct.pack(">H", 0xFFFF - len(positions)))
            out += [struct.pack(">HB", 0xFFFF - position, 3 - weight) for position, weight in positions]
    return b"".join(out)


TYPES: dict[int, BaseType] = {registry.TSVECTOR: singly(_read, _receive, _send, key)}
