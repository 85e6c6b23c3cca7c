"""headgate.publications(): what a node's publications have beside PostgreSQL's options. A base of the session's functions (`functions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.catalog.replication import publication as publications

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession


class PublicationFunction:
    """That of one session."""

    session: ClientSession

    def publications(self) -> list[tuple[object, ...]]:
        """(name, reconcile) of each publication of the database."""
        cursor = self.session.begin_statement().cursor
        return [(each.name, each.reconcile) for each in publications.all_publications(cursor, self.session.context.database)]
