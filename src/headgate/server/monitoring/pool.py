"""Reports the node's bounded pools: how many places are in use, and in which pools a request found no place.

`status_report` puts the pools into the snapshot that status, JSON and metrics show. A pool is starved while workers wait for a place in
it, or if it has refused a connection or a slot in the last `MEMORY` seconds, or while a stage of Spark waits for task slots.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.catalog.replication import origin as origins
from headgate.server.monitoring.snapshot import PoolReport
from headgate.subscriber.advice import raise_setting
from headgate.subscriber.launcher import SYNC_WORKERS, WORKERS
from headgate.subscriber.snapshot import SubscriptionReport

if TYPE_CHECKING:
    from headgate.server.node import Node

MORE_TASKS = (
    "On this node: ALTER SYSTEM SET spark_master = 'local[…]' (a larger number), or on a cluster give it more cores (spark.cores.max),"
    ' and restart it with "headgate restart".'
)
MEMORY = 30.0
"""The seconds for which a refused request counts as starvation. Clients that need a place retry sooner."""


def pools(node: Node, subscriptions: Sequence[SubscriptionReport]) -> list[PoolReport]:
    workers = node.launcher.workers()
    syncs = Counter(worker.subscription.oid for worker in workers if worker.relation is not None)
    kinds = Counter(backend.kind for backend in node.activity.all())
    without_origin = [subscription.name for subscription in subscriptions if subscription.failing and _lacks_origin(subscription)]
    with contextlib.closing(node.catalog.cursor()) as cursor:
        tracked = len(origins.all_progress(cursor))

    def waiting(setting: str) -> list[str]:
        return [subscription.name for subscription in subscriptions if subscription.starved_of == setting]

    def was_refused(moment: float) -> bool:
        return 0.0 < moment > time.monotonic() - MEMORY

    tasks = node.task_watch.tasks

    def pool(name: str, setting: str, used: int, *, waits: Sequence[str] = (), refused_at: float = 0.0) -> PoolReport:
        starved = bool(waits) or was_refused(refused_at)
        to_do = raise_setting(setting, node.settings) if starved else None
        return PoolReport(name, setting, used, node.settings.integer(setting), tuple(waits), starved, to_do)

    refused = node.activity.refused_at
    slow = f"A stage has waited for {tasks.waiting_seconds:.0f} s. {MORE_TASKS}" if tasks.waiting_seconds else None
    return [
        pool("logical replication workers", WORKERS, len(workers), waits=waiting(WORKERS)),
        pool("table syncs of a subscription", SYNC_WORKERS, max(syncs.values(), default=0), waits=waiting(SYNC_WORKERS)),
        pool("replication origins", "max_replication_slots", tracked, waits=without_origin),
        pool("replication slots", "max_replication_slots", len(node.slots.all()), refused_at=node.slots.refused_at),
        pool("walsenders", "max_wal_senders", kinds["walsender"], refused_at=refused.get("walsender", 0.0)),
        pool("connections", "max_connections", kinds["client backend"], refused_at=refused.get("client backend", 0.0)),
        PoolReport("Spark tasks", "spark_master", tasks.running, tasks.places, (), tasks.waiting_seconds > 0, slow),
    ]


def _lacks_origin(subscription: SubscriptionReport) -> bool:
    error = subscription.last_error
    return error is not None and error.message.startswith("could not find free replication state slot")
