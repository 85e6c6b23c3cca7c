"""Match a parsed pattern against a string, with PostgreSQL's choice of match and groups (regexec.c; manual, 9.7.3.5).

A `MatchSubject` is one string and one pattern. Sets of positions are integers, with bit p for the position before character p. A Rex maps
a set of starts to the set of all ends (and back) at once, so no pattern takes exponential time. The match starts as far left as possible.
From there, the preference of the whole pattern selects the longest or shortest end. Then `_dissect` splits the matched text among the
parts, from the left, each by its own preference. Only back references make it try further splits and ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headgate.expression.functions.regex.charset import WORD, CharSet
from headgate.expression.functions.regex.pattern import (
    INFINITE,
    SHORTER,
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

Spans = list[tuple[int, int] | None]
"""The span of the match and of each group, None for a group that did not participate."""


def _ascending(positions: int) -> Iterator[int]:
    while positions:
        lowest = positions & -positions
        yield lowest.bit_length() - 1
        positions ^= lowest


def _descending(positions: int) -> Iterator[int]:
    while positions:
        position = positions.bit_length() - 1
        yield position
        positions ^= 1 << position


class MatchSubject:
    """A string with the pattern that is matched against it."""

    def __init__(self, pattern: Pattern, text: str) -> None:
        self.pattern = pattern
        self.text = text
        self.size = len(text)
        self.every = (1 << (self.size + 1)) - 1
        self._sets: dict[CharSet, int] = {}
        self._looks: dict[Rex, int] = {}
        self._rexes: dict[int, Rex] = {}
        self._ends: dict[tuple[int, int], int] = {}
        self._groups: dict[int, tuple[int, int] | None] = {}
        self._starts: int | None = None
        try:
            self._latin: bytes | None = text.encode("latin-1")
        except UnicodeEncodeError:
            self._latin = None

    def matches(self) -> bool:
        if self.pattern.refers:
            return self.find(0) is not None
        return bool(self.starts(self.pattern.rex, self.every))

    def find(self, start: int) -> Spans | None:
        """Return the leftmost match at or after `start`, or None if there is none."""
        if self._starts is None:
            self._starts = self.starts(self.pattern.rex, self.every)
        if self.pattern.refers:
            return self._find_referring(start, self._starts)
        for begin in _ascending(self._starts >> start << start):
            return self._match_at(begin)
        return None

    def _find_referring(self, start: int, starts: int) -> Spans | None:
        """Find a match of a pattern with back references. If no match fits up to the nearest possible end, continue after that end.

        If the search position reaches the end of the string, that position is not tried (the loop condition of cfindloop).
        """
        while True:
            starts = starts >> start << start
            ends = self.ends(self.pattern.rex, starts)
            if not ends:
                return None
            close = next(_ascending(ends))
            for begin in _ascending(starts & ((1 << (close + 1)) - 1)):
                spans = self._match_at(begin)
                if spans is not None:
                    return spans
            start = close + 1
            if start >= self.size:
                return None

    def _match_at(self, begin: int) -> Spans | None:
        """Return the match that starts at `begin`, selected by the preference of the whole pattern."""
        tree = self.pattern.tree
        ends = self.ends(self.pattern.rex, 1 << begin)
        for end in _ascending(ends) if tree.flags & SHORTER else _descending(ends):
            self._groups = {}
            if self.pattern.groups == 0 or self._dissect(tree, begin, end):
                return [(begin, end), *(self._groups.get(number) for number in range(1, self.pattern.groups + 1))]
        return None

    def members(self, chars: CharSet) -> int:
        """Return the positions before a character of the set."""
        bits = self._sets.get(chars)
        if bits is None:
            if self._latin is not None:
                digits = self._latin.translate(chars.table)[::-1]
            else:
                digits = bytes(49 if ord(character) in chars else 48 for character in reversed(self.text))
            bits = self._sets[chars] = int(digits, 2) if digits else 0
        return bits

    def holds(self, place: PositionCondition) -> int:
        if place is PositionCondition.START:
            return 1
        if place is PositionCondition.END:
            return 1 << self.size
        if place in (PositionCondition.LINE_START, PositionCondition.LINE_END):
            lines = self.members(CharSet(((10, 10),)))
            return (1 | lines << 1) if place is PositionCondition.LINE_START else (lines | 1 << self.size)
        ahead = self.members(WORD)
        behind = ahead << 1
        if place is PositionCondition.WORD_START:
            return ahead & ~behind
        if place is PositionCondition.WORD_END:
            return behind & ~ahead
        edges = ahead ^ behind
        return edges if place is PositionCondition.WORD_EDGE else self.every & ~edges

    def looks(self, look: Look) -> int:
        """Return the positions at which a lookahead or lookbehind succeeds."""
        bits = self._looks.get(look)
        if bits is None:
            bits = self.ends(look.body, self.every) if look.behind else self.starts(look.body, self.every)
            bits = self._looks[look] = self.every & ~bits if look.negated else bits
        return bits

    def ends(self, rex: Rex, starts: int) -> int:
        """Return the positions where a match that starts at one of `starts` may end."""
        return self._reach(rex, starts, forward=True)

    def starts(self, rex: Rex, ends: int) -> int:
        """Return the positions where a match that ends at one of `ends` may start."""
        return self._reach(rex, ends, forward=False)

    def _reach(self, rex: Rex, positions: int, *, forward: bool) -> int:
        """Return the other ends of the matches that have one end, the start if `forward`, at one of the positions."""
        match rex:
            case Chars(charset):
                members = self.members(charset)
                return (positions & members) << 1 if forward else (positions >> 1) & members
            case At(condition):
                return positions & self.holds(condition)
            case Look():
                return positions & self.looks(rex)
            case Concat(items):
                for item in items if forward else reversed(items):
                    positions = self._reach(item, positions, forward=forward)
                    if not positions:
                        break
                return positions
            case Choice(branches):
                reached = 0
                for branch in branches:
                    reached |= self._reach(branch, positions, forward=forward)
                return reached
            case Repeat(Chars(charset), 0, -1):
                run = self.members(charset)
                return (((positions & run) + run) ^ run) | positions if forward else self._run_back(run, positions)
            case Repeat(body, low, high) | BackReference(_, body, low, high):
                return self._repeat(body, low, high, positions, forward=forward)
            case Group(_, body):
                return self._reach(body, positions, forward=forward)
            case _:
                raise TypeError(rex)

    def _run_back(self, run: int, ends: int) -> int:
        """Return the positions from which only members of `run` lead to one of `ends`. Each step doubles the distance."""
        shift = 1
        while run:
            ends |= (ends >> shift) & run
            run &= run >> shift
            shift *= 2
        return ends

    def _repeat(self, body: Rex, low: int, high: int, positions: int, *, forward: bool) -> int:
        for _ in range(low):
            further = self._reach(body, positions, forward=forward)
            if further == positions:
                break
            positions = further
        reached = frontier = positions
        count = low
        while frontier and (high == INFINITE or count < high):
            frontier = self._reach(body, frontier, forward=forward) & ~reached
            reached |= frontier
            count += 1
        return reached

    def _from(self, part: Part, begin: int) -> int:
        """Return the possible ends of a part that begins at a position."""
        key = (id(part), begin)
        part_ends = self._ends.get(key)
        if part_ends is None:
            rex = self._rexes.get(id(part))
            if rex is None:
                rex = self._rexes[id(part)] = part.language()
            part_ends = self._ends[key] = self.ends(rex, 1 << begin)
        return part_ends

    def _forget(self, part: Part) -> None:
        if part.capture:
            self._groups.pop(part.capture, None)
        for child in part.children:
            self._forget(child)

    def _dissect(self, part: Part, begin: int, end: int) -> bool:
        """Set the groups of a part that covers this span. Return False only if a back reference does not match."""
        match part.kind:
            case "=":
                fits = True
            case "b":
                fits = self._refers(part, begin, end)
            case ".":
                fits = self._split(part, begin, end)
            case "|":
                fits = any(self._from(child, begin) >> end & 1 and self._dissect(child, begin, end) for child in part.children)
            case "*":
                fits = self._iterate(part, begin, end)
            case _:
                fits = self._dissect(part.children[0], begin, end)
        if fits and part.capture:
            self._groups[part.capture] = (begin, end)
        return fits

    def _refers(self, part: Part, begin: int, end: int) -> bool:
        span = self._groups.get(part.reference)
        if span is None:
            return False
        captured = self.text[span[0] : span[1]]
        if not captured:
            return begin == end
        if begin == end:
            return part.low == 0
        count, rest = divmod(end - begin, len(captured))
        if rest or count < part.low or (part.high != INFINITE and count > part.high):
            return False
        stretch = self.text[begin:end]
        if self.pattern.fold:
            captured, stretch = _lower(captured), _lower(stretch)
        return stretch == captured * count

    def _split(self, part: Part, begin: int, end: int) -> bool:
        left, right = part.children
        middles = self._from(left, begin) & ((1 << (end + 1)) - 1)
        for middle in _ascending(middles) if left.flags & SHORTER else _descending(middles):
            fits = self._from(right, middle) >> end & 1
            if fits and self._dissect(left, begin, middle) and self._dissect(right, middle, end):
                return True
            self._forget(left)
            self._forget(right)
        return False

    def _iterate(self, part: Part, begin: int, end: int) -> bool:
        """Split a repeated part into iterations. The first iterations match as much (or as little) as they can."""
        child, least = part.children[0], max(part.low, 1)
        shortest = bool(child.flags & SHORTER)
        if begin == end and part.low == 0 and shortest:
            return True
        most = end - begin
        if part.high != INFINITE:
            most = min(most, part.high)
        most = max(most, least)
        if self._rounds(child, begin, end, least, most):
            return True
        return part.low == 0 and begin == end

    def _rounds(self, child: Part, begin: int, end: int, least: int, most: int) -> bool:
        """Try sequences of iterations. An empty iteration is tried only if the minimum count cannot be reached otherwise."""
        useful = self.starts(Repeat(child.language(), 0, INFINITE), 1 << end)
        ordered = _ascending if child.flags & SHORTER else _descending

        def further(place: int) -> Iterator[int]:
            return ordered(self._from(child, place) & useful)

        places, choices = [begin], [further(begin)]
        while choices:
            place = next(choices[-1], None)
            count = len(choices)
            if place is None:
                choices.pop()
                places.pop()
            elif place == end:
                if count >= least and self._verify(child, [*places, place]):
                    return True
            elif count < most and (place > places[-1] or (count < least and least - count >= end - place)):
                places.append(place)
                choices.append(further(place))
        return False

    def _verify(self, child: Part, places: list[int]) -> bool:
        for begin, end in pairwise(places):
            self._forget(child)
            if not self._dissect(child, begin, end):
                return False
        return True


def _lower(text: str) -> str:
    return "".join(chr(ord(character) + 32) if "A" <= character <= "Z" else character for character in text)
