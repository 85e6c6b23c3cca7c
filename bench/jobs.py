"""Count the Spark jobs, tasks and seconds of each workload of a subscription, and the share of changes that went through tasks.

The counts come from Spark's event log and from the node.

Called by `__main__` as the part `jobs`, with default settings. A node and a publisher of its own are started, since the event log is
written for a whole application.
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
    """The counts of one workload: `share` of its changes by tasks, None without changes; (jobs, tasks) by the description of the jobs."""

    name: str
    seconds: float
    share: float | None
    jobs: dict[str, tuple[int, int]]


def measured(root: Path, scale: float) -> Iterator[Workload]:
    """The workloads, one after the other; `scale` is the share of the full number of rows."""
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

            def copied() -> None:
                subscribe(pub, sub, name)
                wait_synced(sub)

            def one_transaction() -> None:
                pub.execute(f"UPDATE accounts SET abalance = abalance + 1 WHERE aid <= {int(130_000 * scale)}")

            def moved() -> None:
                pub.execute(f"UPDATE accounts SET aid = -aid WHERE aid BETWEEN {backlog + 1} AND {backlog + int(180_000 * scale)}")

            works: dict[str, Callable[[], object]] = {
                "first copy": copied,
                "backlog of updates, 1,000 a transaction": lambda: catch_up(pub, sub, name, lambda: change(pub, backlog, 0)),
                "backlog of inserts, 1,000 a transaction": lambda: catch_up(pub, sub, name, lambda: fill(pub, backlog, rows + 1, 1000)),
                "updates in one transaction": lambda: catch_up(pub, sub, name, one_transaction),
                "new keys in one transaction": lambda: catch_up(pub, sub, name, moved),
                "transactions of one row": lambda: catch_up(pub, sub, name, lambda: one_row_each(pub, int(20_000 * scale), rows + backlog)),
            }
            for what, work in works.items():
                before, began = _changes(node), time.time()
                work()
                driver, spark = (after - first for after, first in zip(_changes(node), before, strict=True))
                times.append((what, began, time.time(), spark / (driver + spark) if driver + spark else None))
            assert sub.execute("SELECT count(*), sum(abalance) FROM accounts") == pub.execute(
                "SELECT count(*), sum(abalance) FROM accounts"
            )
    finally:
        for server in (node, publisher):
            server.stop()
    [log] = [file for file in events.rglob("*") if file.is_file() and not file.name.endswith(".crc")]
    jobs = [event for event in map(json.loads, log.read_text().splitlines()) if event["Event"] == "SparkListenerJobStart"]
    for what, began, ended, share in times:
        found: dict[str, tuple[int, int]] = {}
        for job in jobs:
            if began <= job["Submission Time"] / 1000 < ended:
                kind = _kind((job.get("Properties") or {}).get("spark.job.description") or "other")
                count, tasks = found.get(kind, (0, 0))
                found[kind] = count + 1, tasks + sum(stage["Number of Tasks"] for stage in job["Stage Infos"])
        yield Workload(what, ended - began, share, found)


def _kind(description: str) -> str:
    """The first word of a job's description: what it is for."""
    return description.split(maxsplit=1)[0]


def _changes(node: DemoNode) -> tuple[int, int]:
    """How many changes the driver has applied, and tasks."""
    words = [sys.executable, "-m", "headgate.cli.main", "status", "-D", str(node.data), "--json"]
    spark = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["spark"]
    return spark["driver_changes"], spark["spark_changes"]
