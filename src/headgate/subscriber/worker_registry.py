"""The registry of the subscriptions' workers that run, with the rules by which they start and stop.

The launcher starts apply workers through it, and apply workers start table syncs. Commands stop workers and prevent their start (`hold`).
Views read the list. Call `wake` after any change of pg_subscription or pg_subscription_rel. The states of a subscription:

    no worker  → running   the subscription is enabled, `wal_retrieve_retry_interval` has passed since the last start (at once after
                           `wake`, unless the last worker failed), and fewer than `max_logical_replication_workers` run
    running    → no worker  the worker ended: the subscription was disabled, removed or altered, or an error occurred
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from headgate.catalog.physical import Cursor
from headgate.catalog.replication.subscription import Subscription
from headgate.failpoint import Step
from headgate.subscriber.host import Host
from headgate.subscriber.synchronization.leftover_slot import LONGEST_PAUSE, LeftoverSlots
from headgate.subscriber.synchronization.table_sync import SyncWorker
from headgate.subscriber.worker import Started, Worker

WORKERS, SYNC_WORKERS = "max_logical_replication_workers", "max_sync_workers_per_subscription"
_log = logging.getLogger("headgate.subscriber")


class WorkerRegistry:
    """The registry of a node. See the module."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.changed = threading.Event()
        """Set if the launcher must check the subscriptions at once."""
        self.leftover = LeftoverSlots(host, self.changed.set)
        self._lock = threading.RLock()
        self._stopping = False
        self._workers: dict[int, Worker] = {}
        """The apply workers, by subscription."""
        self._syncs: dict[tuple[int, int], SyncWorker] = {}
        self._held: set[int] = set()
        """Subscriptions whose workers a command has stopped (`hold`)."""
        self._held_tables: set[tuple[int, int]] = set()
        """Tables of subscriptions whose sync worker a command has stopped (`hold_table`)."""
        self._states = threading.Lock()
        """Held while an apply worker writes the state of a table, and while `hold_table` begins."""
        self._refused: dict[tuple[int, int | None], str] = {}
        """The setting whose limit prevents the worker of a subscription, or of one of its tables, from starting."""
        self._last_start: dict[int, float] = {}

    # ---- for commands -----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check the catalog at once. Called after the commit of any command on subscriptions, and after a reload of settings."""
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.look()
        self.changed.set()

    def hold(self, subscription: int, check: Callable[[], None] = lambda: None) -> None:
        """Stop the workers of a subscription and wait for them (`check` as in `Worker.stop`). None is started until `release`."""
        with self._lock:
            self._held.add(subscription)
            workers: list[Worker] = [sync for (oid, _), sync in self._syncs.items() if oid == subscription]
            if subscription in self._workers:
                workers.append(self._workers[subscription])
        for worker in workers:
            worker.stop(wait=False)
        for worker in workers:
            worker.stop(check=check)

    def release(self, subscription: int) -> None:
        """End `hold`: the subscription's worker starts again, if the subscription still exists and is enabled."""
        with self._lock:
            self._held.discard(subscription)
            self._last_start.pop(subscription, None)
        self.changed.set()

    def hold_table(self, subscription: int, relation: int, check: Callable[[], None] = lambda: None) -> None:
        """Stop the sync worker of a table, if there is one, and wait for it (`check` as in `hold`). None is started until `release_table`.

        REFRESH removes the table. A worker that is started before that commits would fail, or leave its slot. Until `release_table` no
        worker writes the table's state. PostgreSQL locks pg_subscription_rel.
        """
        with self._states, self._lock:
            self._held_tables.add((subscription, relation))
        sync = self.sync_of(subscription, relation)
        if sync is not None:
            sync.stop(check=check)

    def write_state(self, subscription: int, relation: int, write: Callable[[Cursor], bool]) -> bool:
        """Write the state of a table in a catalog transaction, for an apply worker. Return False if a command holds the table."""
        with self._states:
            is_held = (subscription, relation) in self._held_tables
            return not is_held and self.host.catalog.change(write, Step.SYNCHRONIZATION)

    def release_table(self, subscription: int, relation: int) -> None:
        """End `hold_table`: the table is synchronized again if it is still in the subscription."""
        with self._lock:
            self._held_tables.discard((subscription, relation))

    # ---- for views --------------------------------------------------------------------------------------

    def all(self) -> list[Worker]:
        """Return the apply workers, then the table syncs."""
        with self._lock:
            return [*self._workers.values(), *self._syncs.values()]

    def refused(self, subscription: int) -> Mapping[int | None, str]:
        """Return the settings whose limits prevent workers of a subscription from starting, by table. None is the apply worker."""
        with self._lock:
            return {relation: setting for (oid, relation), setting in self._refused.items() if oid == subscription}

    # ---- for the launcher -------------------------------------------------------------------------------

    def is_running(self, subscription: int) -> bool:
        """Return whether the subscription has an apply worker."""
        with self._lock:
            return subscription in self._workers

    def start_apply(self, subscription: Subscription, make: Callable[[WorkerRegistry, Subscription], Worker]) -> float:
        """Start the apply worker of a subscription, if none runs and it may run. Return the seconds until the next attempt."""
        oid, interval = subscription.oid, self.host.settings.seconds("wal_retrieve_retry_interval")
        with self._lock:
            if self._stopping or oid in self._held or oid in self._workers:
                return LONGEST_PAUSE
            last = self._last_start.get(oid)
            seconds_left = 0.0 if last is None else last + interval - time.monotonic()
            if seconds_left > 0:
                return seconds_left
            if not self._has_room(oid, None):
                return interval
            self._last_start[oid] = time.monotonic()
            try:
                worker = make(self, subscription)
            except OSError as error:
                _log_not_started(error)
                return interval
            self._workers[oid] = worker
        return LONGEST_PAUSE if _start(worker) else interval

    def forget_refused(self, enabled: Collection[int]) -> None:
        """Discard what `refused` returns of subscriptions that are not enabled."""
        with self._lock:
            self._refused = {key: setting for key, setting in self._refused.items() if key[0] in enabled}

    def stop(self) -> None:
        """Stop all workers, because the node stops, and wait for them. None starts from here on."""
        with self._lock:
            self._stopping = True
            workers = self.all()
        for worker in reversed(workers):
            worker.is_shut_down = True
            worker.stop(wait=False)
        for worker in reversed(workers):
            worker.stop()

    # ---- for apply workers ------------------------------------------------------------------------------

    def sync_of(self, subscription: int, relation: int) -> SyncWorker | None:
        with self._lock:
            return self._syncs.get((subscription, relation))

    def start_sync(self, leader: Worker, relation: int) -> Started:
        """Start the sync worker of a table, if the limits allow one more."""
        settings = self.host.settings
        oid = leader.subscription.oid
        with self._lock:
            mine = sum(subscription == oid for subscription, _ in self._syncs)
            if self._stopping or oid in self._held:
                return Started.LATER
            if mine >= settings.integer(SYNC_WORKERS):
                if not mine:  # otherwise the table waits for its turn
                    self._refused[oid, relation] = SYNC_WORKERS
                return Started.LATER
            # a leftover slot has the name of the slot that the worker would create
            if (oid, relation) in self._held_tables or self.leftover.is_dropping(oid, relation) or not self._has_room(oid, relation):
                return Started.NO_ROOM
            try:
                sync = SyncWorker(leader, relation, self.ended)
            except OSError as error:
                _log_not_started(error)
                return Started.NO_ROOM
            self._syncs[oid, relation] = sync
        return Started.YES if _start(sync) else Started.NO_ROOM

    def ended(self, worker: Worker) -> None:
        """Remove a worker whose thread is about to end."""
        oid = worker.subscription.oid
        with self._lock:
            if worker.relation is not None:
                if self._syncs.get((oid, worker.relation)) is worker:
                    del self._syncs[oid, worker.relation]
            elif self._workers.get(oid) is worker:
                del self._workers[oid]
                if worker.error is None:
                    self._last_start.pop(oid, None)
            leader = self._workers.get(oid)
        if isinstance(worker, SyncWorker) and worker.has_left_slot:
            self.leftover.retry(oid)
        if worker.relation is not None and leader is not None:
            leader.look()
        self.changed.set()

    def _has_room(self, subscription: int, relation: int | None) -> bool:
        """Return whether one more worker may run. If not, log a warning and record which worker has to wait."""
        limit = self.host.settings.integer(WORKERS)
        if len(self._workers) + len(self._syncs) < limit:
            self._refused.pop((subscription, relation), None)
            return True
        self._refused[subscription, relation] = WORKERS
        _log.warning(
            "out of logical replication worker slots",
            extra={"hint": "You might need to increase max_logical_replication_workers."},
        )
        return False


def _start(worker: Worker) -> bool:
    """Start a worker's thread. Return False if no thread can be started: the worker then counts as ended."""
    try:
        worker.start()
    except RuntimeError as error:
        _log_not_started(error)
        worker.not_started()
        return False
    return True


def _log_not_started(error: Exception) -> None:
    _log.info("could not fork worker process: %s", error.strerror if isinstance(error, OSError) else error)
