"""headgate.publications(): the options of publications that PostgreSQL does not have. A base class of the session's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog.replication import publication as publications

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


class PublicationFunction:
    """The publication function of one session."""

    session: ClientSession

    def publications(self) -> list[tuple[object, ...]]:
        """Return (name, reconcile) of each publication of the database."""
        cursor = self.session.begin_statement().cursor
        return [
            (publication.name, publication.reconcile)
            for publication in publications.all_publications(cursor, self.session.context.database)
        ]
