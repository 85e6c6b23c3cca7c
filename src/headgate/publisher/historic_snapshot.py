"""The state of the catalog by which each write of the log is judged: PostgreSQL's historic snapshot.

A change is judged by the catalog at the time of the change: by what other transactions had committed by then (`seen` of the write), and by
the earlier changes of its own transaction. So an ALTER PUBLICATION that another session commits in the middle of a transaction splits the
transaction's changes. No change is judged by a catalog older than a slot that was created before its commit (`TransactionLog.create_slot`),
or than the stream's own slot: PostgreSQL waits for the running and the prepared transactions before it creates a slot.

Each stream has its own `Judgement`, which caches the last states, because reading one takes some milliseconds. Called by `stream` and
`change_range`.
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
"""A sequence number after all changes of a transaction."""
_KEPT = 8
"""The number of cached states."""

_Place = tuple[int, int, int]
"""The LSN of the last change by others; LSN and seq of the transaction's own last change, -1 if it has made none."""


class Judgement:
    """The catalog states of one database, for one stream."""

    def __init__(self, catalog: Catalog, database: int, floor: Lsn) -> None:
        self._cursor = catalog.cursor()
        self._database = database
        self._floor = floor
        self._states: dict[_Place, PublishedState] = {}

    def close(self) -> None:
        self._cursor.close()

    def forget(self) -> None:
        """Drop the cached states."""
        self._states.clear()

    def states(self, entries: Sequence[LogEntry]) -> list[tuple[LogEntry, TableWrite, PublishedState]]:
        """Return the writes of the entries in order, each with its state."""
        pairs = [(entry, write) for entry in entries for write in entry.writes]
        if not pairs:
            return []
        seen = [int(max(write.seen, self._floor)) for _, write in pairs]
        own = {entry.commit_lsn: self._own(entry) for entry in entries}
        low, high = min(seen), max(*seen, *own.values())
        seqs: dict[int, list[int]] = {}  # of the catalog changes of each LSN
        for lsn, seq in sorted(history.changes(self._cursor, self._database, low, high)):
            seqs.setdefault(lsn, []).append(seq)
        lsns = list(seqs)
        base = history.last_change(self._cursor, self._database, low)
        judged = []
        for (entry, write), seen_lsn in zip(pairs, seen, strict=True):
            own_lsn = own[entry.commit_lsn]
            own_seq = _last(seqs.get(own_lsn, ()), write.seq, -1)
            place = (_last(lsns, seen_lsn, base), own_lsn if own_seq >= 0 else -1, own_seq)
            judged.append((entry, write, self._state(place)))
        return judged

    def following(self, entries: Sequence[LogEntry]) -> dict[Lsn, tuple[PublishedState, PublishedState]]:
        """Return the states before and after the entries that changed publications with reconcile = true, by commit LSN."""
        if not entries:
            return {}
        lsns = history.following(self._cursor, self._database)
        return {
            entry.commit_lsn: (
                history.at(self._cursor, self._database, int(entry.commit_lsn) - 1, _LAST),
                history.at(self._cursor, self._database, int(entry.commit_lsn), _LAST),
            )
            for entry in entries
            if int(entry.commit_lsn) in lsns and entry.kind is not EntryKind.PREPARE
        }

    def _own(self, entry: LogEntry) -> int:
        """Return the LSN under which the history has the changes of the entry's own transaction."""
        return PROVISIONAL + entry.xid if entry.kind is EntryKind.PREPARE else int(entry.commit_lsn)

    def _state(self, place: _Place) -> PublishedState:
        state = self._states.pop(place, None)
        if state is None:
            state = history.seen(self._cursor, self._database, place[0], max(place[1], 0), place[2])
        self._states[place] = state
        while len(self._states) > _KEPT:
            del self._states[next(iter(self._states))]
        return state


def _last(numbers: Sequence[int], limit: int, default: int) -> int:
    """Return the last of some ascending numbers that is at most `limit`, or the default if there is none."""
    index = bisect.bisect_right(numbers, limit)
    return numbers[index - 1] if index else default
