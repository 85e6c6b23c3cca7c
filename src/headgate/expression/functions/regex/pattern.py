"""A parsed regular expression: the language it matches (`Rex`) and the tree of its parts (`Part`).

Built by `parser`, matched by `matcher`, translated to Java by `java`. A `Rex` is a plain regular expression without preferences: it only
defines which substrings match. A `Part` is a node of the tree that regcomp.c calls subre. It has the Rex of the text it covers. Its flags
say whether it prefers the longest or the shortest match, and whether there are captures or back references below it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from headgate.expression.functions.regex.charset import CharSet

INFINITE = -1
LONGER, SHORTER, MIXED, CAPTURES, REFERS = 1, 2, 4, 8, 16


class PositionCondition(enum.StrEnum):
    """A condition on a position."""

    START = "start"
    END = "end"
    LINE_START = "line start"
    LINE_END = "line end"
    WORD_START = "word start"
    WORD_END = "word end"
    WORD_EDGE = "word edge"
    NO_WORD_EDGE = "no word edge"


@dataclass(frozen=True)
class Rex:
    """Base class of the regular expressions."""


@dataclass(frozen=True)
class Chars(Rex):
    """One character of a set."""

    set: CharSet


@dataclass(frozen=True)
class At(Rex):
    """The empty string, at a position that meets the condition."""

    place: PositionCondition


@dataclass(frozen=True)
class Look(Rex):
    """The empty string, where `body` matches (if `negated`, does not match) ahead of or `behind` the position."""

    body: Rex
    behind: bool
    negated: bool


@dataclass(frozen=True)
class Concat(Rex):
    """A sequence of items, or the empty string if there are none."""

    items: tuple[Rex, ...] = ()


@dataclass(frozen=True)
class Choice(Rex):
    """One of the branches."""

    branches: tuple[Rex, ...]


@dataclass(frozen=True)
class Repeat(Rex):
    """`body` repeated `low` to `high` times (`INFINITE`: without limit)."""

    body: Rex
    low: int
    high: int


@dataclass(frozen=True)
class Group(Rex):
    """A capturing group. As a Rex, it matches what its body matches."""

    number: int
    body: Rex


@dataclass(frozen=True)
class BackReference(Rex):
    """A back reference: anything that the group's body can match (`body`, without its conditions), `low` to `high` times."""

    number: int
    body: Rex
    low: int
    high: int


@dataclass
class Part:
    """A node of the tree.

    `kind` is '=' for a plain Rex, '.' for a sequence of two parts, '|' for branches, '*' for a repeated part, 'b' for a back reference, and
    '(' for a capture around a part that already captures. `capture` is the number of the group that the part itself is, or 0.
    """

    kind: str
    flags: int = 0
    rex: Rex = field(default_factory=Concat)
    children: list[Part] = field(default_factory=list)
    capture: int = 0
    reference: int = 0
    low: int = 1
    high: int = 1

    def language(self) -> Rex:
        """Return the Rex of the text that the part covers."""
        if self.kind in "=b":
            rex = self.rex
        elif self.kind == ".":
            rex = Concat(tuple(child.language() for child in self.children))
        elif self.kind == "|":
            rex = Choice(tuple(child.language() for child in self.children))
        elif self.kind == "*":
            rex = Repeat(self.children[0].language(), self.low, self.high)
        else:
            rex = self.children[0].language()
        return Group(self.capture, rex) if self.capture else rex


@dataclass(frozen=True)
class Pattern:
    """A whole pattern: its tree, its language, the number of groups, whether it has back references, whether case is ignored."""

    tree: Part
    rex: Rex
    groups: int
    refers: bool
    fold: bool


def without_conditions(rex: Rex) -> Rex:
    """Return the Rex without its conditions on positions, as back references use it."""
    match rex:
        case At() | Look():
            return Concat()
        case Concat(items):
            return Concat(tuple(without_conditions(item) for item in items))
        case Choice(branches):
            return Choice(tuple(without_conditions(branch) for branch in branches))
        case Repeat(body, low, high):
            return Repeat(without_conditions(body), low, high)
        case Group(_, body):
            return without_conditions(body)
        case BackReference(number, body, low, high):
            return BackReference(number, without_conditions(body), low, high)
        case _:
            return rex


def without_groups(rex: Rex) -> Rex:
    match rex:
        case Concat(items):
            return Concat(tuple(without_groups(item) for item in items))
        case Choice(branches):
            return Choice(tuple(without_groups(branch) for branch in branches))
        case Repeat(body, low, high):
            return Repeat(without_groups(body), low, high)
        case Group(_, body):
            return without_groups(body)
        case _:
            return rex
