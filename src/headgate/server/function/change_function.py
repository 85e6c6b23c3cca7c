"""headgate.change_ranges(publication, table, from_lsn, to_lsn, max_rows): split a part of the log into ranges for headgate.changes.

A base class of the session's functions (`functions`). The ranges end at transaction boundaries and are contiguous. They are computed from
the log alone, so that many readers can share the work of a range of LSNs before any data is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.commands.query import change_scan
from headgate.errors import PostgresError
from headgate.lsn import Lsn

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


class ChangeFunction:
    """The change_ranges function of one session."""

    session: ClientSession

    def change_ranges(
        self, publication: str | None, relation: str | None, from_lsn: Lsn | None, to_lsn: Lsn | None, max_rows: int | None
    ) -> Iterator[tuple[Lsn, Lsn, int, bool]]:
        """Yield (from_lsn, to_lsn, changes, altered) of each range. Raise 22004 for NULL, 22023 if `max_rows` is not positive."""
        if publication is None or relation is None or from_lsn is None or to_lsn is None or max_rows is None:
            raise PostgresError("22004", "no argument of headgate.change_ranges must be null")
        if max_rows <= 0:
            raise PostgresError("22023", "max_rows must be greater than zero")
        scan, _ = change_scan.opened(self.session, publication, relation, (Lsn(from_lsn), Lsn(to_lsn)))
        with self.session.node.slots.snapshots.holding(Lsn(from_lsn)):
            for cut in scan.cuts(max_rows):
                yield cut.start, cut.end, cut.changes, cut.altered
