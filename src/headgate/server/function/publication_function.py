"""headgate.publications(): the options of publications that PostgreSQL does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog.replication import publication

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


def publications(session: ClientSession) -> list[tuple[object, ...]]:
    """Return (name, reconcile) of each publication of the database."""
    cursor = session.begin_statement().cursor
    return [(row.name, row.reconcile) for row in publication.all_publications(cursor, session.context.database)]
