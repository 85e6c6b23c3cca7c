"""What `headgate status` shows of a running node: DIR/headgate.status, JSON, written when SIGUSR1 asks for it.

Keys: time, version, pid, port, started, log_end, trouble (why no connection can be accepted, or null), threads (`supervision.Health`),
subscriptions (`subscriber.report`), slots. Whoever may signal the process and read
its directory may see it: no connection and no password is needed. The file appears at once whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headgate
from headgate.catalog import database as databases
from headgate.publisher.slots import Live
from headgate.subscriber.report import subscription_report

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


def report(node: Node) -> dict[str, Any]:
    """The report; see the module."""
    return {
        "time": time.time(),
        "version": headgate.__version__,
        "pid": os.getpid(),
        "port": node.port,
        "started": node.started_at,
        "log_end": str(node.engine.log.end),
        "trouble": node.listener.trouble,
        "threads": [dataclasses.asdict(each) for each in node.background()],
        "subscriptions": [] if node.launcher is None else subscription_report(node.launcher),
        "slots": _slots(node),
    }


def _slots(node: Node) -> list[dict[str, Any]]:
    cursor = node.catalog.cursor()
    try:
        names = {one.oid: one.name for one in databases.all_databases(cursor)}
    finally:
        cursor.close()
    return [_slot(node, live, names.get(live.slot.database)) for live in sorted(node.slots.all(), key=lambda one: one.slot.name)]


def _slot(node: Node, live: Live, database: str | None) -> dict[str, Any]:
    sender = next((one for one in node.senders.all() if one.pid == live.active), None)
    backend = None if live.active is None else node.activity.find(live.active)
    return {
        "name": live.slot.name,
        "database": database,
        "state": "inactive" if live.active is None else "reserved" if sender is None else sender.state.value,
        "client": None if backend is None else backend.application_name,
        "address": None if backend is None else backend.client_addr,
        "wal_status": node.checkpointer.wal_status(live.slot)[0],
        "pinned_bytes": 0 if live.slot.lost else max(0, int(node.engine.log.end) - int(live.slot.restart_lsn)),
        "confirmed_lsn": str(live.slot.confirmed_flush_lsn),
        "lag_bytes": max(0, int(node.engine.log.end) - int(live.slot.confirmed_flush_lsn)),
        "lag_seconds": None if sender is None else sender.flush_lag,
        "transactions": live.counts.total_txns,
        "bytes": live.counts.total_bytes,
    }
