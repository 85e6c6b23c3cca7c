"""Translate a parsed pattern to a Java regular expression that Spark evaluates in the JVM, for tests whether a string matches.

Invariant: Java's matching time must be proportional to the string's length. Java's search cannot be cancelled, and would block one of
Spark's threads, or the session itself in Spark's planner, for as long as it backtracks. `written` therefore returns None, and the caller
uses `matcher`, unless

    every iteration of an unlimited repetition is final (possessive: what follows cannot begin with what is repeated), or
    the part between two `.*` has a fixed length, so that its first position is as good as any other (an atomic group), or
    the pattern is anchored at the start and has one such repetition,

and the rest has few ways to match. A repetition at an unanchored end of the pattern is reduced to its minimum count. Back references are
left to the matcher. Character sets are written out, so Java's flags cannot change their meaning. `literal` recognizes patterns that need
no regular expression.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.expression.functions.regex.charset import ALL, CharSet
from headgate.expression.functions.regex.pattern import (
    INFINITE,
    At,
    Chars,
    Choice,
    Concat,
    Look,
    Pattern,
    PositionCondition,
    Repeat,
    Rex,
    without_groups,
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
_WAYS = 1000
"""Maximum number of ways in which Java may try to match at one position."""
_LONG = 1000
"""Maximum number of characters that Java looks at from one position, not counting unlimited repetitions."""
_GAP = Repeat(Chars(ALL), 0, INFINITE)


class _TooHard(Exception):
    """Raised for a pattern that Java may match too slowly or differently."""


@dataclass(frozen=True)
class Literal:
    """A pattern that is plain text, anchored at the start or the end of the string, at both, or at neither."""

    text: str
    at_start: bool
    at_end: bool


def literal(pattern: Pattern) -> Literal | None:
    """Return the literal text that the pattern searches for, or None if the pattern is not plain text."""
    items = list(_items(pattern.rex))
    at_start = bool(items) and items[0] == At(PositionCondition.START)
    at_end = len(items) > at_start and items[-1] == At(PositionCondition.END)
    text = ""
    for item in items[at_start : len(items) - at_end]:
        if not isinstance(item, Chars) or len(item.set.ranges) != 1 or item.set.ranges[0][0] != item.set.ranges[0][1]:
            return None
        text += chr(item.set.ranges[0][0])
    return Literal(text, at_start, at_end)


def written(pattern: Pattern) -> str | None:
    """Return the expression for `java.util.regex.Matcher.find`, or None if it could differ or be slow for a long string."""
    try:
        return None if pattern.refers else _pattern(list(_items(without_groups(pattern.rex))))
    except _TooHard:
        return None


def _items(rex: Rex) -> Iterator[Rex]:
    if isinstance(rex, Concat):
        for item in rex.items:
            yield from _items(item)
    else:
        yield rex


def _pattern(items: list[Rex]) -> str:
    bound = bool(items) and items[0] == At(PositionCondition.START)
    while items and not bound and isinstance(items[0], Repeat) and items[0].high == INFINITE:
        items = [*_fewest(items[0]), *items[1:]]
    while items and isinstance(items[-1], Repeat) and items[-1].high == INFINITE:
        items = [*items[:-1], *_fewest(items[-1])]
    pieces, gaps = _pieces(items)
    *before, last = pieces
    if not before:
        return _sequence(last, bound=bound)
    parts = [r"\A"]
    for index, piece in enumerate(before):
        if _width(Concat(tuple(piece))) is None:
            raise _TooHard
        lead = "" if index == 0 and bound else _any(gaps[index - 1] if index else 0)
        parts.append(f"(?>{lead}{_sequence(piece, bound=False)})")
    return "".join(parts) + _any(gaps[-1]) + _sequence(last, bound=False)


def _fewest(repeated: Repeat) -> list[Rex]:
    return [Repeat(repeated.body, repeated.low, repeated.low)] if repeated.low else []


def _pieces(items: list[Rex]) -> tuple[list[list[Rex]], list[int]]:
    """Return the parts of a pattern between each `.*`, and the minimum number of characters of each `.*`."""
    pieces: list[list[Rex]] = [[]]
    gaps: list[int] = []
    for item in items:
        if isinstance(item, Repeat) and item.high == INFINITE and item.body == _GAP.body:
            pieces.append([])
            gaps.append(item.low)
        else:
            pieces[-1].append(item)
    return pieces, gaps


def _any(low: int) -> str:
    return f"(?s:.{{{low},}}?)"


def _sequence(items: list[Rex], *, bound: bool) -> str:
    """Write items in sequence. `bound` means that they are matched only at the start of the string."""
    parts, ways, open_ended = [], 1, False
    for index, item in enumerate(items):
        following = items[index + 1] if index + 1 < len(items) else None
        is_final = isinstance(item, Repeat) and _apart(_first(item), following)
        parts.append(_write(item) + ("+" if is_final else ""))
        if isinstance(item, Repeat) and item.high == INFINITE:
            starts_once = bound or (index > 0 and _apart(_first(items[index - 1]), item, nothing=False))
            if open_ended or not ((is_final and starts_once) or bound) or _ways(item.body) > 1 or not _width(item.body):
                raise _TooHard
            open_ended = not is_final
        elif not is_final:
            ways *= _ways(item)
    if ways > _WAYS or sum(_longest(item) for item in items) > _LONG:
        raise _TooHard
    return "".join(parts)


def _first(rex: Rex) -> CharSet | None:
    """Return the set of a Rex that is one character, or several of one set, or None for any other Rex."""
    body = rex.body if isinstance(rex, Repeat) else rex
    return body.set if isinstance(body, Chars) else None


def _apart(chars: CharSet | None, following: Rex | None, *, nothing: bool = True) -> bool:
    """Return whether the item that follows begins with none of these characters. With `nothing`, it may also be the end of the string."""
    if nothing and following == At(PositionCondition.END):
        return chars is not None
    if chars is None or following is None or (nothing and isinstance(following, Repeat) and not following.low):
        return False
    first = _first(following)
    return first is not None and (chars.complement() | first.complement()) == ALL


def _write(rex: Rex) -> str:
    match rex:
        case Chars(charset):
            return characters(charset)
        case At(condition):
            return _PLACES[condition]
        case Look(body, behind, negated):
            return f"(?{'<' if behind else ''}{'!' if negated else '='}{_write(body)})"
        case Concat(items):
            return "".join(_write(item) for item in items)
        case Choice(branches):
            return "(?:" + "|".join(_write(branch) for branch in branches) + ")"
        case Repeat(body, low, high):
            return "" if high == 0 else f"(?:{_write(body)}){_count(low, high)}"
        case _:
            raise _TooHard


def _count(low: int, high: int) -> str:
    if high == INFINITE:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return "?" if (low, high) == (0, 1) else f"{{{low},{high}}}"


def _ways(rex: Rex) -> int:
    """Return the number of ways to try a Rex at one position. Raise `_TooHard` for unlimited repetitions."""
    match rex:
        case Concat(items):
            return _cap(math.prod(_ways(item) for item in items))
        case Choice(branches):
            return _cap(sum(_ways(branch) for branch in branches))
        case Look(body, _, _):
            return _ways(body)
        case Repeat(body, low, high):
            if high == INFINITE:
                raise _TooHard
            inner = _ways(body)
            return high - low + 1 if inner == 1 else _cap((high - low + 1) * inner ** min(high, 10))
        case _:
            return 1


def _cap(ways: int) -> int:
    return min(ways, _WAYS + 1)


def _longest(rex: Rex) -> int:
    """Return how many characters a Rex looks at. Unlimited repetitions count once or by their minimum."""
    match rex:
        case Chars():
            return 1
        case Concat(items) | Choice(items):
            return sum(_longest(item) for item in items)
        case Look(body, _, _):
            return _longest(body)
        case Repeat(body, low, high):
            return _longest(body) * max(low, high, 1)
        case _:
            return 0


def _width(rex: Rex) -> int | None:
    """Return the number of characters that a Rex matches, or None if that varies."""
    match rex:
        case Chars():
            return 1
        case At() | Look():
            return 0
        case Concat(items):
            widths = [_width(item) for item in items]
            return None if None in widths else sum(width for width in widths if width is not None)
        case Choice(branches):
            branch_widths = {_width(branch) for branch in branches}
            return branch_widths.pop() if len(branch_widths) == 1 else None
        case Repeat(body, low, high):
            inner = _width(body)
            return low * inner if inner is not None and low == high else None
        case _:
            return None


def characters(chars: CharSet) -> str:
    """Return a set of characters as Java reads it under any flags."""
    if not chars.ranges:
        return "(?!)"
    if chars == ALL:
        return "(?s:.)"
    first, last = chars.ranges[0]
    if len(chars.ranges) == 1 and first == last:
        return _character(first)
    complement = chars.complement()
    inner, sign = (complement, "^") if len(complement.ranges) < len(chars.ranges) else (chars, "")
    return f"[{sign}{''.join(_character(a) if a == b else f'{_character(a)}-{_character(b)}' for a, b in inner.ranges)}]"


def _character(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"
