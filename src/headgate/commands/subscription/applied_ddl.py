"""The transactions in which replication makes and changes tables by itself: `create_tables`, `schema_evolution` (neither is on by default).

`acting` gives a session with the rights of the subscription's owner. The subscriber is a floor below: the server hands `join` (and what
`schema_evolution` does) to it. What is made is one transaction of its own, before the batch that needs it.

What the publisher says is data: statements are made as trees of names and of types and expressions that were taken apart (`sql/statement`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headgate.catalog.replication.subscription import Subscription
from headgate.catalog.user_type import KnownTypes
from headgate.commands.session import NodeParts
from headgate.commands.subscription import subscription_tables
from headgate.commands.subscription.row_completion import WorkerSession, owners_context
from headgate.settings.session import SessionSettings
from headgate.storage.transaction.transaction import Transaction
from headgate.subscriber.host import Jobs
from headgate.walreceiver.connection import PublisherConnection


@dataclass
class OwnerSession(WorkerSession):
    """A session that runs DDL inside a given transaction; what it would do after the commit is kept."""

    committed: list[Callable[[], None]] = field(default_factory=list)

    def prevent_in_block(self, command: str) -> None:
        """Never in a block."""

    def check_cancel(self) -> None:
        """Raises once the worker is to end."""
        if self.transaction.cancelled is not None:
            self.transaction.cancelled()

    def cancelling(self, stop: Callable[[], None], *, in_java: bool = False) -> contextlib.AbstractContextManager[None]:
        """Nobody asks to cancel; the worker's end ends its jobs (`job_group.EndedJobs`)."""
        return contextlib.nullcontext()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Kept for `acting`."""
        self.committed.append(action)

    def use_types(self) -> None:
        """What the transaction has made counts at once."""
        KnownTypes(self.node.catalog, self.context.database).use(cursor=self.transaction.cursor)

    def after_rollback(self, action: Callable[[], None]) -> None:
        """Nothing to undo."""


@contextlib.contextmanager
def acting(node: NodeParts, subscription: Subscription, stopping: Callable[[], None], jobs: Jobs) -> Iterator[OwnerSession]:
    """A session of the subscription's owner; what is done inside is one transaction.

    `stopping` raises when the worker should end, and what Spark does inside is of its `jobs`.
    """
    transaction: Transaction = node.engine.begin(subscription.database)
    transaction.cancelled = stopping
    try:
        context = owners_context(node, transaction.cursor, subscription)
        with jobs() as group:
            session = OwnerSession(node, context, transaction, settings=SessionSettings(node.settings), job_group=group)
            session.use_types()
            yield session
        transaction.commit()
    except BaseException:
        transaction.rollback()
        node.catalog.types_changed()  # or somebody keeps those that this has made
        raise
    for action in session.committed:
        action()


def join(node: NodeParts, subscription: Subscription, stopping: Callable[[], None], jobs: Jobs) -> list[str]:
    """Adds the published tables that are not in the subscription yet, made where they are missing, to be copied; lines of what was done."""
    with PublisherConnection.open(subscription.conninfo, subscription.name) as connection:
        if not subscription_tables.has_new(node.catalog, connection, subscription):
            return []
        return _join(node, subscription, connection, stopping, jobs)


def _join(
    node: NodeParts, subscription: Subscription, connection: PublisherConnection, stopping: Callable[[], None], jobs: Jobs
) -> list[str]:
    with acting(node, subscription, stopping, jobs) as session:
        session.transaction.lock_object("pg_subscription", subscription.oid)
        joined = subscription_tables.join(session, session.transaction, connection, subscription)
        done = [each.message + (f" ({each.detail})" if each.detail else "") for each in session.notices.said]
    return [*done, *(f'table "{name}" joins subscription "{subscription.name}"' for name in joined)]
