"""headgate.change_ranges(publication, table, from_lsn, to_lsn, max_rows, max_ranges): cut the log into ranges for headgate.changes.

The ranges end at transaction boundaries and are contiguous. They are computed from
the log alone, so that many readers can share the work of a range of LSNs before any data is read. With `max_ranges`, only the first ranges
are returned, and the log after them is not read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.commands.query import change_scan
from headgate.errors import PostgresError
from headgate.lsn import Lsn

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


def change_ranges(
    session: ClientSession,
    publication: str | None,
    relation: str | None,
    from_lsn: Lsn | None,
    to_lsn: Lsn | None,
    max_rows: int | None,
    max_ranges: int | None = None,
) -> Iterator[tuple[Lsn, Lsn, int, bool]]:
    """Yield (from_lsn, to_lsn, changes, altered) of each range. Raise 22004 for NULL, 22023 if a maximum is not positive."""
    if publication is None or relation is None or from_lsn is None or to_lsn is None or max_rows is None:
        raise PostgresError("22004", "arguments of headgate.change_ranges except max_ranges must not be null")
    for name, value in (("max_rows", max_rows), ("max_ranges", max_ranges)):
        if value is not None and value <= 0:
            raise PostgresError("22023", f"{name} must be greater than zero")
    scan, _ = change_scan.opened(session, publication, relation, (Lsn(from_lsn), Lsn(to_lsn)))
    with session.node.slots.snapshots.holding(Lsn(from_lsn)):
        for cut in itertools.islice(scan.cuts(max_rows), max_ranges):
            yield cut.start, cut.end, cut.changes, cut.altered
