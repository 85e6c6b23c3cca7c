"""Plain statements: statements on one catalog with equality conditions, which Python can evaluate on rows.

    INSERT INTO hg.t (a, b) VALUES (?, ?), (?, ?)
    SELECT a, b FROM hg.t WHERE a = ? AND b IN (0, ?)
    UPDATE hg.t SET a = ? WHERE oid IN (?, ?)
    DELETE FROM hg.t WHERE (a = ? OR b = ?)

Called by `unwritten`, which applies them to rows that are not in DuckDB yet, and by `point`, which determines the parts of a catalog that
they affect.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

_INSERT = re.compile(r"INSERT INTO hg\.(\w+) \(([\w, ]+)\) VALUES (\(\?(?:, \?)*\)(?:, \(\?(?:, \?)*\))*)")
_SELECT = re.compile(r"SELECT ([a-z_]\w*(?:, [a-z_]\w*)*) FROM hg\.(\w+) WHERE (.+)")
_UPDATE = re.compile(r"UPDATE hg\.(\w+) SET (\w+ = \?(?:, \w+ = \?)*) WHERE (.+)")
_DELETE = re.compile(r"DELETE FROM hg\.(\w+) WHERE (.+)")
_TERM = re.compile(r"(\w+) (?:= \?|IN \((0|\?)((?:, \?)*)\))|\((\w+ = \?(?: OR \w+ = \?)*)\)")


@dataclass(frozen=True)
class Term:
    """A condition: one of `columns` equals its parameter (a column with several parameters occurs several times), or 0 if `or_zero`."""

    columns: tuple[str, ...]
    or_zero: bool = False


@dataclass(frozen=True)
class Plain:
    """A plain statement. `columns` are those that are inserted, read or set."""

    kind: str
    table: str
    columns: tuple[str, ...]
    condition: tuple[Term, ...] = ()


BoundTerm = tuple[Term, list[object]]
"""A term with the values of its parameters."""


@functools.lru_cache(1024)
def analyse(sql: str) -> Plain | None:
    if (match := _INSERT.fullmatch(sql)) is not None:
        return Plain("INSERT", match[1], tuple(match[2].split(", ")))
    if (match := _SELECT.fullmatch(sql)) is not None:
        plain = Plain("SELECT", match[2], tuple(match[1].split(", ")), _condition(match[3]))
    elif (match := _UPDATE.fullmatch(sql)) is not None:
        plain = Plain("UPDATE", match[1], tuple(_names(match[2])), _condition(match[3]))
    elif (match := _DELETE.fullmatch(sql)) is not None:
        plain = Plain("DELETE", match[1], (), _condition(match[2]))
    else:
        return None
    return plain if plain.condition else None


def _names(assignments: str) -> list[str]:
    return re.findall(r"(\w+) = \?", assignments)


def _condition(text: str) -> tuple[Term, ...]:
    """Return the terms of a WHERE clause, or none if it is not plain."""
    terms = []
    for part in text.split(" AND "):
        match = _TERM.fullmatch(part)
        if match is None:
            return ()
        column, first, more, either = match.groups()
        if either:
            terms.append(Term(tuple(_names(either))))
        else:
            marks = 1 if first is None else (first == "?") + more.count("?")
            if not marks:
                return ()
            terms.append(Term((column,) * marks, or_zero=first == "0"))
    return tuple(terms)


def bound(condition: Sequence[Term], parameters: Sequence[object]) -> list[BoundTerm]:
    values = iter(parameters)
    return [(term, [stored(next(values)) for _ in term.columns]) for term in condition]


def stored(value: object) -> object:
    """Return a value as DuckDB would return it."""
    if isinstance(value, Enum):
        return value.value
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
