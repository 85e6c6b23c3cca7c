"""The tokens of a regular expression (regc_lex.c): the meaning of a character depends on the flavor and on its position.

Called by `parser` alone. A token is a kind and a value. A kind that is a single character is that character of the syntax.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NoReturn

from headgate.errors import PostgresError
from headgate.expression.functions.regex.charset import CLASSES, NAMES, CharSet


class Flag(enum.IntFlag):
    """How a pattern is read: the compile flags of regex.h."""

    EXTENDED = 1
    ADVANCED_ESCAPES = 2
    ADVANCED = 3
    QUOTE = 4
    FOLD = 8
    EXPANDED = 32
    NEWLINE_STOPS = 64
    NEWLINE_ANCHORS = 128
    NEWLINE = 192


REASONS = {
    "BADPAT": "invalid regexp (reg version 0.8)",
    "ECOLLATE": "invalid collating element",
    "ECTYPE": "invalid character class",
    "EESCAPE": "invalid escape \\ sequence",
    "ESUBREG": "invalid backreference number",
    "EBRACK": "brackets [] not balanced",
    "EPAREN": "parentheses () not balanced",
    "EBRACE": "braces {} not balanced",
    "BADBR": "invalid repetition count(s)",
    "ERANGE": "invalid character range",
    "BADRPT": "quantifier operand invalid",
    "ETOOBIG": "regular expression is too complex",
    "BADOPT": "invalid embedded option",
}
MAX_CHARACTER = 0x7FFFFFFE
OPTIONS = {
    "b": (Flag(0), Flag.ADVANCED | Flag.QUOTE),
    "c": (Flag(0), Flag.FOLD),
    "e": (Flag.EXTENDED, Flag.ADVANCED_ESCAPES | Flag.QUOTE),
    "i": (Flag.FOLD, Flag(0)),
    "m": (Flag.NEWLINE, Flag(0)),
    "n": (Flag.NEWLINE, Flag(0)),
    "p": (Flag.NEWLINE_STOPS, Flag.NEWLINE_ANCHORS),
    "q": (Flag.QUOTE, Flag.ADVANCED),
    "s": (Flag(0), Flag.NEWLINE),
    "t": (Flag(0), Flag.EXPANDED),
    "w": (Flag.NEWLINE_ANCHORS, Flag.NEWLINE_STOPS),
    "x": (Flag.EXPANDED, Flag(0)),
}
"""The letters of embedded options and of flags arguments: (set, cleared)."""
_CONTROL = {"a": 7, "b": 8, "B": 92, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CLASS = {"d": "digit", "s": "space", "w": "word"}
_PLACES = {"A": "SBEGIN", "m": "<", "M": ">", "y": "WBDRY", "Y": "NWBDRY", "Z": "SEND"}
_DIGITS = "0123456789"


class LexerContext(enum.Enum):
    """The lexical state, which decides about the meaning of characters."""

    ERE = enum.auto()
    BRE = enum.auto()
    QUOTE = enum.auto()
    ERE_BOUND = enum.auto()
    BRE_BOUND = enum.auto()
    BRACKET = enum.auto()
    COLLATING = enum.auto()
    EQUIVALENCE = enum.auto()
    CLASS = enum.auto()


_ENDS = {LexerContext.COLLATING: ".", LexerContext.EQUIVALENCE: "=", LexerContext.CLASS: ":"}


def invalid(reason: str) -> PostgresError:
    """Return 2201B with PostgreSQL's reason."""
    return PostgresError("2201B", f"invalid regular expression: {REASONS[reason]}")


def fail(reason: str) -> NoReturn:
    """Raise the error of `invalid`."""
    raise invalid(reason)


@dataclass(frozen=True)
class Token:
    """A token: its kind, and as `value` a code point, a preference (1 greedy, 0 not) or a number, or as `set` a class of characters."""

    kind: str
    value: int = 0
    set: CharSet | None = None


START, STOP = Token("EMPTY"), Token("EOS")


class Lexer:
    """Split a pattern into tokens.

    `token` is the next token, `last` the kind of the one before it, and `groups` the number of groups that the parser has counted.
    """

    def __init__(self, text: str, flags: Flag) -> None:
        self.text = text
        self.flags = flags
        self.place = 0
        self.groups = 0
        self._prefixes()
        if self.flags & Flag.QUOTE:
            self.context = LexerContext.QUOTE
        else:
            self.context = LexerContext.ERE if self.flags & Flag.EXTENDED else LexerContext.BRE
        self.last = ""
        self.token = START
        self.next()

    def _prefixes(self) -> None:
        if self.flags & Flag.QUOTE:
            return
        if len(self.text) >= 4 and self.text.startswith("***"):
            mark = self.text[3]
            if mark == "=":
                self.flags = (self.flags | Flag.QUOTE) & ~(Flag.ADVANCED | Flag.EXPANDED | Flag.NEWLINE)
                self.place = 4
                return
            if mark != ":":
                fail("BADPAT" if mark == "?" else "BADRPT")
            self.flags |= Flag.ADVANCED
            self.place = 4
        if self.flags & Flag.ADVANCED == Flag.ADVANCED:
            self._read_embedded()

    def _read_embedded(self) -> None:
        rest = self.text[self.place :]
        if len(rest) < 3 or not rest.startswith("(?") or not (rest[2].isascii() and rest[2].isalpha()):
            return
        self.place += 2
        while not self._at_end() and self.text[self.place].isascii() and self.text[self.place].isalpha():
            change = OPTIONS.get(self.text[self.place])
            if change is None:
                fail("BADOPT")
            self.flags = (self.flags | change[0]) & ~change[1]
            self.place += 1
        if not self._sees(")"):
            fail("BADOPT")
        self.place += 1
        if self.flags & Flag.QUOTE:
            self.flags &= ~(Flag.EXPANDED | Flag.NEWLINE)

    def _at_end(self) -> bool:
        return self.place >= len(self.text)

    def _sees(self, text: str) -> bool:
        return self.text.startswith(text, self.place)

    def _take(self) -> str:
        self.place += 1
        return self.text[self.place - 1]

    def next(self) -> None:
        """Advance to the next token. Raise 2201B for invalid syntax."""
        self.last = self.token.kind
        self.token = self._next()

    def _next(self) -> Token:
        while True:
            if self.flags & Flag.EXPANDED and self.context in (
                LexerContext.ERE,
                LexerContext.BRE,
                LexerContext.ERE_BOUND,
                LexerContext.BRE_BOUND,
            ):
                self._skip()
            if self._at_end():
                if self.context in (LexerContext.ERE, LexerContext.BRE, LexerContext.QUOTE):
                    return STOP
                fail("EBRACE" if self.context in (LexerContext.ERE_BOUND, LexerContext.BRE_BOUND) else "EBRACK")
            token = self._from(self._take())
            if token is not None:
                return token

    def _from(self, character: str) -> Token | None:
        """Return the token that begins with the character, or None after a comment."""
        if self.context is LexerContext.QUOTE:
            return Token("PLAIN", ord(character))
        if self.context is LexerContext.BRE:
            return self._basic(character)
        if self.context in (LexerContext.ERE_BOUND, LexerContext.BRE_BOUND):
            return self._bound_token(character)
        if self.context is LexerContext.BRACKET:
            return self._bracket(character)
        if self.context in _ENDS:
            if character == _ENDS[self.context] and self._sees("]"):
                self.place += 1
                self.context = LexerContext.BRACKET
                return Token("END", ord(character))
            return Token("PLAIN", ord(character))
        return self._extended_token(character)

    def _greedy(self) -> int:
        """Return 1, or 0 if the quantifier is followed by a question mark."""
        if self.flags & Flag.ADVANCED_ESCAPES and self._sees("?"):
            self.place += 1
            return 0
        return 1

    def _bound_token(self, character: str) -> Token:
        if character in _DIGITS:
            return Token("DIGIT", int(character))
        if character == ",":
            return Token(",")
        if character == "}" and self.context is LexerContext.ERE_BOUND:
            self.context = LexerContext.ERE
            return Token("}", self._greedy())
        if character == "\\" and self.context is LexerContext.BRE_BOUND and self._sees("}"):
            self.place += 1
            self.context = LexerContext.BRE
            return Token("}", 1)
        fail("BADBR")

    def _bracket(self, character: str) -> Token:
        if character == "]" and self.token.kind != "[":
            self.context = LexerContext.ERE if self.flags & Flag.EXTENDED else LexerContext.BRE
            return Token("]")
        if character == "\\" and self.flags & Flag.ADVANCED_ESCAPES:
            if self._at_end():
                fail("EESCAPE")
            escape = self._escape()
            if escape.kind not in ("PLAIN", "CLASS", "NOT CLASS"):
                fail("EESCAPE")
            return escape
        if character == "-" and self.token.kind != "[" and not self._sees("]"):
            return Token("RANGE", ord(character))
        if character == "[":
            if self._at_end():
                fail("EBRACK")
            for context, mark in _ENDS.items():
                if self._sees(mark):
                    self.place += 1
                    self.context = context
                    return Token("[" + mark)
        return Token("PLAIN", ord(character))

    def _open_bracket(self) -> Token:
        for mark in "<>":
            if self._sees(f"[:{mark}:]]"):
                self.place += 6
                return Token(mark)
        self.context = LexerContext.BRACKET
        if self._sees("^"):
            self.place += 1
            return Token("[", 0)
        return Token("[", 1)

    def _extended_token(self, character: str) -> Token | None:
        if character in "*+?":
            return Token(character, self._greedy())
        if character == "{":
            if self.flags & Flag.EXPANDED:
                self._skip()
            if self._at_end() or self.text[self.place] not in _DIGITS:
                return Token("PLAIN", ord(character))
            self.context = LexerContext.ERE_BOUND
            return Token("{")
        if character == "(":
            return self._parenthesis()
        if character == "[":
            return self._open_bracket()
        if character == ")":
            return Token(")", ord(character))
        if character in "|.^$":
            return Token(character)
        if character != "\\":
            return Token("PLAIN", ord(character))
        if self._at_end():
            fail("EESCAPE")
        if not self.flags & Flag.ADVANCED_ESCAPES:
            return Token("PLAIN", ord(self._take()))
        return self._escape()

    def _parenthesis(self) -> Token | None:
        if not (self.flags & Flag.ADVANCED_ESCAPES and self._sees("?")):
            return Token("(", 1)
        self.place += 1
        for mark, token in (
            (":", Token("(", 0)),
            ("=", Token("LOOK", 0)),
            ("!", Token("LOOK", 1)),
            ("<=", Token("LOOK", 2)),
            ("<!", Token("LOOK", 3)),
        ):
            if self._sees(mark):
                self.place += len(mark)
                return token
        if not self._sees("#"):
            fail("BADRPT")
        end = self.text.find(")", self.place)
        self.place = len(self.text) if end < 0 else end + 1
        return None

    def _escape(self) -> Token:
        character = self._take()
        if not (character.isascii() and character.isalnum()):
            return Token("PLAIN", ord(character))
        if character in _CONTROL:
            return Token("PLAIN", _CONTROL[character])
        if character in _PLACES:
            return Token(_PLACES[character])
        if character in "dsw":
            return Token("CLASS", set=CLASSES[_CLASS[character]])
        if character in "DSW":
            return Token("NOT CLASS", set=CLASSES[_CLASS[character.lower()]])
        if character == "c":
            if self._at_end():
                fail("EESCAPE")
            return Token("PLAIN", ord(self._take()) & 0o37)
        if character in "uUx":
            low, high = {"u": (4, 4), "U": (8, 8), "x": (1, 255)}[character]
            code = self._digits(16, low, high)
            if code > MAX_CHARACTER:
                fail("EESCAPE")
            return Token("PLAIN", code)
        if character not in _DIGITS:
            fail("EESCAPE")
        return self._number(character)

    def _number(self, character: str) -> Token:
        """Read a back reference, or a character by its octal number."""
        behind = self.place
        self.place -= 1
        if character != "0":
            number = self._digits(10, 1, 255)
            if self.place == behind or 0 < number <= self.groups:
                return Token("BACKREF", number)
            self.place = behind - 1
        code = self._digits(8, 1, 3)
        if code > 0xFF:
            self.place -= 1
            code >>= 3
        return Token("PLAIN", code)

    def _digits(self, base: int, low: int, high: int) -> int:
        start, code = self.place, 0
        while self.place < len(self.text) and self.place - start < high:
            digit = "0123456789abcdef".find(self.text[self.place].lower())
            if not 0 <= digit < base or not self.text[self.place].isascii():
                break
            code = (code * base + digit) & 0xFFFFFFFF
            self.place += 1
        if self.place - start < low:
            fail("EESCAPE")
        return code

    def _basic(self, character: str) -> Token:
        previous = self.token.kind
        if character == "*":
            return Token("PLAIN", ord(character)) if previous in ("EMPTY", "(", "^") else Token("*", 1)
        if character == "[":
            return self._open_bracket()
        if character == ".":
            return Token(".")
        if character == "^":
            return Token("^") if previous in ("EMPTY", "(") else Token("PLAIN", ord(character))
        if character == "$":
            if self.flags & Flag.EXPANDED:
                self._skip()
            return Token("$") if self._at_end() or self._sees("\\)") else Token("PLAIN", ord(character))
        if character != "\\":
            return Token("PLAIN", ord(character))
        if self._at_end():
            fail("EESCAPE")
        character = self._take()
        if character == "{":
            self.context = LexerContext.BRE_BOUND
            return Token("{")
        if character in "()":
            return Token(character, 1 if character == "(" else ord(character))
        if character in "<>":
            return Token(character)
        if character in _DIGITS[1:]:
            return Token("BACKREF", int(character))
        return Token("PLAIN", ord(character))

    def _skip(self) -> None:
        """Skip white space and comments of the expanded syntax."""
        while True:
            while not self._at_end() and self.text[self.place] in " \t\n\v\f\r":
                self.place += 1
            if not self._sees("#"):
                return
            end = self.text.find("\n", self.place)
            self.place = len(self.text) if end < 0 else end

    def named(self) -> str:
        """Return the characters up to the end of a ``[.``, ``[=`` or ``[:``, and advance past it."""
        self.next()
        name = ""
        while self.token.kind == "PLAIN":
            name += chr(self.token.value)
            self.next()
        self.next()
        return name


def element(name: str) -> int:
    """Return the character of a collating element. Raise 2201B if there is none."""
    if len(name) == 1:
        return ord(name)
    if name not in NAMES:
        fail("ECOLLATE")
    return NAMES[name]
