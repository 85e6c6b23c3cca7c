"""A pattern as a regular expression of Java, for questions of yes or no: Spark evaluates those in the JVM.

What must hold: Java needs time in proportion to the string, as its search listens to no cancel and would keep a thread of Spark's, or
the session itself in Spark's planner, for as long as it backtracks. `written` therefore gives None, and `matcher` serves, unless

    every round of a repetition without limit is final (possessive: what follows cannot begin with what is repeated), or
    what stands between two `.*` is of one length, so that its first place is as good as any (an atomic group), or
    the pattern is bound to the start and has one such repetition,

and what is left has few ways to match. A repetition at an end of the pattern that is not bound counts for its fewest rounds. Back
references are the matcher's. Character sets are written out, so no flag of Java's changes their meaning; `literal` finds patterns that
need no expression.
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
"""In at most so many ways may Java try to match from one place."""
_LONG = 1000
"""At most so many characters does it look at from one place, repetitions without limit apart."""
_GAP = Repeat(Chars(ALL), 0, INFINITE)


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
    """The expression for `java.util.regex.Matcher.find`, None where it could differ, or take more than a moment for a long string."""
    try:
        return None if pattern.refers else _pattern(list(_items(without_groups(pattern.rex))))
    except _TooHard:
        return None


def _items(rex: Rex) -> Iterator[Rex]:
    if isinstance(rex, Concat):
        for each in rex.items:
            yield from _items(each)
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
    shown = [r"\A"]
    for place, piece in enumerate(before):
        if _width(Concat(tuple(piece))) is None:
            raise _TooHard
        lead = "" if place == 0 and bound else _any(gaps[place - 1] if place else 0)
        shown.append(f"(?>{lead}{_sequence(piece, bound=False)})")
    return "".join(shown) + _any(gaps[-1]) + _sequence(last, bound=False)


def _fewest(repeated: Repeat) -> list[Rex]:
    return [Repeat(repeated.body, repeated.low, repeated.low)] if repeated.low else []


def _pieces(items: list[Rex]) -> tuple[list[list[Rex]], list[int]]:
    """What stands between each `.*`, and the fewest characters of these."""
    pieces: list[list[Rex]] = [[]]
    gaps: list[int] = []
    for each in items:
        if isinstance(each, Repeat) and each.high == INFINITE and each.body == _GAP.body:
            pieces.append([])
            gaps.append(each.low)
        else:
            pieces[-1].append(each)
    return pieces, gaps


def _any(low: int) -> str:
    return f"(?s:.{{{low},}}?)"


def _sequence(items: list[Rex], *, bound: bool) -> str:
    """One item after the other; `bound`: from one place only, the start."""
    shown, ways, open_ended = [], 1, False
    for place, each in enumerate(items):
        after = items[place + 1] if place + 1 < len(items) else None
        final = isinstance(each, Repeat) and _apart(_first(each), after)
        shown.append(_write(each) + ("+" if final else ""))
        if isinstance(each, Repeat) and each.high == INFINITE:
            once = bound or (place > 0 and _apart(_first(items[place - 1]), each, nothing=False))
            if open_ended or not ((final and once) or bound) or _ways(each.body) > 1 or not _width(each.body):
                raise _TooHard
            open_ended = not final
        elif not final:
            ways *= _ways(each)
    if ways > _WAYS or sum(_longest(each) for each in items) > _LONG:
        raise _TooHard
    return "".join(shown)


def _first(rex: Rex) -> CharSet | None:
    """The characters of a Rex that is one character, or several of one set; None for any other."""
    body = rex.body if isinstance(rex, Repeat) else rex
    return body.set if isinstance(body, Chars) else None


def _apart(chars: CharSet | None, other: Rex | None, *, nothing: bool = True) -> bool:
    """Whether what follows (`nothing`: or the end of the string) begins with none of these characters."""
    if nothing and other == At(PositionCondition.END):
        return chars is not None
    if chars is None or other is None or (nothing and isinstance(other, Repeat) and not other.low):
        return False
    first = _first(other)
    return first is not None and (chars.complement() | first.complement()) == ALL


def _write(rex: Rex) -> str:
    match rex:
        case Chars(found):
            return characters(found)
        case At(place):
            return _PLACES[place]
        case Look(body, behind, negated):
            return f"(?{'<' if behind else ''}{'!' if negated else '='}{_write(body)})"
        case Concat(items):
            return "".join(_write(each) for each in items)
        case Choice(branches):
            return "(?:" + "|".join(_write(each) for each in branches) + ")"
        case Repeat(body, low, high):
            return "" if high == 0 else f"(?:{_write(body)}){_count(low, high)}"
        case _:
            raise _TooHard


def _count(low: int, high: int) -> str:
    if high == INFINITE:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return "?" if (low, high) == (0, 1) else f"{{{low},{high}}}"


def _ways(rex: Rex) -> int:
    """In how many ways it may be tried at one place; repetitions without limit are too hard here."""
    match rex:
        case Concat(items):
            return _capped(math.prod(_ways(each) for each in items))
        case Choice(branches):
            return _capped(sum(_ways(each) for each in branches))
        case Look(body, _, _):
            return _ways(body)
        case Repeat(body, low, high):
            if high == INFINITE:
                raise _TooHard
            inner = _ways(body)
            return high - low + 1 if inner == 1 else _capped((high - low + 1) * inner ** min(high, 10))
        case _:
            return 1


def _capped(ways: int) -> int:
    return min(ways, _WAYS + 1)


def _longest(rex: Rex) -> int:
    """How many characters it looks at, repetitions without limit counted once."""
    match rex:
        case Chars():
            return 1
        case Concat(items) | Choice(items):
            return sum(_longest(each) for each in items)
        case Look(body, _, _):
            return _longest(body)
        case Repeat(body, low, high):
            return _longest(body) * max(low, high, 1)
        case _:
            return 0


def _width(rex: Rex) -> int | None:
    """The number of characters that it takes, None if that varies."""
    match rex:
        case Chars():
            return 1
        case At() | Look():
            return 0
        case Concat(items):
            widths = [_width(each) for each in items]
            return None if None in widths else sum(each for each in widths if each is not None)
        case Choice(branches):
            found = {_width(each) for each in branches}
            return found.pop() if len(found) == 1 else None
        case Repeat(body, low, high):
            inner = _width(body)
            return low * inner if inner is not None and low == high else None
        case _:
            return None


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
