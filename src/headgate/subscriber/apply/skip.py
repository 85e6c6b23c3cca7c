"""ALTER SUBSCRIPTION … SKIP: the one transaction whose finish LSN the user gave is received and not applied.

`skip_transaction` is called by the apply worker with each segment while pg_subscription.subskiplsn is set. If another transaction finishes
first, it is applied and the setting is cleared with a warning, as PostgreSQL does (worker.c, clear_subscription_skip_lsn).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import Subscription
from headgate.lsn import INVALID, Lsn
from headgate.pgoutput import message as m
from headgate.subscriber.apply.apply import Applier
from headgate.walreceiver.segment import Segment

_log = logging.getLogger("headgate.subscriber")


def skip_transaction(
    catalog: Catalog, subscription: Subscription, applier: Applier, segment: Segment, applied: Callable[[Lsn], None]
) -> Segment | None:
    """Handle the first transaction of a segment while SKIP is set. Return the remaining segment to apply, or None."""
    first, rest = segment.split(1)
    finish, end = Lsn(first.transactions.commit_lsn[0]), Lsn(first.transactions.end_lsn[0])
    if finish == subscription.skip_lsn:
        begun(finish)
        applier.relations.update({message.relation: message for _, _, message in first.others if isinstance(message, m.Relation)})

        def skip(cursor: CatalogCursor) -> None:
            subscriptions.change(cursor, subscription.oid, skip_lsn=INVALID)
            origins.advance(cursor, applier.stream.origin, end)

        catalog.change(skip)
        applied(end)
        _log.info("logical replication completed skipping transaction at LSN %s", finish)
    else:
        applier.apply(first, applied)
        clear(catalog, subscription, finish)
    return rest if len(rest.transactions) else None


def begun(finish: Lsn) -> None:
    """Log that a transaction is being skipped."""
    _log.info("logical replication starts skipping transaction at LSN %s", finish)


def clear(catalog: Catalog, subscription: Subscription, finish: Lsn) -> None:
    """Clear the setting after a transaction has finished at `finish`. Log a warning if that is not the transaction to skip."""
    catalog.change(lambda cursor: subscriptions.change(cursor, subscription.oid, skip_lsn=INVALID))
    if finish == subscription.skip_lsn:
        _log.info("logical replication completed skipping transaction at LSN %s", finish)
        return
    _log.warning(
        'skip-LSN of subscription "%s" cleared',
        subscription.name,
        extra={"detail": f"Remote transaction's finish WAL location (LSN) {finish} did not match skip-LSN {subscription.skip_lsn}."},
    )
