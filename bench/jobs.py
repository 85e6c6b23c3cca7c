"""Count the Spark jobs and tasks of each workload of a subscription, and the share of changes that tasks apply.

The counts come from Spark's event log and from the node's status. Called by `__main__` as the part `jobs`. It starts its own node, with
default settings, and its own publisher, because Spark writes one event log for a whole application.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.replication import catch_up, change, fill, one_row_each, pair, prepare, subscribe, wait_synced
from headgate.cli.demo.servers import DemoNode, PostgreSQL

_EVENT_LOG = {"enabled": "'true'", "rolling.enabled": "'false'", "compress": "'false'"}


@dataclass
class Workload:
    """The counts of one workload. `share`: of its changes applied by tasks, None without changes. `jobs`: (jobs, tasks) by kind."""

    name: str
    seconds: float
    share: float | None
    jobs: dict[str, tuple[int, int]]


def measure(root: Path, scale: float) -> Iterator[Workload]:
    """Yield the counts of each workload. `scale`: the share of the full number of rows."""
    events = root / "events"
    events.mkdir()
    settings = {f"spark.eventLog.{name}": value for name, value in _EVENT_LOG.items()} | {"spark.eventLog.dir": f"'file:{events}'"}
    publisher, node = (
        PostgreSQL("publisher", root / "publisher", "postgres"),
        DemoNode("node", root / "node", "postgres", settings=settings),
    )
    times: list[tuple[str, float, float, float | None]] = []
    try:
        for server in (publisher, node):
            server.start()
        rows, backlog = int(1_000_000 * scale), int(500_000 * scale)
        with pair(publisher, node) as (pub, sub, name):
            prepare(pub, sub)
            fill(pub, rows)

            def copy() -> None:
                subscribe(pub, sub, name)
                wait_synced(sub)

            def update_at_once() -> None:
                pub.execute(f"UPDATE accounts SET abalance = abalance + 1 WHERE aid <= {int(130_000 * scale)}")

            def move_keys() -> None:
                pub.execute(f"UPDATE accounts SET aid = -aid WHERE aid BETWEEN {backlog + 1} AND {backlog + int(180_000 * scale)}")

            workloads: dict[str, Callable[[], object]] = {
                "initial copy": copy,
                "backlog of updates, 1,000 a transaction": lambda: catch_up(pub, sub, name, lambda: change(pub, backlog, 0)),
                "backlog of inserts, 1,000 a transaction": lambda: catch_up(pub, sub, name, lambda: fill(pub, backlog, rows + 1, 1000)),
                "updates in one transaction": lambda: catch_up(pub, sub, name, update_at_once),
                "new keys in one transaction": lambda: catch_up(pub, sub, name, move_keys),
                "transactions of one row": lambda: catch_up(pub, sub, name, lambda: one_row_each(pub, int(20_000 * scale), rows + backlog)),
            }
            for workload, run in workloads.items():
                counts_before, began = _applied_changes(node), time.time()
                run()
                driver, spark = (after - before for after, before in zip(_applied_changes(node), counts_before, strict=True))
                times.append((workload, began, time.time(), spark / (driver + spark) if driver + spark else None))
            assert sub.execute("SELECT count(*), sum(abalance) FROM accounts") == pub.execute(
                "SELECT count(*), sum(abalance) FROM accounts"
            )
    finally:
        for server in (node, publisher):
            server.stop()
    [log] = [file for file in events.rglob("*") if file.is_file() and not file.name.endswith(".crc")]
    jobs = [event for event in map(json.loads, log.read_text().splitlines()) if event["Event"] == "SparkListenerJobStart"]
    for workload, began, ended, share in times:
        counts: dict[str, tuple[int, int]] = {}
        for job in jobs:
            if began <= job["Submission Time"] / 1000 < ended:
                kind = _kind((job.get("Properties") or {}).get("spark.job.description") or "other")
                count, tasks = counts.get(kind, (0, 0))
                counts[kind] = count + 1, tasks + sum(stage["Number of Tasks"] for stage in job["Stage Infos"])
        yield Workload(workload, ended - began, share, counts)


def _kind(description: str) -> str:
    """Return the first word of a job's description, which names its purpose."""
    return description.split(maxsplit=1)[0]


def _applied_changes(node: DemoNode) -> tuple[int, int]:
    """Return how many changes the driver and the tasks have applied since the start."""
    command = [sys.executable, "-m", "headgate.cli.main", "status", "-D", str(node.data), "--json"]
    spark = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["spark"]
    return spark["driver_changes"], spark["spark_changes"]
