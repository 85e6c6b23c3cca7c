"""What a node has counted of its sessions' statements: pg_stat_statements, as PostgreSQL 15's extension shows it (manual, F.32).

`StatementStatistics.ran` is called for each statement that has ended without an error, by `simple_query` and `extended_query`; `rows` by
`system_view`. Statements that differ in constants alone are one: `grammar.normalize` and `grammar.fingerprint` are PostgreSQL's own
jumbling, so a text is stored with `$1` where a value stood, and what is left of passwords `secret.hidden` takes away.

What must hold: memory does not depend on how many statements there are. There are `most` entries; the twentieth part that was used least
makes room for others, as in the extension. Texts longer than `parser.SMALL` are not counted: libpg_query takes them
apart by recursion, for which a session's thread has no room. All of it is gone with the node.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.sql import grammar, parser, secret

_FREED = 0.05
_DECAY = 0.99
"""How much less earlier uses count whenever room is made, as USAGE_DECREASE_FACTOR."""
_UNTRACKED = frozenset({"ExecuteStmt", "PrepareStmt", "DeallocateStmt"})
"""What these run counts as what it is, as in the extension."""


@dataclass(frozen=True)
class StatementKey:
    """Whose statements are counted together: the oids of the role and of the database, and PostgreSQL's fingerprint."""

    role: int
    database: int
    query_id: int


@dataclass
class StatementCounts:
    """The executions of one statement; times in milliseconds. `deviation` is the sum of squares of Welford's method."""

    text: str
    calls: int = 0
    rows: int = 0
    total: float = 0.0
    least: float = math.inf
    greatest: float = 0.0
    mean: float = 0.0
    deviation: float = 0.0
    usage: float = 1.0

    def add(self, milliseconds: float, rows: int, calls: int) -> None:
        """One more execution; `calls` is 0 where a portal goes on."""
        self.rows += rows
        self.total += milliseconds
        if not calls:
            return
        self.calls += 1
        self.usage += 1
        self.least, self.greatest = min(self.least, milliseconds), max(self.greatest, milliseconds)
        before = self.mean
        self.mean += (milliseconds - before) / self.calls
        self.deviation += (milliseconds - before) * (milliseconds - self.mean)


class StatementStatistics:
    """The counts of all sessions. Any thread may call anything."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._counts: dict[StatementKey, StatementCounts] = {}

    def ran(self, role: int, database: int, source: str, kind: str, milliseconds: float, tag: str, *, calls: int = 1) -> None:
        """A statement has run: its text without those around it, the name of its parse tree's message, the tag that was sent."""
        if not self._most or len(source.encode()) > parser.SMALL or kind in _UNTRACKED:
            return
        query_id, text = _normal(source)
        key = StatementKey(role, database, query_id)
        with self._lock:
            counts = self._counts.get(key)
            if counts is None:
                if len(self._counts) >= self._most:
                    self._make_room()
                counts = self._counts[key] = StatementCounts(text)
            counts.add(milliseconds, _rows_of(tag), calls)

    def rows(self) -> Iterator[tuple[StatementKey, StatementCounts]]:
        """All entries as they are now."""
        with self._lock:
            found = list(self._counts.items())
        yield from found

    def reset(self, role: int, database: int, query_id: int) -> None:
        """Forgets the entries of a role, of a database, of a statement; 0 is any of them."""
        with self._lock:
            wanted = (role, database, query_id)
            for key in list(self._counts):
                if all(each in (0, own) for each, own in zip(wanted, (key.role, key.database, key.query_id), strict=True)):
                    del self._counts[key]

    def _make_room(self) -> None:
        for each in self._counts.values():
            each.usage *= _DECAY
        least = sorted(self._counts, key=lambda key: self._counts[key].usage)
        for key in least[: max(10, int(len(least) * _FREED))]:
            del self._counts[key]


@functools.lru_cache(maxsize=256)
def _normal(source: str) -> tuple[int, str]:
    """The signed fingerprint of a statement, and its text without constants and secrets."""
    unsigned = grammar.fingerprint(source)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned, secret.hidden(grammar.normalize(source))


def _rows_of(tag: str) -> int:
    """What the tag counts: "INSERT 0 3" is 3, "CREATE TABLE" none."""
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdecimal() else 0
