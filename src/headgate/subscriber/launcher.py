"""The launcher starts one apply worker for each enabled subscription, and the table syncs that apply workers request.

Each node has one launcher. Call `wake` after any change of pg_subscription or pg_subscription_rel. The states of a subscription:

    no worker  → running   the subscription is enabled, `wal_retrieve_retry_interval` has passed since the last start (at once after
                           `wake`, unless the last worker failed), and fewer than `max_logical_replication_workers` run
    running    → no worker  the worker ended: the subscription was disabled, removed or altered, or an error occurred
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headgate.catalog.physical import Cursor
from headgate.catalog.replication import origin as origins
from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.replication.subscription import COPIED, Subscription
from headgate.catalog.security import role as roles
from headgate.errors import PostgresError
from headgate.failpoint import Step
from headgate.lsn import Lsn
from headgate.subscriber.apply.apply_worker import ApplyWorker
from headgate.subscriber.host import Host
from headgate.subscriber.subscription_statistics import Ledger
from headgate.subscriber.synchronization.table_sync import SyncWorker, drop_slot
from headgate.subscriber.worker import Started, Worker
from headgate.supervision import Supervised

_BOOTSTRAP = 10
"""The oid of the superuser that initdb created. pg_stat_activity shows it as the role of the launcher."""
WORKERS, SYNC_WORKERS = "max_logical_replication_workers", "max_sync_workers_per_subscription"
_log = logging.getLogger("headgate.subscriber")


class SubscriptionRow(NamedTuple):
    """A row of pg_stat_subscription; times in microseconds since 2000-01-01."""

    subid: int
    subname: str
    pid: int | None
    relid: int | None
    received_lsn: Lsn | None
    last_msg_send_time: int | None
    last_msg_receipt_time: int | None
    latest_end_lsn: Lsn | None
    latest_end_time: int | None


class CopyRow(NamedTuple):
    """A row of pg_stat_progress_copy, without the database's name."""

    pid: int | None
    datid: int
    relid: int | None
    command: str
    type: str
    bytes_processed: int
    bytes_total: int
    tuples_processed: int
    tuples_excluded: int


class Launcher:
    """The launcher of a node. See the module."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.stopping = False
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._workers: dict[int, ApplyWorker] = {}
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
        self._cleaned: set[int] = set()
        """Subscriptions that have no leftover sync slots on their publishers, as far as is known."""
        self.ledger = Ledger()
        self._dropping: set[tuple[int, int]] = set()
        """Tables of subscriptions whose leftover sync slot is being dropped."""
        self._clean_at: dict[int, float] = {}
        """The time at which dropping leftover sync slots is retried, by subscription."""
        self.thread = Supervised("logical replication launcher", self._run)

    # ---- for the node -----------------------------------------------------------------------------------

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping = True
        self._wake.set()
        self.thread.stop()
        with self._lock:
            workers: list[Worker] = [*self._syncs.values(), *self._workers.values()]
        for worker in workers:
            worker.stop(wait=False)
        for worker in workers:
            worker.stop()

    # ---- for commands -----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check the catalog at once. Called after the commit of any command on subscriptions, and after a reload of settings."""
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.look()
        self._wake.set()

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
        self._wake.set()

    def clean_again(self, subscription: int) -> None:
        """Retry dropping a sync slot after `wal_retrieve_retry_interval`, until the publisher can be reached."""
        with self._lock:
            self._clean_at[subscription] = time.monotonic() + self.host.settings.seconds("wal_retrieve_retry_interval")
        self._wake.set()

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

    def sync_slot_name(self, subscription: int, relation: int) -> str:
        """Return the slot (and application name) of a table's sync: ``pg_<subscription>_sync_<relation>_<system identifier>``."""
        return f"pg_{subscription}_sync_{relation}_{self.host.system_identifier}"

    def reset_statistics(self, subscription: int | None) -> None:
        """pg_stat_reset_subscription_stats: set the error counters of a subscription, or of all, to zero."""
        self.host.catalog.change(lambda cursor: subscriptions.reset_errors(cursor, subscription))

    # ---- for views --------------------------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        with self._lock:
            return [*self._workers.values(), *self._syncs.values()]

    def refused(self, subscription: int) -> Mapping[int | None, str]:
        """Return the settings whose limits prevent workers of a subscription from starting, by table. None is the apply worker."""
        with self._lock:
            return {relation: setting for (oid, relation), setting in self._refused.items() if oid == subscription}

    def subscription_rows(self) -> list[SubscriptionRow]:
        """Return the rows of pg_stat_subscription. A subscription without a worker has a row too."""
        with contextlib.closing(self.host.catalog.cursor()) as cursor:
            all_rows = subscriptions.all_subscriptions(cursor)
        running = self.workers()
        rows = []
        for subscription in all_rows:
            mine = [worker for worker in running if worker.subscription.oid == subscription.oid]
            rows += [_row(subscription, worker) for worker in mine] if any(w.relation is None for w in mine) else [
                _row(subscription, None), *(_row(subscription, worker) for worker in mine)
            ]  # fmt: skip
        return rows

    def copy_rows(self) -> list[CopyRow]:
        """Return the rows of pg_stat_progress_copy for initial copies."""
        with self._lock:
            copies = [(sync, sync.copy) for sync in self._syncs.values() if sync.copy is not None and sync.copy.running]
        rows = []
        for sync, copy in copies:
            count, size = copy.arrived
            rows.append(
                CopyRow(
                    pid=sync.backend.pid if sync.backend is not None else None,
                    datid=sync.subscription.database,
                    relid=sync.relation,
                    command="COPY FROM",
                    type="CALLBACK",
                    bytes_processed=size,
                    bytes_total=0 if not copy.estimate or not count else max(size, size * copy.estimate // count),
                    tuples_processed=count,
                    tuples_excluded=0,
                )
            )
        return rows

    # ---- for workers ------------------------------------------------------------------------------------

    def sync_of(self, subscription: int, relation: int) -> SyncWorker | None:
        with self._lock:
            return self._syncs.get((subscription, relation))

    def start_sync(self, leader: ApplyWorker, relation: int) -> Started:
        """Start the sync worker of a table, if the limits allow one more."""
        settings = self.host.settings
        oid = leader.subscription.oid
        with self._lock:
            mine = sum(subscription == oid for subscription, _ in self._syncs)
            if self.stopping or oid in self._held:
                return Started.LATER
            if mine >= settings.integer(SYNC_WORKERS):
                if not mine:  # otherwise the table waits for its turn
                    self._refused[oid, relation] = SYNC_WORKERS
                return Started.LATER
            # a leftover slot has the name of the slot that the worker would create
            if (oid, relation) in self._held_tables | self._dropping or not self._has_room(oid, relation):
                return Started.NO_ROOM
            try:
                sync = SyncWorker(leader, relation)
            except OSError as error:
                _log_not_started(error)
                return Started.NO_ROOM
            self._syncs[oid, relation] = sync
        return Started.YES if self._start(sync) else Started.NO_ROOM

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
        if worker.relation is not None and leader is not None:
            leader.look()
        self._wake.set()

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

    # ---- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        backend = self.host.enter("logical replication launcher")
        try:
            backend.state, backend.wait = None, ("Activity", "LogicalLauncherMain")
            backend.role, backend.role_name = _BOOTSTRAP, self._bootstrap_name()
            self._serve()
        finally:
            self.host.leave(backend.pid)

    def _serve(self) -> None:
        while not self.stopping:
            try:
                pause = self._launch()
                self.host.engine.obstacles.clear("running", "logical replication launcher")
            except PostgresError as error:
                _log.warning("logical replication launcher: %s", error.message)
                self.host.engine.obstacles.note("running", "logical replication launcher", error.message)
                pause = 1.0
            self._wake.wait(pause)
            self._wake.clear()

    def _bootstrap_name(self) -> str | None:
        with contextlib.closing(self.host.catalog.cursor()) as cursor:
            role = roles.find(cursor, _BOOTSTRAP)
        return None if role is None else role.name

    def _launch(self) -> float:
        """Start the workers that should run. Return the seconds until the next check."""
        with contextlib.closing(self.host.catalog.cursor()) as cursor:
            enabled = [subscription for subscription in subscriptions.all_subscriptions(cursor) if subscription.enabled]
        interval = self.host.settings.seconds("wal_retrieve_retry_interval")
        pause = 60.0
        with self._lock:
            oids = {subscription.oid for subscription in enabled}
            self._refused = {key: setting for key, setting in self._refused.items() if key[0] in oids}
        for subscription in enabled:
            with self._lock:
                running = self._workers.get(subscription.oid)
            if running is not None:
                pause = min(pause, self._clean(running))
                continue
            with self._lock:
                if self.stopping or subscription.oid in self._held:
                    continue
                last = self._last_start.get(subscription.oid)
                seconds_left = 0.0 if last is None else last + interval - time.monotonic()
                if seconds_left > 0:
                    pause = min(pause, seconds_left)
                    continue
                if not self._has_room(subscription.oid, None):
                    pause = min(pause, interval)
                    continue
                self._last_start[subscription.oid] = time.monotonic()
                try:
                    worker = ApplyWorker(self, subscription)
                except OSError as error:
                    _log_not_started(error)
                    pause = min(pause, interval)
                    continue
                self._workers[subscription.oid] = worker
            pause = min(pause, self._clean(worker))
            if not self._start(worker):
                pause = min(pause, interval)
        return pause

    def _start(self, worker: Worker) -> bool:
        """Start a worker's thread. Return False if no thread can be started: the worker then counts as ended."""
        try:
            worker.start()
        except RuntimeError as error:
            _log_not_started(error)
            worker.not_started()
            return False
        return True

    def _clean(self, worker: ApplyWorker) -> float:
        """Drop sync slots that were left on the publisher by a crash between SYNCDONE and the drop.

        Return the seconds until the next check.
        """
        oid = worker.subscription.oid
        with self._lock:
            due = self._clean_at.get(oid)
            left_seconds = 60.0 if due is None else due - time.monotonic()
            if oid in self._cleaned and left_seconds > 0:
                return left_seconds
            self._clean_at.pop(oid, None)
            self._cleaned.add(oid)
        if left := self._with_leftover_slot(oid):
            try:
                threading.Thread(target=self._drop_slots, args=(worker, left), name="sync slots", daemon=True).start()
            except RuntimeError:
                self.clean_again(oid)
        return 60.0

    def _with_leftover_slot(self, subscription: int) -> list[int]:
        """Return the tables of a subscription whose sync has ended and whose sync slot has not been dropped. They may have been dropped."""
        with contextlib.closing(self.host.catalog.cursor()) as cursor:
            copying = {rel.relation for rel in subscriptions.tables(cursor, subscription) if rel.state not in COPIED}
            return sorted(origins.of_syncs(cursor, subscription) - copying)

    def _drop_slots(self, worker: ApplyWorker, relations: Sequence[int]) -> None:
        oid = worker.subscription.oid
        keys = {(oid, relation) for relation in relations}
        with self._lock:
            self._dropping |= keys
        try:  # no sync begins from here on; one may have begun, if a command has removed and added the table
            left = set(relations).intersection(self._with_leftover_slot(oid))
            dropped = [drop_slot(worker, self.sync_slot_name(oid, relation), f"pg_{oid}_{relation}") for relation in left]
        finally:
            with self._lock:
                self._dropping -= keys
        if not all(dropped):
            self.clean_again(oid)


def _log_not_started(error: Exception) -> None:
    _log.info("could not fork worker process: %s", error.strerror if isinstance(error, OSError) else error)


def _row(subscription: Subscription, worker: Worker | None) -> SubscriptionRow:
    position = None if worker is None else worker.position
    return SubscriptionRow(
        subid=subscription.oid,
        subname=subscription.name,
        pid=worker.backend.pid if worker is not None and worker.backend is not None else None,
        relid=None if worker is None else worker.relation,
        received_lsn=position.received if position and (worker is not None and worker.relation is None) else None,
        last_msg_send_time=(position.last_send_time or None) if position else None,
        last_msg_receipt_time=(position.last_receipt_time or None) if position else None,
        latest_end_lsn=position.latest_end if position and position.latest_end else None,
        latest_end_time=(position.latest_end_time or None) if position else None,
    )
