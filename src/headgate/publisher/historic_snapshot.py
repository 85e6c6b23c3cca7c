"""By which state of the catalog each write of the log is judged: PostgreSQL's historic snapshot.

A change is judged by the catalog as it stood when the change was made: by what other transactions had committed by then (`seen` of the
write), and by what its own transaction had changed before it. So an ALTER PUBLICATION that another session commits in the middle of
a transaction splits the transaction's changes. Nothing is judged by a catalog older than the slot: PostgreSQL waits for the running
transactions before it makes a slot.

`Judgement` belongs to one stream and keeps the last states, because reading one costs some milliseconds. Called by `stream`.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.catalog import history
from headgate.catalog.history import PublishedState
from headgate.catalog.unwritten import PROVISIONAL
from headgate.lsn import Lsn
from headgate.storage.transaction.log import EntryKind, LogEntry, TableWrite

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog

_LAST = 2**31 - 1
"""Behind every change of a transaction."""
_KEPT = 8
"""States that are kept."""

_Place = tuple[int, int, int]
"""LSN of the last change by others; LSN and seq of the transaction's own last change, -1 where it has made none."""


class Judgement:
    """The states of one database, for one stream."""

    def __init__(self, catalog: Catalog, database: int, floor: Lsn) -> None:
        self._cursor = catalog.cursor()
        self._database = database
        self._floor = floor
        self._states: dict[_Place, PublishedState] = {}

    def close(self) -> None:
        """Gives the cursor back."""
        self._cursor.close()

    def forget(self) -> None:
        """Reads states again from now on."""
        self._states.clear()

    def states(self, entry: Sequence[LogEntry]) -> list[tuple[LogEntry, TableWrite, PublishedState]]:
        """The writes of the entries in order, each with its state."""
        pairs = [(each, write) for each in entry for write in each.writes]
        if not pairs:
            return []
        seen = [int(max(write.seen, self._floor)) for _, write in pairs]
        own = {each.commit_lsn: self._own(each) for each in entry}
        low, high = min(seen), max(*seen, *own.values())
        changes = history.changes(self._cursor, self._database, low, high)
        lsns = sorted({lsn for lsn, _ in changes})
        base = history.last_change(self._cursor, self._database, low)
        found = []
        for (each, write), at in zip(pairs, seen, strict=True):
            before = bisect.bisect_right(lsns, at)
            mine = own[each.commit_lsn]
            last = max((seq for lsn, seq in changes if lsn == mine and seq <= write.seq), default=-1)
            place = (lsns[before - 1] if before else base, mine if last >= 0 else -1, last)
            found.append((each, write, self._state(place)))
        return found

    def following(self, entries: Sequence[LogEntry]) -> dict[Lsn, tuple[PublishedState, PublishedState]]:
        """By the LSN of their commit the states before and behind those entries that changed publications which are followed."""
        if not entries:
            return {}
        found = history.following(self._cursor, self._database)
        return {
            each.commit_lsn: (
                history.at(self._cursor, self._database, int(each.commit_lsn) - 1, _LAST),
                history.at(self._cursor, self._database, int(each.commit_lsn), _LAST),
            )
            for each in entries
            if int(each.commit_lsn) in found and each.kind is not EntryKind.PREPARE
        }

    def _own(self, entry: LogEntry) -> int:
        """Where the history has what the entry's transaction changed itself."""
        return PROVISIONAL + entry.xid if entry.kind is EntryKind.PREPARE else int(entry.commit_lsn)

    def _state(self, place: _Place) -> PublishedState:
        state = self._states.pop(place, None)
        if state is None:
            state = history.seen(self._cursor, self._database, place[0], max(place[1], 0), place[2])
        self._states[place] = state
        while len(self._states) > _KEPT:
            del self._states[next(iter(self._states))]
        return state
