"""headgate.snapshot(): the Delta versions of all tables at one LSN, for readers of their files.

A base of the session's functions (`functions`). The tables are those of the session's database that its user may read, as the statement
sees them: what is committed, not what the session's own transaction has written. Where they lie is told to members of
pg_read_all_settings alone, as every path of the node is.

What must hold: the versions are those of one LSN, and as long as the transaction is open nothing of them is removed (`cleaning` asks the
engine for the oldest LSN that a transaction can read).
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
    """That of one session."""

    node: Node
    session: ClientSession

    def snapshot(self) -> Iterator[tuple[object, ...]]:
        """(schema, name, oid, path, version, lsn) of each table."""
        transaction, context = self.session.begin_statement(), self.session.context
        engine, cursor, lsn = self.node.engine, transaction.cursor, transaction.seen
        told = acl.role(cursor, context.user).owns(READ_ALL_SETTINGS)
        readable = privilege_inquiry.readable(cursor, context)
        for each in inventory.of_database(cursor, engine.base, engine.log.versions(lsn), context.database, context.database_name):
            if each.oid in readable:
                yield each.schema, each.name, each.oid, str(each.path) if told else None, each.version, lsn
