"""Measure a node with each compiler of the JVM, and with Spark's adaptive execution on and off.

Called by `__main__` as the part `java`. A way is a combination of settings. Each way has its own node, in turn, and all share one
publisher. The seconds of CPU are those of the JVM and of its children (Spark's Python workers). Other work on the machine changes them
less than the elapsed seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.cost import cpu, java_pid
from bench.memory import proportional
from bench.replication import catch_up, fill, pair, prepare, subscribe, wait_synced
from headgate.cli.demo.servers import DemoNode, PostgreSQL

LOOK_UPS, QUERIES, LATER_QUERIES, BATCHES = 10, 8, 40, 3
SETTLE_SECONDS = 10.0
"""Time after a start during which the node warms up (`warm_up`)."""
WAYS = {
    "c1": {"spark_driver_jit": "c1"},
    "tiered": {"spark_driver_jit": "tiered"},
    "c1, adaptive": {"spark_driver_jit": "c1", "spark.sql.adaptive.enabled": "'true'"},
    "tiered, adaptive": {"spark_driver_jit": "tiered", "spark.sql.adaptive.enabled": "'true'"},
}


@dataclass(frozen=True)
class Figure:
    """The CPU seconds and the median elapsed seconds of one piece of work, and the JVM's memory in bytes after it."""

    way: str
    work: str
    cpu: float
    seconds: float
    memory: int


def measure(root: Path, scale: float, ways: list[str]) -> Iterator[Figure]:
    """Yield the figures of each way. `scale`: the share of the full number of rows."""
    publisher = PostgreSQL("publisher", root / "publisher", "postgres")
    try:
        publisher.start()
        for number, way in enumerate(ways):
            settings = WAYS[way] | {"spark_master": "'local[2]'", "driver_query_memory": "0"}
            node = DemoNode("node", root / f"node{number}", "postgres", settings=settings)
            try:
                yield from _measure_way(way, publisher, node, scale)
            finally:
                node.stop()
    finally:
        publisher.stop()


def _measure_way(way: str, publisher: PostgreSQL, node: DemoNode, scale: float) -> Iterator[Figure]:
    began = time.perf_counter()
    node.start()
    started = time.perf_counter() - began
    time.sleep(SETTLE_SECONDS)
    java = java_pid(node)
    yield Figure(way, "start, with its warm-up", cpu(java), started, proportional(java))

    def figure(work: str, times: int, run: Callable[[], float]) -> Figure:
        cpu_before, seconds = cpu(java), [run() for _ in range(times)]
        return Figure(way, work, (cpu(java) - cpu_before) / times, statistics.median(seconds), proportional(java))

    rows, updates = int(1_000_000 * scale), int(130_000 * scale)
    with pair(publisher, node) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, rows)
        subscribe(pub, sub, name)
        wait_synced(sub)
        with psycopg.connect(sub.conninfo, autocommit=True, prepare_threshold=None) as session:

            def query(text: str) -> float:
                began = time.perf_counter()
                session.execute(text.encode()).fetchall()
                return time.perf_counter() - began

            ranges = "SELECT bid, count(*), sum(aid) FROM accounts WHERE aid BETWEEN 5 AND 500 GROUP BY bid"
            yield figure(f"first {LOOK_UPS} ranges of 496 rows, each", LOOK_UPS, lambda: query(ranges))
            groups = "SELECT count(*) FROM (SELECT aid % 100000 AS g, count(*), sum(bid) FROM accounts GROUP BY aid % 100000) s"
            yield figure(f"GROUP BY of {rows:,} rows, first {QUERIES}, each", QUERIES, lambda: query(groups))
            yield figure(f"GROUP BY of {rows:,} rows, next {LATER_QUERIES}, each", LATER_QUERIES, lambda: query(groups))
            # the planner cannot estimate that the condition leaves one row
            joined = "SELECT count(*) FROM accounts a JOIN accounts b ON a.aid = b.aid + 1 WHERE b.filler || b.aid = 'filler7'"
            yield figure(f"join of {rows:,} rows with one of as many, {QUERIES} times, each", QUERIES, lambda: query(joined))
        update = f"UPDATE accounts SET abalance = abalance + 1 WHERE aid <= {updates}"
        yield figure(
            f"{updates:,} updates by tasks, {BATCHES} times, each",
            BATCHES,
            lambda: catch_up(pub, sub, name, lambda: pub.execute(update)).seconds,
        )
