"""headgate.snapshot(): the Delta versions of all tables at one LSN, for programs that read their files.

A base class of the session's functions (`functions`). It shows the tables of the session's database that its user may read, as the
statement sees them: committed data, without writes of the session's own transaction. Their paths are shown only to members of
pg_read_all_settings, as all paths of the node.

Invariants: the versions are those of one LSN. While the transaction is open, their files are not removed (`cleaning` gets the oldest LSN
that a transaction can read from the engine).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.catalog.security import acl
from headgate.catalog.security.role import READ_ALL_SETTINGS
from headgate.commands.query.catalog import privilege_inquiry
from headgate.storage import inventory

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession


class SnapshotFunction:
    """The snapshot function of one session."""

    node: Node
    session: ClientSession

    def snapshot(self) -> Iterator[tuple[object, ...]]:
        """Yield (schema, name, oid, path, version, lsn) of each table."""
        transaction, context = self.session.begin_statement(), self.session.context
        engine, cursor, lsn = self.node.engine, transaction.cursor, transaction.seen
        shows_paths = acl.role(cursor, context.user).owns(READ_ALL_SETTINGS)
        readable = privilege_inquiry.readable(cursor, context)
        for table in inventory.of_database(cursor, engine.base, engine.log.versions(lsn), context.database, context.database_name):
            if table.oid in readable:
                yield table.schema, table.name, table.oid, str(table.path) if shows_paths else None, table.version, lsn
