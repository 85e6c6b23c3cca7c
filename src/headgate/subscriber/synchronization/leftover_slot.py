"""Sync slots that were left on a publisher by a crash between SYNCDONE and the drop, or because the publisher could not be reached.

The launcher calls `drop` for each subscription with an apply worker. A thread drops the slots, so that the launcher does not wait for
publishers. It is retried after `wal_retrieve_retry_interval`, until the publisher can be reached.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import COPIED, Subscription
from headgate.subscriber.host import Host
from headgate.subscriber.synchronization.table_sync import drop_slot

LONGEST_PAUSE = 60.0
"""The maximum number of seconds between two checks of the launcher."""


class LeftoverSlots:
    """The leftover sync slots of all subscriptions. See the module."""

    def __init__(self, host: Host, wake: Callable[[], None]) -> None:
        """`wake`: let the launcher call `drop`."""
        self._host, self._wake = host, wake
        self._lock = threading.Lock()
        self._none: set[int] = set()
        """Subscriptions that have no leftover sync slots on their publishers, as far as is known."""
        self._dropping: set[tuple[int, int]] = set()
        """Tables of subscriptions whose leftover sync slot is being dropped."""
        self._retry_at: dict[int, float] = {}

    def is_dropping(self, subscription: int, relation: int) -> bool:
        """Return whether the slot of a table is being dropped. It has the name of the slot that a new sync would create."""
        return (subscription, relation) in self._dropping

    def retry(self, subscription: int) -> None:
        """Let `drop` drop the slots of a subscription after `wal_retrieve_retry_interval`."""
        with self._lock:
            self._retry_at[subscription] = time.monotonic() + self._host.settings.seconds("wal_retrieve_retry_interval")
        self._wake()

    def drop(self, subscription: Subscription) -> float:
        """Drop the slots of a subscription in a thread, unless there are none. Return the seconds until the next check."""
        oid = subscription.oid
        with self._lock:
            due = self._retry_at.get(oid)
            left_seconds = LONGEST_PAUSE if due is None else due - time.monotonic()
            if oid in self._none and left_seconds > 0:
                return left_seconds
            self._retry_at.pop(oid, None)
            self._none.add(oid)
        if tables := self._tables(oid):
            try:
                threading.Thread(target=self._drop, args=(subscription, tables), name="sync slots", daemon=True).start()
            except RuntimeError:
                self.retry(oid)
        return LONGEST_PAUSE

    def _tables(self, subscription: int) -> list[int]:
        """Return the tables of a subscription whose sync has ended and whose sync slot has not been dropped. They may have been dropped."""
        with contextlib.closing(self._host.catalog.cursor()) as cursor:
            copying = {rel.relation for rel in subscriptions.tables(cursor, subscription) if rel.state not in COPIED}
            return sorted(origins.of_syncs(cursor, subscription) - copying)

    def _drop(self, subscription: Subscription, relations: Sequence[int]) -> None:
        host, oid = self._host, subscription.oid
        keys = {(oid, relation) for relation in relations}
        with self._lock:
            self._dropping |= keys
        try:  # no sync begins from here on; one may have begun, if a command has removed and added the table
            left = set(relations).intersection(self._tables(oid))
            dropped = [drop_slot(host, subscription, host.sync_slot_name(oid, rel), f"pg_{oid}_{rel}") for rel in left]
        finally:
            with self._lock:
                self._dropping -= keys
        if not all(dropped):
            self.retry(oid)
