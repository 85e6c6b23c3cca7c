"""What `headgate status` shows of a running node: DIR/headgate.status, JSON, written when SIGUSR1 asks for it.

Keys: time, version, pid, port, started, log_end, trouble (why no connection can be accepted, or null), healthy and problems (`problem`),
threads (`supervision.Health`), obstacles (`supervision.Obstacles`), unreadable (tables), disks, subscriptions (`subscriber.report`), slots,
`pools`, spark (what ran where, the application on a cluster). Metrics are made of the same snapshot. Whoever may signal the process and
read its directory may see it: no connection and no password is needed. The file appears at once whole, unless the disk is full: then it is
written in place, which needs no room, and who reads it meanwhile reads it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import headgate
from headgate.catalog import database as databases
from headgate.errors import disk_full
from headgate.publisher.slots import Live
from headgate.server.monitoring.pool import PoolReport, pools
from headgate.server.monitoring.problem import problems
from headgate.storage.engine import READING
from headgate.subscriber.report import Problem, SubscriptionReport, subscription_report
from headgate.supervision import Health

if TYPE_CHECKING:
    from headgate.server.node import Node

FILE = "headgate.status"
ROOM = 64 << 10
"""Bytes that the file has at least, so that it can be written in place when the disk is full."""


def write(node: Node) -> Path:
    """Writes the file; its path."""
    path = node.data_dir / FILE
    new = path.with_suffix(".status.tmp")
    found = report(node)
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, for its mode)
            file.write(_padded(found))
        new.replace(path)
    except OSError as error:
        if disk_full(error) is None:
            raise
        new.unlink(missing_ok=True)
        content = _padded(found)
        if len(content) > path.stat().st_size:
            content = _padded({**found, "subscriptions": [], "slots": []})
        with path.open("r+b") as file:
            file.write(content.ljust(path.stat().st_size))
    return path


def _padded(found: StatusReport) -> bytes:
    return json.dumps(found).encode().ljust(ROOM)


class SlotReport(TypedDict):
    """A replication slot and who streams from it."""

    name: str
    database: str | None
    state: str
    client: str | None
    address: str | None
    wal_status: str
    invalidation_reason: str | None
    pinned_bytes: int
    confirmed_lsn: str
    lag_bytes: int
    lag_seconds: float | None
    transactions: int
    bytes: int


class ThreadReport(TypedDict):
    """How a supervised thread does (`supervision.Health`)."""

    name: str
    running: bool
    failures: int
    error: str | None


class ObstacleReport(TypedDict):
    """What keeps background work from succeeding (`supervision.Obstacles`)."""

    work: str
    subject: str
    message: str


class UnreadableReport(TypedDict):
    """A table whose files cannot be read, or all of them (the data location), and why."""

    table: str
    message: str


class DiskReport(TypedDict):
    """A file system: the folder of the node that lies on it."""

    name: str
    folder: str
    free_bytes: int


class SparkReport(TypedDict):
    """Where tasks run, how many `executors` a cluster gives (null: the node's own Java runs them), who decoded and merged how much."""

    master: str
    executors: int | None
    ui: str | None
    driver_batches: int
    spark_batches: int
    driver_segments: int
    spark_segments: int
    driver_changes: int
    spark_changes: int


class StatusReport(TypedDict):
    """What a node says of itself, in JSON."""

    time: float
    version: str
    pid: int
    port: int
    started: float
    log_end: str
    trouble: str | None
    healthy: bool
    problems: list[Problem]
    threads: list[ThreadReport]
    obstacles: list[ObstacleReport]
    unreadable: list[UnreadableReport]
    disks: list[DiskReport]
    subscriptions: list[SubscriptionReport]
    slots: list[SlotReport]
    pools: list[PoolReport]
    spark: SparkReport


def report(node: Node) -> StatusReport:
    """The report; see the module."""
    subscriptions = subscription_report(node.launcher)
    obstacles, unreadable = _obstacles(node)
    found: StatusReport = {
        "time": time.time(),
        "version": headgate.__version__,
        "pid": os.getpid(),
        "port": node.port,
        "started": node.started_at,
        "log_end": str(node.engine.log.end),
        "trouble": node.listener.trouble,
        "healthy": True,
        "problems": [],
        "obstacles": obstacles,
        "unreadable": unreadable,
        "disks": _disks(node),
        "threads": [_thread(each) for each in node.background()],
        "subscriptions": subscriptions,
        "slots": _slots(node),
        "pools": pools(node, subscriptions),
        "spark": _spark(node),
    }
    found["problems"] = problems(found)
    found["healthy"] = not found["problems"]
    return found


def _obstacles(node: Node) -> tuple[list[ObstacleReport], list[UnreadableReport]]:
    found: list[ObstacleReport] = []
    unreadable: list[UnreadableReport] = []
    for work, subject, text in node.engine.obstacles.all():
        if isinstance(subject, tuple):
            if subject not in node.engine.visible:  # it was dropped
                continue
            with contextlib.closing(node.catalog.cursor()) as cursor:
                database = databases.find(cursor, subject[0])
            name = node.engine.title(subject) + ("" if database is None else f' of database "{database.name}"')
        else:
            name = subject
        if work == READING:
            unreadable.append({"table": name, "message": text})
        else:
            found.append({"work": work, "subject": name, "message": text})
    if node.engine.lease is not None and node.engine.lease.failure is not None:
        found.append({"work": "renewing", "subject": "lease of the data location", "message": node.engine.lease.failure})
    return found, unreadable


def _disks(node: Node) -> list[DiskReport]:
    folders = {"data_directory": node.data_dir}
    if isinstance(node.engine.base, Path):  # an object store is never full
        folders["tables"] = node.engine.base
    found: list[DiskReport] = []
    for name, folder in folders.items():
        with contextlib.suppress(OSError):  # the table watch tells of it
            space = os.statvfs(folder)
            found.append({"name": name, "folder": str(folder), "free_bytes": space.f_bavail * space.f_frsize})
    return found


def _spark(node: Node) -> SparkReport:
    found = None if node.cluster is None else node.cluster.application
    return {
        "master": node.settings.text("spark_master"),
        "executors": None if found is None else found.executors,
        "ui": node.spark_pages,
        "driver_batches": node.engine.statistics.batches.driver,
        "spark_batches": node.engine.statistics.batches.spark,
        "driver_segments": node.engine.statistics.segments.driver,
        "spark_segments": node.engine.statistics.segments.spark,
        "driver_changes": node.engine.statistics.changes.driver,
        "spark_changes": node.engine.statistics.changes.spark,
    }


def _thread(health: Health) -> ThreadReport:
    return {"name": health.name, "running": health.running, "failures": health.failures, "error": health.error}


def _slots(node: Node) -> list[SlotReport]:
    cursor = node.catalog.cursor()
    try:
        names = {one.oid: one.name for one in databases.all_databases(cursor)}
    finally:
        cursor.close()
    return [_slot(node, live, names.get(live.slot.database)) for live in sorted(node.slots.all(), key=lambda one: one.slot.name)]


def _slot(node: Node, live: Live, database: str | None) -> SlotReport:
    sender = next((one for one in node.senders.all() if one.pid == live.active), None)
    backend = None if live.active is None else node.activity.find(live.active)
    return {
        "name": live.slot.name,
        "database": database,
        "state": "inactive" if live.active is None else "reserved" if sender is None else sender.state.value,
        "client": None if backend is None else backend.application_name,
        "address": None if backend is None else backend.client_addr,
        "wal_status": node.checkpointer.wal_status(live.slot)[0],
        "invalidation_reason": live.slot.invalidation,
        "pinned_bytes": 0 if live.slot.lost else max(0, int(node.engine.log.end) - int(live.slot.restart_lsn)),
        "confirmed_lsn": str(live.slot.confirmed_flush_lsn),
        "lag_bytes": max(0, int(node.engine.log.end) - int(live.slot.confirmed_flush_lsn)),
        "lag_seconds": None if sender is None else sender.flush_lag,
        "transactions": live.counts.total_txns,
        "bytes": live.counts.total_bytes,
    }
