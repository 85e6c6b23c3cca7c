"""jsonpath, stored as text in normal form: jsonpath_in … jsonpath_send on whole columns, as in jsonpath_gram.y. `TYPES` describes it.

A path is a list of items, each of which is applied to the result of the previous one. Each different text is read separately. The pattern
after ``like_regex`` is not compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.errors import PostgresError, not_supported
from headgate.types import registry, text_column
from headgate.types.base import numeric, string
from headgate.types.base.base_type import BaseType, received_singly, sent_singly
from headgate.types.base.json_text import quoted
from headgate.types.text_column import TextSettings

_OTHER = r'[^?%$.\[\]{}()|&!=<>@#,*:\-+/\\" \t\n\r\f]'
_TOKEN = re.compile(
    rf"""(?P<skip>[ \t\n\r\f]+|/\*.*?\*/)
    |(?P<number>(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<junk>{_OTHER})?
    |(?P<variable>\$(?:{_OTHER}+|"(?:[^"\\]|\\.)*"))
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<sign>&&|\|\||\*\*|<=|==|<>|!=|>=|[?%$.\[\]{{}}()!<>@\#,*:\-+/])
    |(?P<word>(?:{_OTHER}|\\.)+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_COMPARISONS = {"==": "==", "!=": "!=", "<>": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_METHODS = frozenset({"abs", "size", "type", "floor", "double", "ceiling", "keyvalue"})
_PRIORITY = {"||": 0, "&&": 1, **dict.fromkeys((*_COMPARISONS, "starts with", "like_regex"), 2), "+": 3, "-": 3, "*": 4, "/": 4, "%": 4,
             "unary": 5}  # fmt: skip
_FLAGS = "ismxq"
_MAX_DEPTH = 200


@dataclass(frozen=True)
class Item:
    """One step of a path: its kind and its value, such as a key's name or the operands of an operator."""

    kind: str
    value: Any = None


Path = list[Item]


def _priority(path: Path) -> int:
    return _PRIORITY.get(path[0].kind, 6)


class _Parser:
    """A parser of one text. It raises 42601."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.filters = self.subscripts = self.depth = 0

    def read(self) -> tuple[bool, Path]:
        strict = self.word() == "strict"
        self.at += self.word() in ("strict", "lax")
        path, _ = self.disjunction()
        if self.at < len(self.tokens):
            raise self.error()
        return strict, path

    def error(self) -> PostgresError:
        near = f'or near "{self.tokens[self.at][1]}"' if self.at < len(self.tokens) else "end"
        return PostgresError("42601", f"syntax error at {near} of jsonpath input")

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else ("", "")

    def word(self, ahead: int = 0) -> str:
        """Return the next keyword in lower case, or an empty string. true, false and null are keywords only in lower case."""
        kind, text = self.peek(ahead)
        lowered = text.lower()
        return "" if kind != "word" else text if lowered in ("true", "false", "null") else lowered

    def sign(self, *signs: str) -> str:
        """Consume and return the next token if it is one of the signs, else return an empty string."""
        kind, text = self.peek()
        if kind != "sign" or text not in signs:
            return ""
        self.at += 1
        return text

    def need(self, sign: str) -> None:
        """Consume the sign. Raise if it is not next."""
        if not self.sign(sign):
            raise self.error()

    def need_unknown(self) -> None:
        """Consume the keyword UNKNOWN. Raise if it is not next."""
        if self.word() != "unknown":
            raise self.error()
        self.at += 1

    def need_text(self) -> str:
        """Consume and return a string. Raise if it is not next."""
        kind, text = self.peek()
        if kind != "string":
            raise self.error()
        self.at += 1
        return text

    def disjunction(self) -> tuple[Path, bool]:
        """Parse a predicate or an expression. Return it, and whether it is a predicate."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise PostgresError("54001", "stack depth limit exceeded")
        result = self._parse_predicates("||", lambda: self._parse_predicates("&&", self.predicate))
        self.depth -= 1
        return result

    def _parse_predicates(self, sign: str, operand: Callable[[], tuple[Path, bool]]) -> tuple[Path, bool]:
        left, is_predicate = operand()
        while is_predicate and self.sign(sign):
            right, also = operand()
            if not also:
                raise self.error()
            left = [Item(sign, (left, right))]
        return left, is_predicate

    def predicate(self) -> tuple[Path, bool]:
        """Parse a comparison or another predicate, or an expression."""
        if self.sign("!"):
            if self.word() != "exists" and self.peek() != ("sign", "("):
                raise self.error()
            inner, is_predicate = self.delimited()
            if not is_predicate or len(inner) != 1:
                raise self.error()
            return [Item("!", inner)], True
        left, is_predicate = self.sum()
        if is_predicate:
            return left, True
        if sign := self.sign(*_COMPARISONS):
            return [Item(_COMPARISONS[sign], (left, self.expression(self.sum())))], True
        if self.word() == "starts" and self.word(1) == "with":
            self.at += 2
            kind, text = self.peek()
            if kind not in ("string", "variable"):
                raise self.error()
            self.at += 1
            return [Item("starts with", (left, [Item(kind, text)]))], True
        if self.word() == "like_regex":
            self.at += 1
            pattern, flags = self.need_text(), ""
            if self.word() == "flag":
                self.at += 1
                flags = _checked_flags(self.need_text())
            return [Item("like_regex", (left, pattern, flags))], True
        return left, False

    def expression(self, operand: tuple[Path, bool]) -> Path:
        """Return the expression. Raise if it is a predicate."""
        path, is_predicate = operand
        if is_predicate:
            raise self.error()
        return path

    def sum(self) -> tuple[Path, bool]:
        """Parse operands of + and -."""
        return self._parse_operators(("+", "-"), lambda: self._parse_operators(("*", "/", "%"), self.unary))

    def _parse_operators(self, signs: tuple[str, ...], operand: Callable[[], tuple[Path, bool]]) -> tuple[Path, bool]:
        left, is_predicate = operand()
        while not is_predicate and (sign := self.sign(*signs)):
            left = [Item(sign, (left, self.expression(operand())))]
        return left, is_predicate

    def unary(self) -> tuple[Path, bool]:
        """Parse a signed operand. A sign before a number becomes part of it."""
        sign = self.sign("+", "-")
        if not sign:
            return self.delimited()
        arg = self.expression(self.unary())
        if len(arg) == 1 and arg[0].kind == "number":
            value = arg[0].value
            negative = value[1:] if value.startswith("-") else "-" + value
            return [Item("number", numeric.print_value(numeric.value_of(negative)) if sign == "-" else value)], False
        return [Item("unary", (sign, arg))], False

    def delimited(self) -> tuple[Path, bool]:
        """Parse parentheses, EXISTS, or a path with its accessors."""
        if self.word() == "exists" and self.peek(1) == ("sign", "("):
            self.at += 2
            inner, is_predicate = self.disjunction()
            self.need(")")
            return [Item("exists", self.expression((inner, is_predicate)))], True
        if not self.sign("("):
            return self.accessors([self.primary()]), False
        inner, is_predicate = self.disjunction()
        self.need(")")
        if is_predicate and self.word() == "is":
            self.at += 1
            self.need_unknown()
            return [Item("is unknown", inner)], True
        whole = self.accessors(inner)
        return whole, is_predicate and len(whole) == len(inner)

    def primary(self) -> Item:
        kind, text = self.peek()
        self.at += 1
        if kind == "number":
            return Item("number", numeric.print_value(numeric.value_of(text)))
        if kind in ("string", "variable"):
            return Item(kind, text)
        if kind == "sign" and text in ("$", "@"):
            if text == "@" and not self.filters:
                raise PostgresError("42601", "@ is not allowed in root expressions")
            return Item(text)
        self.at -= 1
        word = self.word()
        self.at += 1
        if word == "last":
            if not self.subscripts:
                raise PostgresError("42601", "LAST is allowed only in array subscripts")
            return Item("last")
        if word in ("true", "false", "null"):
            return Item(word)
        self.at -= 1
        raise self.error()

    def accessors(self, path: Path) -> Path:
        """Return the path with the keys, subscripts, methods and filters after it."""
        items = [*path]
        while True:
            if self.sign("."):
                items.append(self.member())
            elif self.sign("["):
                items.append(self.subscript())
            elif self.sign("?"):
                self.need("(")
                self.filters += 1
                inner, is_predicate = self.disjunction()
                self.filters -= 1
                if not is_predicate:
                    raise self.error()
                self.need(")")
                items.append(Item("?", inner))
            else:
                return items

    def member(self) -> Item:
        if self.sign("*"):
            return Item(".*")
        if self.sign("**"):
            return Item("**", self.levels())
        kind, text = self.peek()
        if kind not in ("word", "string"):
            raise self.error()
        word = self.word()
        self.at += 1
        if kind == "word" and self.peek() == ("sign", "("):
            if word in _METHODS:
                self.at += 1
                self.need(")")
                return Item("method", word)
            if word == "datetime":
                self.at += 1
                template = self.need_text() if self.peek()[0] == "string" else None
                self.need(")")
                return Item("datetime", template)
        return Item("key", text)

    def levels(self) -> str:
        """Parse the levels of ``**`` and return them as printed."""
        if not self.sign("{"):
            return ""
        first = last = self.level()
        if self.word() == "to":
            self.at += 1
            last = self.level()
        self.need("}")
        if (first, last) == ("0", "last"):
            return ""
        return "{" + (first if first == last else f"{first} to {last}") + "}"

    def level(self) -> str:
        """Parse one level: a number or LAST."""
        kind, text = self.peek()
        self.at += 1
        if kind == "number" and text.isdigit():
            return str(int(text))
        if kind == "word" and text.lower() == "last":
            return "last"
        self.at -= 1
        raise self.error()

    def subscript(self) -> Item:
        if self.sign("*"):
            self.need("]")
            return Item("[*]")
        self.subscripts += 1
        subscripts: list[tuple[Path, Path | None]] = []
        while True:
            low, high = self.expression(self.sum()), None
            if self.word() == "to":
                self.at += 1
                high = self.expression(self.sum())
            subscripts.append((low, high))
            if not self.sign(","):
                break
        self.need("]")
        self.subscripts -= 1
        return Item("[]", subscripts)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    index = 0
    while index < len(text):
        match = _TOKEN.match(text, index)
        if match is None:
            raise PostgresError("42601", f'syntax error at or near "{text[index]}" of jsonpath input')
        if match["junk"]:
            raise PostgresError("42601", f'trailing junk after numeric literal at or near "{match[0]}" of jsonpath input')
        index = match.end()
        kind = match.lastgroup or ""
        shown = match[kind]
        if kind == "variable":
            shown = _unescape(shown[2:-1]) if shown[1] == '"' else shown[1:]
        elif kind == "string":
            shown = _unescape(shown[1:-1])
        elif kind == "word":
            shown = _unescape(shown)
        if kind != "skip":
            yield kind, shown


def _unescape(text: str) -> str:
    """Decode the escapes of a string. A pair of surrogates is one character."""

    def read(match: re.Match[str]) -> str:
        short, long, byte, plain = match.groups()
        code = short or long or byte
        return _ESCAPED.get(plain, plain) if plain else chr(min(int(code, 16), 0x10FFFF))

    decoded = _ESCAPE.sub(read, text)
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if "\\u" in text else decoded


def _checked_flags(flags: str) -> str:
    for flag in flags:
        if flag not in _FLAGS:
            detail = f'Unrecognized flag character "{flag}" in LIKE_REGEX predicate.'
            raise PostgresError("42601", "invalid input syntax for type jsonpath", detail=detail)
    if "x" in flags and "q" not in flags:
        raise not_supported('XQuery "x" flag (expanded regular expressions) is not implemented')
    return "".join(flag for flag in _FLAGS if flag in flags)


def normal(text: str) -> str:
    """Read one text as jsonpath_in and print it as jsonpath_out."""
    if not text.strip(" \t\n\r\f"):
        raise text_column.invalid_syntax("jsonpath", text)
    strict, path = _Parser(text).read()
    return ("strict " if strict else "") + _print_path(path, brackets=True)


def _print_path(path: Path, *, brackets: bool) -> str:
    """Print a path as printJsonPathItem. `brackets`: whether a leading operator is in parentheses."""
    first = _first(path[0], brackets=brackets, followed=len(path) > 1)
    return first + "".join(map(_step, path[1:]))


def _first(item: Item, *, brackets: bool, followed: bool) -> str:
    kind, value = item.kind, item.value
    match kind:
        case "number":
            return f"({value})" if followed else str(value)
        case "string":
            return quoted(value)
        case "variable":
            return "$" + quoted(value)
        case "!":
            return f"!({_print_path(value, brackets=False)})"
        case "is unknown":
            return f"({_print_path(value, brackets=False)}) is unknown"
        case "exists":
            return f"exists ({_print_path(value, brackets=False)})"
        case "unary":
            shown = value[0] + _operand(value[1], kind)
        case "like_regex":
            flags = f' flag "{value[2]}"' if value[2] else ""
            shown = f"{_operand(value[0], kind)} like_regex {quoted(value[1])}{flags}"
        case _ if kind in _PRIORITY:
            shown = f"{_operand(value[0], kind)} {kind} {_operand(value[1], kind)}"
        case _:
            return kind
    return f"({shown})" if brackets else shown


def _operand(path: Path, kind: str) -> str:
    return _print_path(path, brackets=_priority(path) <= _PRIORITY[kind])


def _step(item: Item) -> str:
    match item.kind:
        case "key":
            return "." + quoted(item.value)
        case "**":
            return f".**{item.value}"
        case "method":
            return f".{item.value}()"
        case "datetime":
            return f".datetime({'' if item.value is None else quoted(item.value)})"
        case "?":
            return f"?({_print_path(item.value, brackets=False)})"
        case "[]":
            return "[" + ",".join(_index(*bounds) for bounds in item.value) + "]"
        case _:
            return item.kind


def _index(low: Path, high: Path | None) -> str:
    shown = _print_path(low, brackets=False)
    return shown if high is None else f"{shown} to {_print_path(high, brackets=False)}"


def _read(strings: pa.StringArray, _modifier: int, _settings: TextSettings) -> pa.StringArray:
    return text_column.read_normal(string.read_text(strings), pa.array([False] * len(strings)), normal)


def _receive(raw: bytes) -> str:
    if raw[0] != 1:
        raise PostgresError("XX000", f"unsupported jsonpath version number: {raw[0]}")
    return normal(raw[1:].decode())


TYPES: dict[int, BaseType] = {
    registry.JSONPATH: BaseType(
        read=_read, receive=received_singly(_receive, _read), send=sent_singly(lambda text: b"\x01" + text.encode()), in_bulk=False
    )
}
