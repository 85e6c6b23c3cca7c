"""ALTER SUBSCRIPTION … SKIP: a transaction that a worker does not apply, because the user named its finish LSN.

Called by the apply worker and by sync workers, as in PostgreSQL. The first transaction that a worker finishes clears the setting.
The worker logs a warning if the setting named another transaction.
"""

from __future__ import annotations

import logging

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import Subscription
from headgate.lsn import INVALID, Lsn
from headgate.subscriber.apply.apply import Applier
from headgate.subscriber.worker import Worker
from headgate.walreceiver.segment import Segment

_log = logging.getLogger("headgate.subscriber")


def skip_transaction(worker: Worker, subscription: Subscription, applier: Applier, segment: Segment) -> Segment | None:
    """Handle the first transaction of a segment while SKIP is set. Return the remaining segment to apply, or None."""
    first, rest = segment.split(1)
    finish, end = Lsn(first.transactions.commit_lsn[0]), Lsn(first.transactions.end_lsn[0])
    if finish == subscription.skip_lsn:
        log_start(finish)
        applier.learn(first)

        def skip(cursor: CatalogCursor) -> None:
            _clear(cursor, subscription)
            origins.advance(cursor, applier.stream.origin, end)

        worker.write_subscription(skip)
        worker.applied(end)
        _log_end(finish)
    else:
        applier.apply(first, worker.applied)
        finish_skip(worker, subscription, finish)
    return rest if len(rest.transactions) else None


def log_start(finish: Lsn) -> None:
    """Log that a transaction is being skipped."""
    _log.info("logical replication starts skipping transaction at LSN %s", finish)


def finish_skip(worker: Worker, subscription: Subscription, finish: Lsn) -> None:
    """Clear the setting after a transaction has finished at `finish`. Log a warning if that is not the transaction to skip."""
    is_cleared = worker.write_subscription(lambda cursor: _clear(cursor, subscription))
    if finish == subscription.skip_lsn:
        _log_end(finish)
    elif is_cleared:
        _log.warning(
            'skip-LSN of subscription "%s" cleared',
            subscription.name,
            extra={"detail": f"Remote transaction's finish WAL location (LSN) {finish} did not match skip-LSN {subscription.skip_lsn}."},
        )


def _log_end(finish: Lsn) -> None:
    _log.info("logical replication completed skipping transaction at LSN %s", finish)


def _clear(cursor: CatalogCursor, subscription: Subscription) -> bool:
    """Clear the setting. Return False if another worker has cleared it, or a session has set another one: that one is kept."""
    current = subscriptions.find(cursor, subscription.oid)
    if current is None or current.skip_lsn != subscription.skip_lsn:
        return False
    subscriptions.change(cursor, subscription.oid, skip_lsn=INVALID)
    return True
