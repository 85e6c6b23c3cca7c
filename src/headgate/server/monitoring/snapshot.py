"""The state of a node at one moment, as data. `status_report` fills it; `headgate status`, JSON and metrics render it.

`load` reads it from JSON. The module imports only data classes, because the command line loads it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from headgate.subscriber.snapshot import Problem, SubscriptionReport
from headgate.supervision import Health


@dataclass(frozen=True)
class SlotReport:
    """A replication slot, and the client that streams from it."""

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


@dataclass(frozen=True)
class PoolReport:
    """A bounded pool. `waiting` names the subscriptions whose workers wait for a place; `to_do` is None unless the pool is starved."""

    name: str
    setting: str
    used: int
    limit: int
    waiting: tuple[str, ...]
    starved: bool
    to_do: str | None


@dataclass(frozen=True)
class ObstacleReport:
    """The reason why background work does not succeed (`supervision.Obstacles`)."""

    work: str
    subject: str
    message: str


@dataclass(frozen=True)
class UnreadableReport:
    """A table whose files cannot be read (or the whole data location), and the reason."""

    table: str
    message: str


@dataclass(frozen=True)
class DiskReport:
    """A file system, with the folder of the node that lies on it."""

    name: str
    folder: str
    free_bytes: int


@dataclass(frozen=True)
class SparkReport:
    """Where Spark tasks run, and how many batches, segments and changes the driver and Spark have processed.

    `executors` is the number of executors on a cluster; None if the node's own JVM runs the tasks.
    """

    master: str
    executors: int | None
    ui: str | None
    driver_batches: int
    spark_batches: int
    driver_segments: int = 0
    spark_segments: int = 0
    driver_changes: int = 0
    spark_changes: int = 0


@dataclass(frozen=True, kw_only=True)
class StatusReport:
    """The status of a node. A node of an earlier version may omit the fields that have a default."""

    time: float
    log_end: str
    subscriptions: tuple[SubscriptionReport, ...]
    slots: tuple[SlotReport, ...]
    version: str = ""
    pid: int = 0
    port: int = 0
    started: float = 0.0
    trouble: str | None = None
    healthy: bool | None = None
    problems: tuple[Problem, ...] = ()
    threads: tuple[Health, ...] = ()
    obstacles: tuple[ObstacleReport, ...] = ()
    unreadable: tuple[UnreadableReport, ...] = ()
    disks: tuple[DiskReport, ...] = ()
    pools: tuple[PoolReport, ...] = ()
    spark: SparkReport | None = None


Document = Mapping[str, Any]
"""A report in JSON form."""


def load(document: Document) -> StatusReport:
    """Return the report in a JSON document. Unknown keys are ignored."""
    report: StatusReport = _load(StatusReport, document)
    return report


def _load(kind: Any, value: Any) -> Any:
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _load(hint, value[name]) for name, hint in hints.items() if name in value})  # type: ignore[operator]
    if typing.get_origin(kind) is types.UnionType and value is not None:
        return _load(typing.get_args(kind)[0], value)
    if typing.get_origin(kind) is tuple:
        return tuple(_load(typing.get_args(kind)[0], item) for item in value)
    return value
