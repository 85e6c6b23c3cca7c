"""What `headgate status` shows of a running node: DIR/headgate.status, JSON, written when SIGUSR1 asks for it.

Keys: time, version, pid, port, started, log_end, trouble (why no connection can be accepted, or null), threads (`supervision.Health`),
subscriptions (`subscriber.report`), slots, `pools`, spark (what ran where, the application on a cluster). Whoever may signal the process
and read its directory may see it: no connection and no password is needed. The file appears at once whole.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import headgate
from headgate.catalog import database as databases
from headgate.publisher.slots import Live
from headgate.server.monitoring.pool import PoolReport, pools
from headgate.subscriber.report import SubscriptionReport, subscription_report
from headgate.supervision import Health

if TYPE_CHECKING:
    from headgate.server.node import Node

FILE = "headgate.status"


def write(node: Node) -> Path:
    """Writes the file; its path."""
    path = node.data_dir / FILE
    new = path.with_suffix(".status.tmp")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 (a descriptor, for its mode)
        json.dump(report(node), file)
    new.replace(path)
    return path


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


class SparkReport(TypedDict):
    """Where tasks run, how many `executors` a cluster gives (null: the node's own Java runs them), who decoded and merged how much."""

    master: str
    executors: int | None
    ui: str | None
    driver_batches: int
    spark_batches: int
    driver_segments: int
    spark_segments: int


class StatusReport(TypedDict):
    """What a node says of itself, in JSON."""

    time: float
    version: str
    pid: int
    port: int
    started: float
    log_end: str
    trouble: str | None
    threads: list[ThreadReport]
    subscriptions: list[SubscriptionReport]
    slots: list[SlotReport]
    pools: list[PoolReport]
    spark: SparkReport


def report(node: Node) -> StatusReport:
    """The report; see the module."""
    subscriptions = subscription_report(node.launcher)
    return {
        "time": time.time(),
        "version": headgate.__version__,
        "pid": os.getpid(),
        "port": node.port,
        "started": node.started_at,
        "log_end": str(node.engine.log.end),
        "trouble": node.listener.trouble,
        "threads": [_thread(each) for each in node.background()],
        "subscriptions": subscriptions,
        "slots": _slots(node),
        "pools": pools(node, subscriptions),
        "spark": _spark(node),
    }


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
