"""A pattern as a regular expression of Java, for questions of yes or no: Spark evaluates those in the JVM.

`written` gives None where Java's backtracking could answer otherwise or take exponential time: back references to groups that are
not plain items of the whole pattern, unlimited looks behind, repeated choices and repetitions of repetitions; `matcher` serves
those. Character sets are written out, so no flag of Java's changes their meaning; `literal` finds patterns that need no expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.expression.functions.regex.charset import ALL, CharSet
from headgate.expression.functions.regex.pattern import (
    INFINITE,
    At,
    BackReference,
    Chars,
    Choice,
    Concat,
    Group,
    Look,
    Part,
    Pattern,
    PositionCondition,
    Repeat,
    Rex,
)

_WORD = "[0-9A-Z_a-z]"
_PLACES = {
    PositionCondition.START: r"\A",
    PositionCondition.END: r"\z",
    PositionCondition.LINE_START: r"(?<![^\n])",
    PositionCondition.LINE_END: r"(?![^\n])",
    PositionCondition.WORD_START: f"(?<!{_WORD})(?={_WORD})",
    PositionCondition.WORD_END: f"(?<={_WORD})(?!{_WORD})",
    PositionCondition.WORD_EDGE: f"(?:(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD}))",
    PositionCondition.NO_WORD_EDGE: f"(?:(?<!{_WORD})(?!{_WORD})|(?<={_WORD})(?={_WORD}))",
}
_FEW = 4
"""Up to so many rounds of something of varying length are left to Java."""


class _TooHard(Exception):
    """What Java cannot be trusted with."""


@dataclass(frozen=True)
class Literal:
    """A pattern that is plain text, bound to the start or the end of the string or to neither."""

    text: str
    at_start: bool
    at_end: bool


def literal(pattern: Pattern) -> Literal | None:
    """The text that the pattern looks for, None if it is not as simple."""
    items = list(_items(pattern.rex))
    at_start = bool(items) and items[0] == At(PositionCondition.START)
    at_end = len(items) > at_start and items[-1] == At(PositionCondition.END)
    text = ""
    for each in items[at_start : len(items) - at_end]:
        if not isinstance(each, Chars) or len(each.set.ranges) != 1 or each.set.ranges[0][0] != each.set.ranges[0][1]:
            return None
        text += chr(each.set.ranges[0][0])
    return Literal(text, at_start, at_end)


def written(pattern: Pattern) -> str | None:
    """The expression for `java.util.regex.Matcher.find`, None if Java could differ."""
    try:
        return _Writer(_referable(pattern.tree), pattern.fold).write(pattern.rex)
    except _TooHard:
        return None


def _items(rex: Rex) -> Iterator[Rex]:
    if isinstance(rex, Concat):
        for each in rex.items:
            yield from _items(each)
    else:
        yield rex


def _referable(tree: Part) -> frozenset[int]:
    """The groups that are items of the pattern itself, each matched once: any span of theirs is tried, by PostgreSQL and by Java."""
    found, part = set(), tree
    while part.kind == "." and not part.capture:
        for each in part.children:
            if each.capture and each.kind != "(":
                found.add(each.capture)
        part = part.children[-1]
    return frozenset(found)


class _Writer:
    def __init__(self, referable: frozenset[int], fold: bool) -> None:
        self.referable = referable
        self.fold = fold
        self.numbers: dict[int, int] = {}

    def write(self, rex: Rex) -> str:
        match rex:
            case Chars(found):
                return characters(found)
            case At(place):
                return _PLACES[place]
            case Look(body, behind, negated):
                if behind and _unlimited(body):
                    raise _TooHard
                return f"(?{'<' if behind else ''}{'!' if negated else '='}{self.write(body)})"
            case Concat(items):
                return "".join(self.write(each) for each in items)
            case Choice(branches):
                return "(?:" + "|".join(self.write(each) for each in branches) + ")"
            case Repeat(body, low, high):
                return self._repeated(body, low, high)
            case Group(number, body):
                if number not in self.referable:
                    return f"(?:{self.write(body)})"
                self.numbers[number] = len(self.numbers) + 1
                return f"({self.write(body)})"
            case BackReference(number, _, low, high):
                if number not in self.numbers:
                    raise _TooHard
                again = f"(?{'i' if self.fold else ''}:\\{self.numbers[number]})"
                return again if low == high == 1 else f"(?:{again}{_count(low, high)})"
            case _:
                raise _TooHard

    def _repeated(self, body: Rex, low: int, high: int) -> str:
        if high == 0:
            return ""
        if (high == INFINITE or high > _FEW) and not _fixed(body):
            raise _TooHard
        return f"(?:{self.write(body)}){_count(low, high)}"


def _count(low: int, high: int) -> str:
    if high == INFINITE:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return "?" if (low, high) == (0, 1) else f"{{{low},{high}}}"


def _fixed(rex: Rex) -> bool:
    """Whether the Rex matches in one way only: characters one after the other, at least one."""
    items = list(_items(rex.body if isinstance(rex, Group) else rex))
    return bool(items) and all(isinstance(each, Chars) or (isinstance(each, Group) and _fixed(each)) for each in items)


def _unlimited(rex: Rex) -> bool:
    match rex:
        case Repeat(body, _, high):
            return high == INFINITE or _unlimited(body)
        case Concat(items) | Choice(items):
            return any(_unlimited(each) for each in items)
        case Group(_, body):
            return _unlimited(body)
        case _:
            return False


def characters(found: CharSet) -> str:
    """A set of characters, as Java reads it whatever its flags."""
    if not found.ranges:
        return "(?!)"
    if found == ALL:
        return "(?s:.)"
    first, last = found.ranges[0]
    if len(found.ranges) == 1 and first == last:
        return _character(first)
    other = found.complement()
    inner, sign = (other, "^") if len(other.ranges) < len(found.ranges) else (found, "")
    return f"[{sign}{''.join(_character(a) if a == b else f'{_character(a)}-{_character(b)}' for a, b in inner.ranges)}]"


def _character(code: int) -> str:
    shown = chr(code)
    return shown if shown.isascii() and shown.isalnum() else f"\\x{{{code:x}}}"
