"""SQL functions for subscriptions: pg_stat_get_subscription and related ones, headgate.resync, headgate.reconcile, headgate.wait_for_lsn.

A base class of the session's functions (`functions`). A request for a table is written in the session's transaction
(`subscription_resync`). The subscription's workers process it after COMMIT (`subscriber.synchronization.table_sync`).
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor, one
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_resync
from headgate.catalog.replication.subscription import Subscription, SyncState
from headgate.catalog.replication.subscription_resync import Method
from headgate.commands import lookup, privilege
from headgate.errors import PostgresError
from headgate.lsn import INVALID, Lsn
from headgate.server.monitoring import system_view
from headgate.sql.names import quote_ident

if TYPE_CHECKING:
    from headgate.server.node import Node
    from headgate.server.session.session import ClientSession

Row = tuple[object, ...]
WAIT_SECONDS = 0.05
"""The interval at which a wait checks the progress of a subscription."""


def owned(session: ClientSession, cursor: Cursor, name: str | None) -> Subscription:
    """Return the enabled subscription of this name. Raise 42704 if it does not exist, 42501 if it is not the user's, 55000 if disabled."""
    subscription = None if name is None else subscriptions.lookup(cursor, session.context.database, name)
    if subscription is None:
        raise PostgresError("42704", f'subscription "{name}" does not exist')
    privilege.check_owner(cursor, session.context.user, subscription.owner, "subscription", subscription.name)
    if not subscription.enabled:
        hint = f"Run ALTER SUBSCRIPTION {quote_ident(subscription.name)} ENABLE first."
        raise PostgresError("55000", f'subscription "{subscription.name}" is disabled', hint=hint)
    return subscription


def streamed(node: Node, oid: int) -> Lsn | None:
    """Return the LSN up to which the subscription's apply worker has applied; None if it is not streaming."""
    workers = node.launcher.workers()
    streams = [worker.progress for worker in workers if worker.subscription.oid == oid and worker.relation is None]
    return streams[0].flushed if streams and streams[0] is not None else None


class SubscriptionFunctions:
    """The subscription functions of one session."""

    node: Node
    session: ClientSession

    def fn_pg_stat_get_subscription(self, subid: int | None) -> list[Row]:
        """Return the workers of a subscription (NULL: of all), as in pg_stat_subscription without the name."""
        rows = system_view.subscriptions(self.node)
        workers = [(row[0], row[3], row[2], *row[4:]) for row in rows]
        return [row for row in workers if row[2] is not None and (subid is None or row[0] == subid)]

    def fn_pg_stat_get_subscription_stats(self, subid: int) -> Row:
        """Return the error counts of a subscription; zeros if it does not exist."""
        cursor = self.session.begin_statement().cursor
        counts = one(cursor, "SELECT apply_error_count, sync_error_count, stats_reset FROM hg.subscription_stats WHERE subid = ?", [subid])
        return (subid, *(counts or (0, 0, None)))

    def fn_pg_stat_reset_subscription_stats(self, subid: int | None) -> None:
        """Reset the error counts of a subscription (NULL: of all)."""
        if subid == 0:
            raise PostgresError("22023", "invalid subscription OID 0")
        self.node.launcher.reset_statistics(subid)

    def resync(self, subscription: str | None, relation: str | None) -> None:
        """Request a new copy of a table (headgate.resync). It replaces the table's rows in one commit."""
        self._ask(subscription, relation, Method.COPY)

    def reconcile(self, subscription: str | None, relation: str | None) -> None:
        """Request a comparison with the publisher's table (headgate.reconcile). The differences are written in one commit."""
        self._ask(subscription, relation, Method.DIFFERENCE)

    def wait_for_lsn(self, subscription: str, lsn: Lsn, timeout: float) -> bool:
        """Wait until the publisher's changes up to `lsn` are visible here, at most `timeout` seconds (headgate.wait_for_lsn).

        Return whether they are; the next statement sees them. It also waits for tables that are being copied.
        """
        if not timeout >= 0:
            raise PostgresError("22023", "timeout must not be negative")
        session, deadline = self.session, time.monotonic() + timeout
        while True:
            with contextlib.closing(self.node.catalog.cursor()) as cursor:
                sub = subscriptions.lookup(cursor, session.context.database, subscription)
                if sub is None:
                    raise PostgresError("42704", f'subscription "{subscription}" does not exist')
                if not sub.enabled:
                    hint = f"Run ALTER SUBSCRIPTION {quote_ident(sub.name)} ENABLE first."
                    raise PostgresError("55000", f'subscription "{sub.name}" is disabled', hint=hint)
                progress = origins.progress(cursor, f"pg_{sub.oid}")
                reached = streamed(self.node, sub.oid) or (INVALID if progress is None else progress.remote_lsn)
                copying = any(table.state is not SyncState.READY for table in subscriptions.tables(cursor, sub.oid))
            if reached >= lsn and not copying:
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            session.interrupts.sleep(min(remaining, WAIT_SECONDS))

    def _ask(self, subscription: str | None, relation: str | None, method: Method) -> None:
        session = self.session
        cursor = session.begin_statement().cursor
        sub, table = owned(session, cursor, subscription), lookup.named(cursor, session.context, relation or "")
        if all(member.relation != table.oid for member in subscriptions.tables(cursor, sub.oid)):
            text = f'table "{table.schema}.{table.name}" is not in subscription "{sub.name}"'
            raise PostgresError("42704", text, hint=f"Run ALTER SUBSCRIPTION {quote_ident(sub.name)} REFRESH PUBLICATION to add it.")
        if sub.two_phase == "e":
            raise PostgresError(
                "55000",
                "tables cannot be synchronized again when two_phase is enabled",
                hint="Use DROP/CREATE SUBSCRIPTION.",
            )
        subscription_resync.request(cursor, sub.database, sub.oid, table.oid, method)
        session.after_commit(self.node.launcher.wake)
