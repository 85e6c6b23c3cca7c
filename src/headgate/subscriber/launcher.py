"""The launcher starts one apply worker for each enabled subscription. Each node has one (launcher.c).

It checks the subscriptions when the registry of the workers wakes it, and after `wal_retrieve_retry_interval` if a worker failed.
"""

from __future__ import annotations

import contextlib
import logging

from headgate.catalog.replication import subscription as subscriptions
from headgate.catalog.security import role as roles
from headgate.errors import PostgresError
from headgate.subscriber.apply_worker import ApplyWorker
from headgate.subscriber.synchronization.leftover_slot import LONGEST_PAUSE
from headgate.subscriber.worker_registry import WorkerRegistry
from headgate.supervision import Supervised

_BOOTSTRAP = 10
"""The oid of the superuser that initdb created. pg_stat_activity shows it as the role of the launcher."""
_log = logging.getLogger("headgate.subscriber")


class Launcher:
    """The launcher of a node. See the module."""

    def __init__(self, workers: WorkerRegistry) -> None:
        self.workers, self.host = workers, workers.host
        self.thread = Supervised("logical replication launcher", self._run)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """Stop the launcher, then all workers."""
        self.thread.stopping.set()
        self.workers.changed.set()
        self.thread.stop()
        self.workers.stop()

    def _run(self) -> None:
        backend = self.host.enter("logical replication launcher")
        try:
            backend.state, backend.wait = None, ("Activity", "LogicalLauncherMain")
            backend.role, backend.role_name = _BOOTSTRAP, self._bootstrap_name()
            self._serve()
        finally:
            self.host.leave(backend.pid)

    def _serve(self) -> None:
        while not self.thread.stopping.is_set():
            try:
                pause = self._launch()
                self.host.engine.obstacles.clear("running", "logical replication launcher")
            except PostgresError as error:
                _log.warning("logical replication launcher: %s", error.message)
                self.host.engine.obstacles.note("running", "logical replication launcher", error.message)
                pause = 1.0
            self.workers.changed.wait(pause)
            self.workers.changed.clear()

    def _bootstrap_name(self) -> str | None:
        with contextlib.closing(self.host.catalog.cursor()) as cursor:
            role = roles.find(cursor, _BOOTSTRAP)
        return None if role is None else role.name

    def _launch(self) -> float:
        """Start the workers that should run. Return the seconds until the next check."""
        with contextlib.closing(self.host.catalog.cursor()) as cursor:
            enabled = [subscription for subscription in subscriptions.all_subscriptions(cursor) if subscription.enabled]
        self.workers.forget_refused({subscription.oid for subscription in enabled})
        pause = LONGEST_PAUSE
        for subscription in enabled:
            pause = min(pause, self.workers.start_apply(subscription, ApplyWorker))
            if self.workers.is_running(subscription.oid):
                pause = min(pause, self.workers.leftover.drop(subscription))
        return pause
