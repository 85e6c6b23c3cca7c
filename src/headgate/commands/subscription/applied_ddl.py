"""Transactions in which replication creates and changes tables: `create_tables` and `schema_evolution` (both are off by default).

`acting` provides a session with the rights of the subscription's owner. The subscriber must not import this package: the server passes it
`join` (and the functions of `schema_evolution`). The DDL commits in its own transaction, before the batch that needs it.

The publisher's answers are untrusted data. Statements are built as trees of names, types and parsed expressions (`sql/statement`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headgate.catalog.known_types import KnownTypes
from headgate.catalog.replication.subscription import Subscription
from headgate.commands.session import NodeParts
from headgate.commands.subscription import subscription_tables
from headgate.commands.subscription.row_completion import WorkerSession, owners_context
from headgate.settings.session import SessionSettings
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.host import Jobs
from headgate.walreceiver.connection import PublisherConnection


@dataclass
class OwnerSession(WorkerSession):
    """A session that runs DDL inside a given transaction. It collects the actions to run after the commit."""

    committed: list[Callable[[], None]] = field(default_factory=list)

    def prevent_in_block(self, command: str) -> None:
        """Do nothing: the session is never in a block."""

    def after_commit(self, action: Callable[[], None]) -> None:
        """Collect the action, which `acting` runs."""
        self.committed.append(action)

    def use_types(self) -> None:
        """Activate the types that the transaction has created."""
        KnownTypes(self.parts.catalog, self.context.database).use(cursor=self.transaction.cursor)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Do nothing: there is nothing to undo."""


@contextlib.contextmanager
def acting(node: NodeParts, subscription: Subscription, stopping: Callable[[], None], jobs: Jobs) -> Iterator[OwnerSession]:
    """Yield a session of the subscription's owner. The block runs in one transaction, which then commits.

    `stopping` raises an error if the worker should stop. Spark's work in the block belongs to its `jobs`.
    """
    transaction: Transaction = node.engine.begin(subscription.database)
    transaction.locks.cancelled = stopping
    try:
        context = owners_context(node, transaction.cursor, subscription)
        with jobs() as group:
            session = OwnerSession(node, context, transaction, settings=SessionSettings(node.settings), job_group=group)
            session.use_types()
            yield session
        transaction.commit()
    except BaseException:
        transaction.rollback()
        node.catalog.types_changed()  # the types of the aborted transaction must not stay cached
        raise
    for action in session.committed:
        action()


def join(node: NodeParts, subscription: Subscription, stopping: Callable[[], None], jobs: Jobs) -> list[str]:
    """Add the published tables that are not in the subscription yet, for the initial copy. Missing tables are created. Return log lines."""
    with PublisherConnection.open(subscription.conninfo, subscription.name, check=stopping) as connection:
        if not subscription_tables.has_new(node.catalog, connection, subscription):
            return []
        return _join(node, subscription, connection, stopping, jobs)


def _join(
    node: NodeParts, subscription: Subscription, connection: PublisherConnection, stopping: Callable[[], None], jobs: Jobs
) -> list[str]:
    with acting(node, subscription, stopping, jobs) as session:
        session.transaction.catalog.lock_object("pg_subscription", subscription.oid)
        joined = subscription_tables.join(session, session.transaction, connection, subscription)
        lines = [notice.message + (f" ({notice.detail})" if notice.detail else "") for notice in session.notices.said]
    return [*lines, *(f'table "{name}" joins subscription "{subscription.name}"' for name in joined)]
