"""Sets of characters, as sorted ranges of code points, and the character classes of the C collation, which are ASCII's.

Used by `parser` (brackets, escapes, letters in either case), `matcher` and `java`.
"""

from __future__ import annotations

import string
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

LAST = 0x10FFFF


@dataclass(frozen=True)
class CharSet:
    """The code points of `ranges`: pairs (first, last), sorted, neither overlapping nor touching."""

    ranges: tuple[tuple[int, int], ...]

    def complement(self) -> CharSet:
        gaps, start = [], 0
        for first, last in self.ranges:
            if first > start:
                gaps.append((start, first - 1))
            start = last + 1
        if start <= LAST:
            gaps.append((start, LAST))
        return CharSet(tuple(gaps))

    def __or__(self, other: CharSet) -> CharSet:
        return of_ranges((*self.ranges, *other.ranges))

    def without(self, character: str) -> CharSet:
        return (self.complement() | single(ord(character))).complement()

    def either_case(self) -> CharSet:
        """Return the set with both cases of its ASCII letters."""
        extra = []
        for first, last in self.ranges:
            for low, high, shift in ((65, 90, 32), (97, 122, -32)):
                begin, end = max(first, low), min(last, high)
                if begin <= end:
                    extra.append((begin + shift, end + shift))
        return of_ranges((*self.ranges, *extra)) if extra else self

    @cached_property
    def table(self) -> bytes:
        """For `bytes.translate` of Latin-1: b'1' for members, b'0' for others."""
        return bytes(49 if code in self else 48 for code in range(256))

    @cached_property
    def _starts(self) -> list[int]:
        return [first for first, _ in self.ranges]

    def __contains__(self, code: int) -> bool:
        place = bisect_right(self._starts, code) - 1
        return place >= 0 and code <= self.ranges[place][1]


def of_ranges(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """Return the union of ranges."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return CharSet(tuple(merged))


def single(code: int) -> CharSet:
    """Return the set of one character. It is empty beyond Unicode, because no text contains such a character."""
    return CharSet(((code, code),)) if 0 <= code <= LAST else CharSet(())


def _of(characters: str) -> CharSet:
    return of_ranges((ord(character), ord(character)) for character in characters)


ALL = CharSet(((0, LAST),))
WORD = _of(string.ascii_letters + string.digits + "_")
CLASSES = {
    "alnum": _of(string.ascii_letters + string.digits),
    "alpha": _of(string.ascii_letters),
    "ascii": CharSet(((0, 127),)),
    "blank": _of(" \t"),
    "cntrl": CharSet(((0, 31), (127, 159))),
    "digit": _of(string.digits),
    "graph": CharSet(((33, 126),)),
    "lower": _of(string.ascii_lowercase),
    "print": CharSet(((32, 126),)),
    "punct": _of(string.punctuation),
    "space": _of(" \t\n\v\f\r"),
    "upper": _of(string.ascii_uppercase),
    "xdigit": _of(string.hexdigits),
    "word": WORD,
}
NAMES = {
    "NUL": 0, "SOH": 1, "STX": 2, "ETX": 3, "EOT": 4, "ENQ": 5, "ACK": 6, "BEL": 7, "alert": 7, "BS": 8, "backspace": 8, "HT": 9,
    "tab": 9, "LF": 10, "newline": 10, "VT": 11, "vertical-tab": 11, "FF": 12, "form-feed": 12, "CR": 13, "carriage-return": 13,
    "SO": 14, "SI": 15, "DLE": 16, "DC1": 17, "DC2": 18, "DC3": 19, "DC4": 20, "NAK": 21, "SYN": 22, "ETB": 23, "CAN": 24, "EM": 25,
    "SUB": 26, "ESC": 27, "IS4": 28, "FS": 28, "IS3": 29, "GS": 29, "IS2": 30, "RS": 30, "IS1": 31, "US": 31, "space": 32,
    "exclamation-mark": 33, "quotation-mark": 34, "number-sign": 35, "dollar-sign": 36, "percent-sign": 37, "ampersand": 38,
    "apostrophe": 39, "left-parenthesis": 40, "right-parenthesis": 41, "asterisk": 42, "plus-sign": 43, "comma": 44, "hyphen": 45,
    "hyphen-minus": 45, "period": 46, "full-stop": 46, "slash": 47, "solidus": 47, "zero": 48, "one": 49, "two": 50, "three": 51,
    "four": 52, "five": 53, "six": 54, "seven": 55, "eight": 56, "nine": 57, "colon": 58, "semicolon": 59, "less-than-sign": 60,
    "equals-sign": 61, "greater-than-sign": 62, "question-mark": 63, "commercial-at": 64, "left-square-bracket": 91, "backslash": 92,
    "reverse-solidus": 92, "right-square-bracket": 93, "circumflex": 94, "circumflex-accent": 94, "underscore": 95, "low-line": 95,
    "grave-accent": 96, "left-brace": 123, "left-curly-bracket": 123, "vertical-line": 124, "right-brace": 125,
    "right-curly-bracket": 125, "tilde": 126, "DEL": 127,
}  # fmt: skip
"""The POSIX names of collating elements, as in ``[[.hyphen.]]``."""
