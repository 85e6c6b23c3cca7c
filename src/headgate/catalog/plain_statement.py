"""Plain statements: those on one catalog by equality, which Python can compare with rows.

    INSERT INTO hg.t (a, b) VALUES (?, ?), (?, ?)
    SELECT a, b FROM hg.t WHERE a = ? AND b IN (0, ?)
    UPDATE hg.t SET a = ? WHERE oid IN (?, ?)
    DELETE FROM hg.t WHERE (a = ? OR b = ?)

Called by `unwritten`, which applies them to rows that are not in DuckDB yet, and by `point`, which says what of a catalog they concern.
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
    """One of `columns` is its parameter (each entry has its own; a column with several parameters has several), or 0 if `or_zero`."""

    columns: tuple[str, ...]
    or_zero: bool = False


@dataclass(frozen=True)
class Plain:
    """A plain statement. `columns`: those that are inserted, read or set."""

    kind: str
    table: str
    columns: tuple[str, ...]
    condition: tuple[Term, ...] = ()


BoundTerm = tuple[Term, list[object]]
"""A term with the values of its parameters."""


@functools.lru_cache(1024)
def analyse(sql: str) -> Plain | None:
    """Return the statement if it is plain."""
    if (found := _INSERT.fullmatch(sql)) is not None:
        return Plain("INSERT", found[1], tuple(found[2].split(", ")))
    if (found := _SELECT.fullmatch(sql)) is not None:
        plain = Plain("SELECT", found[2], tuple(found[1].split(", ")), _condition(found[3]))
    elif (found := _UPDATE.fullmatch(sql)) is not None:
        plain = Plain("UPDATE", found[1], tuple(_names(found[2])), _condition(found[3]))
    elif (found := _DELETE.fullmatch(sql)) is not None:
        plain = Plain("DELETE", found[1], (), _condition(found[2]))
    else:
        return None
    return plain if plain.condition else None


def _names(assignments: str) -> list[str]:
    return re.findall(r"(\w+) = \?", assignments)


def _condition(text: str) -> tuple[Term, ...]:
    """Return the terms of a WHERE clause, none if it is not plain."""
    terms = []
    for part in text.split(" AND "):
        found = _TERM.fullmatch(part)
        if found is None:
            return ()
        column, first, more, either = found.groups()
        if either:
            terms.append(Term(tuple(_names(either))))
        else:
            marks = 1 if first is None else (first == "?") + more.count("?")
            if not marks:
                return ()
            terms.append(Term((column,) * marks, or_zero=first == "0"))
    return tuple(terms)


def bound(condition: Sequence[Term], parameters: Sequence[object]) -> list[BoundTerm]:
    """Return the terms with the values of their parameters."""
    values = iter(parameters)
    return [(term, [stored(next(values)) for _ in term.columns]) for term in condition]


def stored(value: object) -> object:
    """Return a value as DuckDB would return it."""
    if isinstance(value, Enum):
        return value.value
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
