"""SQL functions for subscriptions: pg_stat_get_subscription and related ones, headgate.resync, and other functions of headgate.

headgate.reconcile, headgate.wait_for_lsn and headgate.complete_until are here too.
A request for a table is written in the session's transaction (`subscription_resync`). The subscription's workers process it after COMMIT
(`subscriber.synchronization.table_sync`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from headgate.catalog.physical import Cursor, one
from headgate.catalog.relation import relation as relations
from headgate.catalog.relation.relation import Relation
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication import subscription_resync
from headgate.catalog.replication.subscription import Subscription, SyncState
from headgate.catalog.replication.subscription_resync import Method
from headgate.commands import lookup, privilege
from headgate.commands.subscription.publisher_session import connected
from headgate.errors import PostgresError, existing
from headgate.lsn import INVALID, Lsn
from headgate.server.report import system_view
from headgate.sql.names import quote_ident
from headgate.walreceiver import answer

if TYPE_CHECKING:
    from headgate.server.session.session import ClientSession
    from headgate.subscriber.worker_registry import WorkerRegistry

Row = tuple[object, ...]
WAIT_SECONDS = 0.05
"""The interval at which a wait checks the progress of a subscription."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_TIME = 253_402_300_799_000_000
"""The end of year 9999, in microseconds since 1970."""


def owned(session: ClientSession, cursor: Cursor, name: str | None) -> Subscription:
    """Return the enabled subscription of this name. Raise 42704 if it does not exist, 42501 if it is not the user's, 55000 if disabled."""
    subscription = None if name is None else subscriptions.lookup(cursor, session.context.database, name)
    if subscription is None:
        raise PostgresError("42704", f'subscription "{name}" does not exist')
    privilege.check_owner(cursor, session.context.user, subscription.owner, "subscription", subscription.name)
    _check_enabled(subscription)
    return subscription


def _check_enabled(subscription: Subscription) -> None:
    if not subscription.enabled:
        hint = f"Run ALTER SUBSCRIPTION {quote_ident(subscription.name)} ENABLE first."
        raise PostgresError("55000", f'subscription "{subscription.name}" is disabled', hint=hint)


def streamed(registry: WorkerRegistry, oid: int) -> Lsn | None:
    """Return the LSN up to which the subscription's apply worker has applied; None if it is not streaming."""
    streams = [worker.progress for worker in registry.all() if worker.subscription.oid == oid and worker.relation is None]
    return streams[0].flushed if streams and streams[0] is not None else None


def _deadline(timeout: float) -> float:
    if not timeout >= 0:
        raise PostgresError("22023", "timeout must not be negative")
    return time.monotonic() + timeout


def _lineage(cursor: Cursor, table: Relation) -> Iterator[int]:
    """Yield the oids of a table and of the partitioned tables above it, into which a subscription may write its rows."""
    part: Relation | None = table
    while part is not None:
        yield part.oid
        part = relations.find(cursor, part.database, part.parent) if part.parent else None


def pg_stat_get_subscription(session: ClientSession, subid: int | None) -> list[Row]:
    """Return the workers of a subscription (NULL: of all), as in pg_stat_subscription without the name."""
    rows = system_view.subscriptions(session.node)
    workers = [(row[0], row[3], row[2], *row[4:]) for row in rows]
    return [row for row in workers if row[2] is not None and (subid is None or row[0] == subid)]


def pg_stat_get_subscription_stats(session: ClientSession, subid: int) -> Row:
    """Return the error counts of a subscription; zeros if it does not exist."""
    cursor = session.begin_statement().cursor
    counts = one(cursor, "SELECT apply_error_count, sync_error_count, stats_reset FROM hg.subscription_stats WHERE subid = ?", [subid])
    return (subid, *(counts or (0, 0, None)))


def pg_stat_reset_subscription_stats(session: ClientSession, subid: int | None) -> None:
    """Reset the error counts of a subscription (NULL: of all)."""
    if subid == 0:
        raise PostgresError("22023", "invalid subscription OID 0")
    session.node.catalog.change(lambda cursor: subscriptions.reset_errors(cursor, subid))


def resync(session: ClientSession, subscription: str | None, relation: str | None) -> None:
    """Request a new copy of a table (headgate.resync). It replaces the table's rows in one commit."""
    _ask(session, subscription, relation, Method.COPY)


def reconcile(session: ClientSession, subscription: str | None, relation: str | None) -> None:
    """Request a comparison with the publisher's table (headgate.reconcile). The differences are written in one commit."""
    _ask(session, subscription, relation, Method.DIFFERENCE)


def wait_for_lsn(session: ClientSession, subscription: str, lsn: Lsn, timeout: float) -> bool:
    """Wait until the publisher's changes up to `lsn` are visible here, at most `timeout` seconds (headgate.wait_for_lsn).

    Return whether they are; the next statement sees them. It also waits for tables that are being copied.
    """
    return _wait(session, subscription, lsn, _deadline(timeout))


def complete_until(session: ClientSession, relation: str, timeout: float) -> datetime | None:
    """Return a time up to which every commit of a table's publishers is visible here (headgate.complete_until).

    It is the publisher's time at the call. NULL if the node has not reached the publisher's position of then after `timeout` seconds.
    The keepalives of an idle publisher cannot prove this: a walsender that lags behind its log sends them too, with the time of now.
    Raises 42501 without SELECT on the table, 55000 if no enabled subscription writes it, 08006 if the publisher does not answer.
    """
    deadline, context = _deadline(timeout), session.context
    with contextlib.closing(session.node.catalog.cursor()) as cursor:
        table = lookup.named(cursor, context, relation)
        privilege.check_table(cursor, context.user, context.database, table.oid, table.name, "SELECT")
        parts = list(_lineage(cursor, table))
        oids = [oid for part in parts for oid in subscriptions.subscribing(cursor, context.database, part)]
        subscription_list = [subscriptions.find(cursor, oid) for oid in oids]
    writing = [subscription for subscription in subscription_list if subscription is not None]
    if not writing:
        raise PostgresError("55000", f'table "{table.schema}.{table.name}" is not in a subscription')
    moments = []
    for subscription in writing:
        _check_enabled(subscription)
        moment, lsn = _publisher_position(session, subscription)
        if not _wait(session, subscription.name, lsn, deadline, parts):
            return None
        moments.append(moment)
    return min(moments)


def _publisher_position(session: ClientSession, subscription: Subscription) -> tuple[datetime, Lsn]:
    """Return the publisher's time, and the end of its log after that.

    The position is queried second: a server reads the clock just before it writes a commit, and such a commit should be before the
    position too. In PostgreSQL only a backend that is stopped between the two, for longer than a round trip, escapes this. In a node
    none does, because a statement begins under the lock of commits.
    """
    name = f"pg_{subscription.oid}_complete_until"
    try:
        with connected(session, subscription, name, replication=False) as publisher:
            [[moment]] = publisher.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8", 1)
            [[lsn]] = publisher.query("SELECT pg_current_wal_insert_lsn()", 1)
    except ValueError as error:
        raise PostgresError("08P01", "invalid response from publisher") from error
    return _EPOCH + timedelta(microseconds=answer.number(moment, most=_LATEST_TIME)), Lsn.parse(lsn or "")


def _wait(session: ClientSession, name: str, lsn: Lsn, deadline: float, only: Collection[int] | None = None) -> bool:
    """Wait until a subscription has applied everything up to an LSN and its tables are copied. Return False at the deadline.

    `only`: the tables (oids) that must be copied, by default all of them.
    """
    while True:
        with contextlib.closing(session.node.catalog.cursor()) as cursor:
            sub = existing(subscriptions.lookup(cursor, session.context.database, name), "42704", f'subscription "{name}"')
            _check_enabled(sub)
            progress = origins.progress(cursor, f"pg_{sub.oid}")
            reached = streamed(session.node.workers, sub.oid) or (INVALID if progress is None else progress.remote_lsn)
            copying = any(
                table.state is not SyncState.READY and (only is None or table.relation in only)
                for table in subscriptions.tables(cursor, sub.oid)
            )
        if reached >= lsn and not copying:
            return True
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        session.interrupts.sleep(min(remaining, WAIT_SECONDS))


def member(session: ClientSession, cursor: Cursor, sub: Subscription, relation: str) -> Relation:
    """Return the table of this name. Raise 42704 if it is not in the subscription."""
    table = lookup.named(cursor, session.context, relation)
    if all(state.relation != table.oid for state in subscriptions.tables(cursor, sub.oid)):
        text = f'table "{table.schema}.{table.name}" is not in subscription "{sub.name}"'
        raise PostgresError("42704", text, hint=f"Run ALTER SUBSCRIPTION {quote_ident(sub.name)} REFRESH PUBLICATION to add it.")
    return table


def _ask(session: ClientSession, subscription: str | None, relation: str | None, method: Method) -> None:
    cursor = session.begin_statement().cursor
    sub = owned(session, cursor, subscription)
    table = member(session, cursor, sub, relation or "")
    if sub.two_phase == "e":
        raise PostgresError(
            "55000",
            "tables cannot be synchronized again when two_phase is enabled",
            hint="Use DROP/CREATE SUBSCRIPTION.",
        )
    subscription_resync.request(cursor, sub.database, sub.oid, table.oid, method)
    session.after_commit(session.node.workers.wake)
