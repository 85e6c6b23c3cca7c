"""Statistics of the sessions' statements: pg_stat_statements, as PostgreSQL 15's extension shows it (manual, F.32).

`simple_query` and `extended_query` call `StatementStatistics.ran` for each statement that ends without an error; `system_view` calls
`rows`. Statements that differ only in constants share an entry: `grammar.normalize` and `grammar.fingerprint` are PostgreSQL's own
jumbling. So a text is stored with `$1` in place of a value, and `secret.hidden` removes what is left of passwords.

Invariant: the memory used does not depend on the number of statements. There are at most `most` entries. The least used 5 % are evicted to
make room, as in the extension. Texts longer than `parser.SMALL` are not counted: libpg_query parses them recursively, for which the stack
of a session's thread is too small. The statistics are lost when the node stops.
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
"""The factor by which the weight of earlier uses decreases at each eviction, as USAGE_DECREASE_FACTOR."""
_UNTRACKED = frozenset({"ExecuteStmt", "PrepareStmt", "DeallocateStmt"})
"""The statement that these run is counted, not they themselves, as in the extension."""


@dataclass(frozen=True)
class StatementKey:
    """Identifies statements that are counted together: the OIDs of role and database, and PostgreSQL's fingerprint."""

    role: int
    database: int
    query_id: int


@dataclass
class StatementCounts:
    """Counts of the executions of one statement. Times are in ms. `deviation` is the sum of squares of Welford's method."""

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
        """Add one execution. `calls` is 0 if it continues a portal."""
        self.rows += rows
        self.total += milliseconds
        if not calls:
            return
        self.calls += 1
        self.usage += 1
        self.least, self.greatest = min(self.least, milliseconds), max(self.greatest, milliseconds)
        old_mean = self.mean
        self.mean += (milliseconds - old_mean) / self.calls
        self.deviation += (milliseconds - old_mean) * (milliseconds - self.mean)


class StatementStatistics:
    """The counts of all sessions. All methods are thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._counts: dict[StatementKey, StatementCounts] = {}

    def ran(self, role: int, database: int, source: str, kind: str, milliseconds: float, tag: str, *, calls: int = 1) -> None:
        """Count a statement that has run. `source` is only its own text, `kind` the name of its parse node, `tag` its command tag."""
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
        """Yield all entries as they are now."""
        with self._lock:
            entries = list(self._counts.items())
        yield from entries

    def reset(self, role: int, database: int, query_id: int) -> None:
        """Remove the entries of a role, a database and a statement. 0 stands for any of them."""
        with self._lock:
            criteria = (role, database, query_id)
            for key in list(self._counts):
                if all(criterion in (0, value) for criterion, value in zip(criteria, (key.role, key.database, key.query_id), strict=True)):
                    del self._counts[key]

    def _make_room(self) -> None:
        for counts in self._counts.values():
            counts.usage *= _DECAY
        least = sorted(self._counts, key=lambda key: self._counts[key].usage)
        for key in least[: max(10, int(len(least) * _FREED))]:
            del self._counts[key]


@functools.lru_cache(maxsize=256)
def _normal(source: str) -> tuple[int, str]:
    """Return a statement's signed fingerprint, and its text without constants and secrets."""
    unsigned = grammar.fingerprint(source)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned, secret.hidden(grammar.normalize(source))


def _rows_of(tag: str) -> int:
    """Return the number of rows in a command tag: 3 for "INSERT 0 3", 0 for "CREATE TABLE"."""
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdecimal() else 0
