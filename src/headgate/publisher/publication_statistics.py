"""How many changes each publication has judged and let pass, since the node's start.

A stream judges a change once for all publications that it names; it counts for each of them that publishes the table. `Judged` is one
stream's, until its batch is given out; `Tally` is the node's. Changes that a subscriber asks for again are judged, and count, again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Judged:
    """(judged, kept) by publication."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, int]] = {}

    def count(self, publications: Sequence[str], judged: int, kept: int) -> None:
        """Changes of a table that these publish have been judged."""
        for name in publications:
            before = self.counts.get(name, (0, 0))
            self.counts[name] = before[0] + judged, before[1] + kept

    def clear(self) -> None:
        """Begins anew."""
        self.counts = {}


class Tally:
    """(judged, kept) by database and publication. Any thread may call anything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[int, str], tuple[int, int]] = {}

    def add(self, database: int, judged: Judged) -> None:
        """Takes over what a stream has counted."""
        counts = judged.counts
        judged.clear()
        with self._lock:
            for name, (more, kept) in counts.items():
                before = self._counts.get((database, name), (0, 0))
                self._counts[database, name] = before[0] + more, before[1] + kept

    def of(self, database: int, publication: str) -> tuple[int, int]:
        """What has been counted."""
        return self._counts.get((database, publication), (0, 0))
