"""The status of a running node for `headgate status`: DIR/headgate.status, in JSON, written at SIGUSR1.

Keys: time, version, pid, port, started, log_end, trouble (why connections cannot be accepted, or null), healthy and problems (`problem`),
threads (`supervision.Health`), obstacles (`supervision.Obstacles`), unreadable (tables), disks, subscriptions (`subscriber.report`), slots,
`pools`, spark (what ran where, the application on a cluster). Metrics use the same snapshot. A user who may signal the process and read its
directory can read it, without a connection or password. The file is replaced atomically, unless the disk is full. Then it is overwritten in
place, which needs no space, and a reader may have to read it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import headgate
from headgate.catalog import database as databases
from headgate.catalog.replication import origin as origins
from headgate.errors import disk_full
from headgate.publisher.slots import SlotState
from headgate.server.monitoring.problem import problems
from headgate.server.monitoring.snapshot import (
    DiskReport,
    ObstacleReport,
    PoolReport,
    SlotReport,
    SparkReport,
    StatusReport,
    UnreadableReport,
)
from headgate.storage.engine import READING
from headgate.subscriber.advice import raise_setting
from headgate.subscriber.report import subscription_report
from headgate.subscriber.snapshot import SubscriptionReport
from headgate.subscriber.worker_registry import SYNC_WORKERS, WORKERS

if TYPE_CHECKING:
    from headgate.server.node_state import NodeState

MORE_TASKS = (
    "On this node: ALTER SYSTEM SET spark_master = 'local[…]' (a larger number), or on a cluster give it more cores (spark.cores.max),"
    ' and restart it with "headgate restart".'
)
MEMORY = 30.0
"""The seconds for which a refused request counts as starvation. Clients that need a place retry sooner."""


def pools(node: NodeState, subscriptions: Sequence[SubscriptionReport]) -> list[PoolReport]:
    workers = node.workers.all()
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


FILE = "headgate.status"
ROOM = 64 << 10
"""The least size of the file in bytes, so that it can be overwritten in place when the disk is full."""


def write(node: NodeState) -> Path:
    path = node.data_dir / FILE
    new = path.with_suffix(".status.tmp")
    status = report(node)
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, for its mode)
            file.write(_pad(status))
        new.replace(path)
    except OSError as error:
        if disk_full(error) is None:
            raise
        new.unlink(missing_ok=True)
        content = _pad(status)
        if len(content) > path.stat().st_size:
            content = _pad(replace(status, subscriptions=(), slots=()))
        with path.open("r+b") as file:
            file.write(content.ljust(path.stat().st_size))
    return path


def _pad(status: StatusReport) -> bytes:
    return json.dumps(status, default=vars).encode().ljust(ROOM)


def report(node: NodeState) -> StatusReport:
    subscriptions = subscription_report(node.workers)
    obstacles, unreadable = _obstacles(node)
    status = StatusReport(
        time=time.time(),
        version=headgate.__version__,
        pid=os.getpid(),
        port=node.port,
        started=node.started_at,
        log_end=str(node.engine.log.end),
        trouble=node.listener.trouble,
        obstacles=tuple(obstacles),
        unreadable=tuple(unreadable),
        disks=tuple(_disks(node)),
        threads=tuple(thread.health() for thread in node.threads),
        subscriptions=tuple(subscriptions),
        slots=tuple(_slots(node)),
        pools=tuple(pools(node, subscriptions)),
        spark=_spark(node),
    )
    found_problems = tuple(problems(status))
    return replace(status, problems=found_problems, healthy=not found_problems)


def _obstacles(node: NodeState) -> tuple[list[ObstacleReport], list[UnreadableReport]]:
    obstacles: list[ObstacleReport] = []
    unreadable: list[UnreadableReport] = []
    for work, subject, text in node.engine.obstacles.all():
        if isinstance(subject, tuple):
            if subject not in node.engine.tables.visible:  # it was dropped
                continue
            with contextlib.closing(node.catalog.cursor()) as cursor:
                database = databases.find(cursor, subject[0])
            name = node.engine.tables.title(subject) + ("" if database is None else f' of database "{database.name}"')
        else:
            name = subject
        if work == READING:
            unreadable.append(UnreadableReport(name, text))
        else:
            obstacles.append(ObstacleReport(work, name, text))
    if node.engine.lease is not None and node.engine.lease.failure is not None:
        obstacles.append(ObstacleReport("renewing", "lease of the data location", node.engine.lease.failure))
    return obstacles, unreadable


def _disks(node: NodeState) -> list[DiskReport]:
    folders = {"data_directory": node.data_dir}
    if isinstance(node.engine.base, Path):  # an object store does not run full
        folders["tables"] = node.engine.base
    disks: list[DiskReport] = []
    for name, folder in folders.items():
        with contextlib.suppress(OSError):  # the table watch reports it
            space = os.statvfs(folder)
            disks.append(DiskReport(name, str(folder), space.f_bavail * space.f_frsize))
    return disks


def _spark(node: NodeState) -> SparkReport:
    application = None if node.cluster is None else node.cluster.application
    return SparkReport(
        master=node.settings.text("spark_master"),
        executors=None if application is None else application.executors,
        ui=node.spark_pages,
        driver_batches=node.engine.statistics.batches.driver,
        spark_batches=node.engine.statistics.batches.spark,
        driver_segments=node.engine.statistics.segments.driver,
        spark_segments=node.engine.statistics.segments.spark,
        driver_changes=node.engine.statistics.changes.driver,
        spark_changes=node.engine.statistics.changes.spark,
    )


def database_names(node: NodeState) -> dict[int, str]:
    with contextlib.closing(node.catalog.cursor()) as cursor:
        return {database.oid: database.name for database in databases.all_databases(cursor)}


def _slots(node: NodeState) -> list[SlotReport]:
    names = database_names(node)
    return [_slot(node, live, names.get(live.slot.database)) for live in sorted(node.slots.all(), key=lambda live: live.slot.name)]


def _slot(node: NodeState, live: SlotState, database: str | None) -> SlotReport:
    sender = next((sender for sender in node.senders.all() if sender.pid == live.active), None)
    backend = None if live.active is None else node.activity.find(live.active)
    return SlotReport(
        name=live.slot.name,
        database=database,
        state="inactive" if live.active is None else "reserved" if sender is None else sender.state.value,
        client=None if backend is None else backend.application_name,
        address=None if backend is None else backend.client_addr,
        wal_status=node.checkpointer.wal_status(live.slot)[0],
        invalidation_reason=live.slot.invalidation,
        pinned_bytes=0 if live.slot.lost else max(0, int(node.engine.log.end) - int(live.slot.restart_lsn)),
        confirmed_lsn=str(live.slot.confirmed_flush_lsn),
        lag_bytes=max(0, int(node.engine.log.end) - int(live.slot.confirmed_flush_lsn)),
        lag_seconds=None if sender is None else sender.flush_lag,
        transactions=live.counts.total_txns,
        bytes=live.counts.total_bytes,
    )
