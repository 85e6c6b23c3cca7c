"""Random expressions by rules. An expression is a column, a literal, or a rule whose parts are expressions.

Used by `agreement`. A rule is a text with ``{kind}`` for a part and ``{choice}`` for one of several fixed texts. ``{{`` is a brace.
Literals are marked, so that PostgreSQL can be sent each literal as a subquery. An error is then raised when the value is needed during
execution, and not when the planner folds constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

OPEN, CLOSE = "\ue000", "\ue001"
_PART = re.compile(r"\{\{|\}\}|\{(\w+)\}")
_LITERAL = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")


@dataclass(frozen=True)
class Kind:
    """A kind of value: its columns as (name, type), and the type of its literals, from whose values they are drawn."""

    name: str
    columns: tuple[tuple[str, str], ...]
    literal: str


@dataclass(frozen=True)
class Family:
    """A family of types: its kinds, values by type name, rules by kind (also of other families), and fixed choices."""

    kinds: tuple[Kind, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Grammar:
    """All families together. The caller passes the source of random numbers."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.kinds: dict[str, Kind] = {}
        self.values: dict[str, tuple[str, ...]] = {}
        self.rules: dict[str, list[str]] = {}
        self.choices: dict[str, tuple[str, ...]] = {}
        for family in families:
            self.kinds.update({kind.name: kind for kind in family.kinds})
            self.choices.update(family.choices)
            for name, values in family.values.items():
                self.values[name] = (*self.values.get(name, ()), *values)
            for name, rules in family.rules.items():
                self.rules.setdefault(name, []).extend(rules)
        self.columns = tuple(column for kind in self.kinds.values() for column in kind.columns)

    def expression(self, random: Random, depth: int, kind: str | None = None) -> str:
        """Return a random expression with marked literals, nested at most `depth` rules deep.

        Without `kind`, kinds with more rules are more frequent.
        """
        if kind is None:
            weights = [len(rules) for rules in self.rules.values()]
            kind = random.choices(list(self.rules), weights)[0]
        if depth == 0 or kind not in self.rules:
            return self._leaf(random, kind)
        rule = random.choice(self.rules[kind])
        return _PART.sub(lambda match: self._part(random, match, depth), rule)

    def _part(self, random: Random, match: re.Match[str], depth: int) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        if name in self.choices:
            return random.choice(self.choices[name])
        return self.expression(random, random.randint(0, depth - 1), name)

    def _leaf(self, random: Random, name: str) -> str:
        kind = self.kinds[name]
        if random.random() < 0.75:
            return random.choice(kind.columns)[0]
        value = random.choice(self.values[kind.literal]).replace("'", "''")
        return f"{OPEN}'{value}'::{kind.literal}{CLOSE}"

    def row(self, random: Random) -> tuple[str | None, ...]:
        """Return a row of the table. Each value may be NULL."""
        return tuple(None if random.random() < 0.2 else random.choice(self.values[kind]) for _, kind in self.columns)


def plain(expression: str) -> str:
    """Return the expression without the marks of literals."""
    return _LITERAL.sub(r"\1", expression)


def hidden(expression: str) -> str:
    """Return the expression for PostgreSQL, with literals as subqueries, which its planner does not fold.

    `coalesce` makes them scalars for ANY and IN.
    """
    return _LITERAL.sub(r"coalesce((SELECT \1))", expression)
