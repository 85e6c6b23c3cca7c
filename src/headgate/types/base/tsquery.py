"""tsquery, stored as text: tsqueryin … tsquerysend on whole columns, as in tsquery.c. `TYPES` describes it.

A query is represented as in PostgreSQL: its items from the outermost operator on, of two operands the right one first. Each different text
is read separately.

The text does not show the complete structure of a query: ``a & (b & c)`` is printed as ``'a' & 'b' & 'c'``, and is the latter here.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate.errors import PostgresError
from headgate.types import registry, text_column
from headgate.types.base.base_type import BaseType, ended, singly
from headgate.types.base.tsvector import MAX_BYTES, MAX_WORD, WordReader, quoted
from headgate.types.text_column import TextSettings

NOT, AND, OR, PHRASE = 1, 2, 3, 4
_PRIORITY = {OR: 1, AND: 2, PHRASE: 3, NOT: 4}
_MAX_DISTANCE = 1 << 14
_STACK = 32
_MAX_DEPTH = 200
_WEIGHTS = {"a": 8, "b": 4, "c": 2, "d": 1}
_DISTANCE = re.compile(r"<(?:-|([0-9]+))>(?=.)", re.DOTALL)


@dataclass(frozen=True)
class Operand:
    """A word. `weight` has a bit for each of A (8) to D (1)."""

    word: str
    weight: int = 0
    prefix: bool = False


@dataclass(frozen=True)
class Operator:
    """NOT, AND, OR, or PHRASE with a distance."""

    kind: int
    distance: int = 0


Item = Operand | Operator


class _Reader:
    """A parser of one query (parse_tsquery). It raises 42601, 22023 and 54000."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = WordReader(text, in_query=True)
        self.items: list[Item] = []
        self.open = 0
        self.first = True
        self.needs_operand = True
        self.bytes = 0

    def read(self) -> list[Item]:
        self._level(0)
        return self.items[::-1]

    def _error(self, words: str = "syntax error in tsquery", sqlstate: str = "42601") -> PostgresError:
        return PostgresError(sqlstate, f'{words}: "{self.text}"')

    def _level(self, depth: int) -> None:
        """Parse the contents of one pair of parentheses (makepol)."""
        if depth > _MAX_DEPTH:
            raise PostgresError("54001", "stack depth limit exceeded")
        stack: list[Operator] = []
        while (token := self._token()) != "":
            if isinstance(token, Operand):
                self._push(token)
            elif isinstance(token, Operator):
                self._clean(stack, token.kind)
                if len(stack) == _STACK:
                    raise PostgresError("XX000", "tsquery stack too small")
                stack.append(token)
            elif token.startswith("("):
                self._level(depth + 1)
            else:
                break
        self._clean(stack, OR)

    def _clean(self, stack: list[Operator], kind: int) -> None:
        """Move operators from the stack to the items (cleanOpStack). NOT associates to the right, the others to the left."""
        while stack:
            top = _PRIORITY[stack[-1].kind]
            if _PRIORITY[kind] > top or (kind == NOT and _PRIORITY[kind] >= top):
                return
            self.items.append(stack.pop())

    def _push(self, operand: Operand) -> None:
        size = len(operand.word.encode())
        if size >= MAX_WORD:
            raise self._error("word is too long in tsquery", "54000")
        if self.bytes >= MAX_BYTES:
            raise self._error("value is too big in tsquery", "54000")
        self.bytes += size + 1
        self.items.append(operand)

    def _token(self) -> Item | str:
        """Return an operand, an operator, a parenthesis, or an empty string at the end (gettoken_query_standard)."""
        words = self.words
        while (char := self.text[words.at : words.at + 1]) and char in text_column.SPACE:
            words.at += 1
        return self._operand(char) if self.needs_operand else self._operator(char)

    def _operand(self, char: str) -> Item | str:
        words, first = self.words, self.first
        if char in ("!", "("):
            words.at += 1
            self.first = False
            self.open += char == "("
            return Operator(NOT) if char == "!" else char
        if char == ":":
            raise self._error()
        token = words.next()
        if token is None:
            if first:
                return ""
            raise self._error("no operand in tsquery")
        self.first, self.needs_operand = False, False
        return self._parse_modifiers(token[0])

    def _parse_modifiers(self, word: str) -> Operand:
        """Parse weights and an asterisk after a colon (get_modifiers)."""
        words, weight, prefix = self.words, 0, False
        if self.text[words.at : words.at + 1] == ":":
            words.at += 1
            while (char := self.text[words.at : words.at + 1].lower()) and (char in _WEIGHTS or char == "*"):
                weight |= _WEIGHTS.get(char, 0)
                prefix |= char == "*"
                words.at += 1
        return Operand(word, weight, prefix)

    def _operator(self, char: str) -> Item | str:
        words = self.words
        if char in ("&", "|"):
            words.at += 1
            self.needs_operand = True
            return Operator(AND if char == "&" else OR)
        if char == "<" and (match := _DISTANCE.match(self.text, words.at)) is not None:
            words.at = match.end()
            self.needs_operand = True
            return Operator(PHRASE, _distance(match[1]))
        if char == "<" and (digits := re.compile("<([0-9]+)").match(self.text, words.at)) is not None:
            _distance(digits[1])
        if char == ")":
            words.at += 1
            self.open -= 1
            if self.open >= 0:
                return char
        if char or self.open:
            raise self._error()
        return ""


def _distance(digits: str | None) -> int:
    distance = 1 if digits is None else int(digits[:30])
    if distance > _MAX_DISTANCE:
        message = f"distance in phrase operator must be an integer value between zero and {_MAX_DISTANCE} inclusive"
        raise PostgresError("22023", message)
    return distance


def items_of(text: str) -> list[Item]:
    """Return the items of a query (tsqueryin)."""
    return _Reader(text).read()


def printed(items: Sequence[Item]) -> str:
    """Print items as tsqueryout. Raise ValueError if they are not a query."""
    if not items:
        return ""
    remaining = iter(items)
    shown = _infix(remaining, -1, right_of_phrase=False)
    if next(remaining, None) is not None:
        raise ValueError("items")
    return shown


def _infix(items: Iterator[Item], outer: int, *, right_of_phrase: bool) -> str:
    item = next(items, None)
    if item is None:
        raise ValueError("operand")
    if isinstance(item, Operand):
        marks = "*" * item.prefix + "".join(name.upper() for name, bit in _WEIGHTS.items() if item.weight & bit)
        return quoted(item.word) + (":" + marks if marks else "")
    priority = _PRIORITY[item.kind]
    if item.kind == NOT:
        shown = "!" + _infix(items, priority, right_of_phrase=False)
    else:
        right = _infix(items, priority, right_of_phrase=item.kind == PHRASE)
        left = _infix(items, priority, right_of_phrase=False)
        sign = {AND: "&", OR: "|"}.get(item.kind) or ("<->" if item.distance == 1 else f"<{item.distance}>")
        shown = f"{left} {sign} {right}"
    inside = priority < outer or (item.kind == PHRASE and right_of_phrase)
    return f"( {shown} )" if inside else shown


def _read(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return text_column.read_normal(strings, pa.array([False] * len(strings)), lambda text: printed(items_of(text)))


def _receive(raw: bytes) -> str:
    (count,) = struct.unpack_from(">I", raw)
    offset, items = 4, list[Item]()
    for _ in range(count):
        if raw[offset] == 1:
            end = raw.index(b"\0", offset + 3)
            if raw[offset + 1] > 15 or end - offset - 3 > MAX_WORD:
                raise ValueError("operand")
            items.append(Operand(raw[offset + 3 : end].decode(), raw[offset + 1], raw[offset + 2] != 0))
            offset = end + 1
        elif raw[offset] == 2 and raw[offset + 1] in _PRIORITY:
            phrase = raw[offset + 1] == PHRASE
            items.append(Operator(raw[offset + 1], struct.unpack_from(">h", raw, offset + 2)[0] if phrase else 0))
            offset += 4 if phrase else 2
        else:
            raise ValueError("item")
    if offset != len(raw):
        raise ValueError("junk")
    return printed(items)


def _send(text: str) -> bytes:
    items = items_of(text)
    out = [struct.pack(">I", len(items))]
    for item in items:
        if isinstance(item, Operand):
            out.append(bytes([1, item.weight, item.prefix]) + item.word.encode() + b"\0")
        else:
            out.append(bytes([2, item.kind]) + (struct.pack(">h", item.distance) if item.kind == PHRASE else b""))
    return b"".join(out)


def key(text: str) -> bytes:
    """Return the key of a query (CompareTSQ): by number of items, size, then from the outermost operator on, without weights, prefixes."""
    items = items_of(text)
    size = sum(len(item.word.encode()) + 1 for item in items if isinstance(item, Operand))
    return struct.pack(">II", len(items), size) + (_node_key(iter(items)) if items else b"")


def _node_key(items: Iterator[Item]) -> bytes:
    """Return the key of a node (QTNodeCompare), which inverts the order: the greater sorts first."""
    item = next(items)
    if isinstance(item, Operand):
        word = item.word.encode()
        crc = (_crc(word) + (1 << 31)) & 0xFFFFFFFF
        return b"\x01" + struct.pack(">I", 0xFFFFFFFF - crc) + ended(word)
    operands = _node_key(items) + (b"" if item.kind == NOT else _node_key(items))
    return bytes([0, 255 - item.kind]) + operands + struct.pack(">H", 0xFFFF - item.distance)


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


_TABLE = _crc_table()


def _crc(word: bytes) -> int:
    """Return COMP_LEGACY_CRC32, by which PostgreSQL orders words."""
    crc = 0xFFFFFFFF
    for byte in word:
        crc = _TABLE[(crc >> 24 ^ byte) & 0xFF] ^ (crc << 8 & 0xFFFFFFFF)
    return crc ^ 0xFFFFFFFF


TYPES: dict[int, BaseType] = {registry.TSQUERY: dataclasses.replace(singly(_read, _receive, _send, key), one_text=False)}
