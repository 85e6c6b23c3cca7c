"""A parsed regular expression: the language it matches (`Rex`) and the tree that says where its parts lie (`Part`).

Made by `parser`, run by `matcher`, written for Java by `java`. A `Rex` is a plain regular expression without preferences: it says
which substrings match at all. A `Part` is a node of what regcomp.c calls the subre tree: each has the Rex of what it covers, and
its flags say whether it prefers the longest or the shortest match, and whether captures or back references lie below it.
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
    """Base of the regular expressions."""


@dataclass(frozen=True)
class Chars(Rex):
    """One character of a set."""

    set: CharSet


@dataclass(frozen=True)
class At(Rex):
    """Nothing, at such a position."""

    place: PositionCondition


@dataclass(frozen=True)
class Look(Rex):
    """Nothing, where `body` does (or, `negated`, does not) match ahead or `behind`."""

    body: Rex
    behind: bool
    negated: bool


@dataclass(frozen=True)
class Concat(Rex):
    """One after the other; nothing at all if empty."""

    items: tuple[Rex, ...] = ()


@dataclass(frozen=True)
class Choice(Rex):
    """Any of the branches."""

    branches: tuple[Rex, ...]


@dataclass(frozen=True)
class Repeat(Rex):
    """`low` to `high` times (`INFINITE`: no limit)."""

    body: Rex
    low: int
    high: int


@dataclass(frozen=True)
class Group(Rex):
    """A capturing group: its body, for a Rex."""

    number: int
    body: Rex


@dataclass(frozen=True)
class BackReference(Rex):
    """A back reference: whatever the group's body can match (`body`, its conditions left out) `low` to `high` times."""

    number: int
    body: Rex
    low: int
    high: int


@dataclass
class Part:
    """A node of the tree.

    `kind`: '=' a Rex as such, '.' one part after the other, '|' branches, '*' a repeated part, 'b' a back reference, '(' a capture
    around a part that captures already. `capture` is the number of the group that the part itself is, 0 for none.
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
        """The Rex of what the part covers."""
        if self.kind in "=b":
            made = self.rex
        elif self.kind == ".":
            made = Concat(tuple(each.language() for each in self.children))
        elif self.kind == "|":
            made = Choice(tuple(each.language() for each in self.children))
        elif self.kind == "*":
            made = Repeat(self.children[0].language(), self.low, self.high)
        else:
            made = self.children[0].language()
        return Group(self.capture, made) if self.capture else made


@dataclass(frozen=True)
class Pattern:
    """A whole pattern: its tree, its language, the number of groups, whether it has back references, whether case is ignored."""

    tree: Part
    rex: Rex
    groups: int
    refers: bool
    fold: bool


def without_conditions(rex: Rex) -> Rex:
    """The Rex without its conditions on positions, as back references take it."""
    match rex:
        case At() | Look():
            return Concat()
        case Concat(items):
            return Concat(tuple(without_conditions(each) for each in items))
        case Choice(branches):
            return Choice(tuple(without_conditions(each) for each in branches))
        case Repeat(body, low, high):
            return Repeat(without_conditions(body), low, high)
        case Group(_, body):
            return without_conditions(body)
        case BackReference(number, body, low, high):
            return BackReference(number, without_conditions(body), low, high)
        case _:
            return rex


def without_groups(rex: Rex) -> Rex:
    """The Rex without its capturing groups."""
    match rex:
        case Concat(items):
            return Concat(tuple(without_groups(each) for each in items))
        case Choice(branches):
            return Choice(tuple(without_groups(each) for each in branches))
        case Repeat(body, low, high):
            return Repeat(without_groups(body), low, high)
        case Group(_, body):
            return without_groups(body)
        case _:
            return rex
