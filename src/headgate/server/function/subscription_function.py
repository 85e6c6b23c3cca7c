"""The functions about subscriptions: pg_stat_get_subscription and its like; headgate.resync and headgate.reconcile, which ask for a table.

A base of the session's functions (`functions`). What is asked for is written with the session's transaction (`subscription_resync`) and
done by the subscription's workers after its COMMIT (`subscriber.synchronization.table_sync`).
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
"""How often a wait looks how far a subscription is."""


def owned(session: ClientSession, cursor: Cursor, name: str | None) -> Subscription:
    """The enabled subscription of this name; 42704, 42501 unless the user owns it, 55000 if it is disabled."""
    found = None if name is None else subscriptions.lookup(cursor, session.context.database, name)
    if found is None:
        raise PostgresError("42704", f'subscription "{name}" does not exist')
    privilege.check_owner(cursor, session.context.user, found.owner, "subscription", found.name)
    if not found.enabled:
        hint = f"Run ALTER SUBSCRIPTION {quote_ident(found.name)} ENABLE first."
        raise PostgresError("55000", f'subscription "{found.name}" is disabled', hint=hint)
    return found


def streamed(node: Node, oid: int) -> Lsn | None:
    """Return how far the subscription's apply worker has applied; None while there is none that streams."""
    workers = node.launcher.workers()
    streams = [each.progress for each in workers if each.subscription.oid == oid and each.relation is None]
    return streams[0].flushed if streams and streams[0] is not None else None


class SubscriptionFunctions:
    """Those of one session."""

    node: Node
    session: ClientSession

    def fn_pg_stat_get_subscription(self, subid: int | None) -> list[Row]:
        """The workers of a subscription (NULL: of all): as pg_stat_subscription, without the name."""
        rows = system_view.subscriptions(self.node)
        found = [(row[0], row[3], row[2], *row[4:]) for row in rows]
        return [row for row in found if row[2] is not None and (subid is None or row[0] == subid)]

    def fn_pg_stat_get_subscription_stats(self, subid: int) -> Row:
        """The error counters of a subscription; zeros for one that there is not."""
        cursor = self.session.begin_statement().cursor
        found = one(cursor, "SELECT apply_error_count, sync_error_count, stats_reset FROM hg.subscription_stats WHERE subid = ?", [subid])
        return (subid, *(found or (0, 0, None)))

    def fn_pg_stat_reset_subscription_stats(self, subid: int | None) -> None:
        """Sets the counters of a subscription (NULL: of all) to zero."""
        if subid == 0:
            raise PostgresError("22023", "invalid subscription OID 0")
        self.node.launcher.reset_statistics(subid)

    def resync(self, subscription: str | None, relation: str | None) -> None:
        """headgate.resync: a table is copied again; the copy takes the place of its rows in one commit."""
        self._ask(subscription, relation, Method.COPY)

    def reconcile(self, subscription: str | None, relation: str | None) -> None:
        """headgate.reconcile: a table is compared with the publisher's, and what differs is written in one commit."""
        self._ask(subscription, relation, Method.DIFFERENCE)

    def wait_for_lsn(self, subscription: str, lsn: Lsn, timeout: float) -> bool:
        """headgate.wait_for_lsn: wait until what the publisher had at `lsn` is visible here, at most `timeout` seconds; whether it is.

        The next statement sees it. A table that is being copied is waited for as well.
        """
        if not timeout >= 0:
            raise PostgresError("22023", "timeout must not be negative")
        session, deadline = self.session, time.monotonic() + timeout
        while True:
            with contextlib.closing(self.node.catalog.cursor()) as cursor:
                found = subscriptions.lookup(cursor, session.context.database, subscription)
                if found is None:
                    raise PostgresError("42704", f'subscription "{subscription}" does not exist')
                if not found.enabled:
                    hint = f"Run ALTER SUBSCRIPTION {quote_ident(found.name)} ENABLE first."
                    raise PostgresError("55000", f'subscription "{found.name}" is disabled', hint=hint)
                progress = origins.progress(cursor, f"pg_{found.oid}")
                reached = streamed(self.node, found.oid) or (INVALID if progress is None else progress.remote_lsn)
                copying = any(each.state is not SyncState.READY for each in subscriptions.tables(cursor, found.oid))
            if reached >= lsn and not copying:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            session.interrupts.sleep(min(left, WAIT_SECONDS))

    def _ask(self, subscription: str | None, relation: str | None, method: Method) -> None:
        session = self.session
        cursor = session.begin_statement().cursor
        found, table = owned(session, cursor, subscription), lookup.named(cursor, session.context, relation or "")
        if all(each.relation != table.oid for each in subscriptions.tables(cursor, found.oid)):
            text = f'table "{table.schema}.{table.name}" is not in subscription "{found.name}"'
            raise PostgresError("42704", text, hint=f"Run ALTER SUBSCRIPTION {quote_ident(found.name)} REFRESH PUBLICATION to add it.")
        if found.two_phase == "e":
            raise PostgresError(
                "55000",
                "tables cannot be synchronized again when two_phase is enabled",
                hint="Use DROP/CREATE SUBSCRIPTION.",
            )
        subscription_resync.request(cursor, found.database, found.oid, table.oid, method)
        session.after_commit(self.node.launcher.wake)
