"""Counts of the changes that each publication has judged and published since the node's start.

A stream judges a change once for all publications that it names. The change counts for each of them that publishes the table. A stream has
a `JudgedCounts` until its batch is returned, the node has a `Tally`. Changes that a subscriber requests again are judged and counted again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence


class JudgedCounts:
    """The counts (judged, kept) by publication."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, int]] = {}

    def count(self, publications: Sequence[str], judged: int, kept: int) -> None:
        """Count judged changes of a table for the publications that publish it."""
        for name in publications:
            old_counts = self.counts.get(name, (0, 0))
            self.counts[name] = old_counts[0] + judged, old_counts[1] + kept

    def clear(self) -> None:
        self.counts = {}


class Tally:
    """The counts (judged, kept) by database and publication. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[int, str], tuple[int, int]] = {}

    def add(self, database: int, judged: JudgedCounts) -> None:
        """Add the counts of a stream and reset them there."""
        counts = judged.counts
        judged.clear()
        with self._lock:
            for name, (judged_rows, kept_rows) in counts.items():
                old_counts = self._counts.get((database, name), (0, 0))
                self._counts[database, name] = old_counts[0] + judged_rows, old_counts[1] + kept_rows

    def of(self, database: int, publication: str) -> tuple[int, int]:
        """Return the counts (judged, kept)."""
        return self._counts.get((database, publication), (0, 0))
