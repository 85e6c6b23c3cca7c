"""Measure nodes whose tables are in an object store, with and without a Spark cluster. This is the part `cluster` of `python -m bench`.

It starts one publisher, the store (`object_store`), a node on local disk, a node on the store, a standalone Spark cluster with a node as
its driver, and a node that reaches the store through a proxy that delays each request (`delay`). Each node does the same `work`: the
initial copy of a table, then one large transaction. Before a node is measured, it does the same work with fewer rows to warm up.

If a measurement fails, or takes longer than `TIME_LIMIT`, the report gets a row with the error, and the next measurement begins.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from tests.conftest import until
from tests.object_store import ObjectStore
from tests.spark_cluster import SparkCluster

from bench import cpu_quota, object_store, replication
from bench.cpu_quota import CpuQuota
from bench.delay import Delay
from bench.memory import tree
from bench.replication import catch_up, fill, pair, prepare, subscribe, wait_synced
from headgate.cli.demo.servers import DemoNode, DemoServer, PostgreSQL

EXECUTORS = (1, 2, 4)
SHARE = 0.25
"""The share of a core for an executor. Four executors leave one of two cores to the publisher, the driver and the store."""
WARM_EXECUTORS = 2
"""How often the smaller work is done before executors are measured. Each executor has its own JVM to warm up."""
DELAY_MILLISECONDS = 30
"""Milliseconds by which the proxy of the distant store delays each request."""
RATES = ((1, 30.0), (100, 15.0))
"""(transactions per second, seconds)"""
TIME_LIMIT = 900
"""Seconds that one copy with its transaction, or one run of transactions, may take."""
TOTALS = "SELECT count(*), sum(abalance::bigint) FROM accounts"


class Report(Protocol):
    """The methods of `__main__.Report` that this module uses."""

    def value(self, measurement: str, node: str, target: str) -> None:
        """Add a figure that does not have a counterpart."""

    def beside(self, measurement: str, count: int, base: tuple[str, list[float]], node: tuple[str, list[float]], target: str) -> None:
        """Add the rows per second of two nodes."""


@dataclass(frozen=True)
class Size:
    """The number of rows that are copied, and how many of them one transaction updates."""

    rows: int
    updates: int


WARM = Size(450_000, 250_000)
"""Rows of 128 bytes. They are just enough for a copy by tasks (48 MB), and for a batch with too many keys to send to the stored rows."""


@dataclass(frozen=True)
class Times:
    """Seconds of each copy, and of catching up with each transaction."""

    copies: list[float]
    batches: list[float]


def measure(report: Report, root: Path, size: Size, runs: int) -> None:
    """Run all experiments."""
    source = PostgreSQL("source", root / "source", "postgres")
    store, kind = object_store.started(root / "store")
    report.value("the object store", kind, "")
    try:
        source.start()
        compare_with_local_disk(report, source, store, root, size, runs)
        measure_executors(report, source, store, root, size, runs)
        measure_distant_store(report, source, store, root, size, runs)
    finally:
        source.stop()
        store.end()


def compare_with_local_disk(report: Report, source: DemoServer, store: ObjectStore, root: Path, size: Size, runs: int) -> None:
    """Measure a node on local disk and a node on the store in turn, without a cluster."""
    with attempt(report, "local disk and the store"), node(root, "local", {}) as local, node(root, "stored", store.settings()) as stored:
        for server in (local, stored):
            work(source, server, WARM)
        local_times, store_times = Times([], []), Times([], [])
        for _ in range(runs):
            add(local_times, work(source, local, size))
            add(store_times, work(source, stored, size))
        compare(report, size, ("local disk", local_times), ("store", store_times), "0.7")


def measure_executors(report: Report, source: DemoServer, store: ObjectStore, root: Path, size: Size, runs: int) -> None:
    """Measure a cluster of one, two and four executors. Each has `SHARE` of a core, or a whole core without control groups."""
    spark = SparkCluster(root / "cluster", workers=0)
    settings = {
        "spark_master": f"'{spark.master}'",
        "spark.driver.host": "'127.0.0.1'",
        "small_batch_rows": "0",
        "copy_workers_per_table": str(EXECUTORS[-1]),
        **store.settings(),
    }
    quotas: list[CpuQuota] = []
    limited = cpu_quota.possible()
    report.value("an executor has", f"{SHARE} of a core" if limited else "no limit of CPU", "")
    try:
        join(spark, quotas, 1, limited=limited)
        with attempt(report, "the node on a cluster"), node(root, "driver", settings) as driver:
            base: Times | None = None
            for count in EXECUTORS:
                with attempt(report, f"{count} executors"):
                    join(spark, quotas, count, limited=limited)
                    until(lambda: len(spark.executors()) == len(spark.workers), "the executors have not started", 120)
                    for _ in range(WARM_EXECUTORS):  # each executor gets a range of rows
                        work(source, driver, Size(WARM.rows * count, WARM.updates))
                    times = Times([], [])
                    with shares(quotas):
                        for _ in range(runs):
                            add(times, work(source, driver, size))
                    base = base or times
                    compare(report, size, ("1 executor", base), (f"{count} executors", times), "1.6" if count == 2 else "")
            report.value("batches merged by the cluster's node", merged_batches(driver), "0 by the driver")
    finally:
        spark.end()
        for quota in quotas:
            quota.end()


def join(spark: SparkCluster, quotas: list[CpuQuota], count: int, *, limited: bool) -> None:
    """Add workers until there are `count`. Each gets its own CPU quota if `limited`."""
    while len(spark.workers) < count:
        spark.add_worker()
        if limited:
            quotas.append(CpuQuota(str(len(spark.workers))))
            for pid in tree(spark.workers[-1].pid):
                quotas[-1].add(pid)


@contextmanager
def shares(quotas: list[CpuQuota]) -> Iterator[None]:
    """Limit each executor to `SHARE` of a core inside the block. Outside, they run without a limit, so that they warm up faster."""
    for quota in quotas:
        quota.limit(SHARE)
    try:
        yield
    finally:
        for quota in quotas:
            quota.limit(None)


def measure_distant_store(report: Report, source: DemoServer, store: ObjectStore, root: Path, size: Size, runs: int) -> None:
    """Measure a node without a cluster, behind a proxy that first does not delay requests and then delays each."""
    delay = Delay(store.port)
    settings = store.settings() | {"data_location_endpoint": f"'http://127.0.0.1:{delay.port}'"}
    try:
        with attempt(report, "the node of a distant store"), node(root, "distant", settings) as distant:
            work(source, distant, WARM)
            copies = []
            for delay.milliseconds in (0, DELAY_MILLISECONDS):
                for rate, seconds in RATES:
                    with attempt(report, f"{rate} transactions a second, {delay.milliseconds:.0f} ms a request"):
                        measure_latency(report, source, distant, delay, rate, seconds)
                times = Times([], [])
                for _ in range(runs):
                    add(times, work(source, distant, size))
                copies.append(times)
            compare(report, size, ("0 ms a request", copies[0]), (f"{DELAY_MILLISECONDS} ms a request", copies[1]), "")
    finally:
        delay.end()


def work(source: DemoServer, node: DemoServer, size: Size) -> tuple[float, float]:
    """Return the seconds of the initial copy of a table, and of catching up with one transaction on it."""
    with limit(TIME_LIMIT), pair(source, node) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, size.rows, step=1_000_000)
        pub.execute("VACUUM ANALYZE accounts")
        began = time.perf_counter()
        subscribe(pub, sub, name)
        wait_synced(sub)
        copy_seconds = time.perf_counter() - began
        cost = catch_up(pub, sub, name, lambda: pub.execute(f"UPDATE accounts SET abalance = aid WHERE aid <= {size.updates}"))
        assert sub.execute(TOTALS) == pub.execute(TOTALS), "the copies differ"
        return copy_seconds, cost.seconds


def measure_latency(report: Report, source: DemoServer, node: DemoServer, delay: Delay, rate: int, seconds: float) -> None:
    """Measure the time from COMMIT until the change is visible on the node, and the requests to the store for each commit."""
    with limit(TIME_LIMIT):
        requests_before = delay.requests
        milliseconds = replication.latency(source, node, rate, seconds)
        requests = (delay.requests - requests_before) / len(milliseconds)
    measurement = f"commit to visible at {rate}/s, {delay.milliseconds:.0f} ms a request"
    figure = f"{replication.percentiles(milliseconds)}; {requests:.1f} requests a commit"
    report.value(measurement, figure, "p50 <= 1.5 s" if delay.milliseconds else "")


def add(times: Times, seconds: tuple[float, float]) -> None:
    """Add the (copy, transaction) seconds of one run."""
    times.copies.append(seconds[0])
    times.batches.append(seconds[1])


def compare(report: Report, size: Size, base: tuple[str, Times], node: tuple[str, Times], target: str) -> None:
    """Add a row to the report for the copy, and one for the transaction. `base` and `node` have a name and times."""
    (base_name, base_times), (name, times) = base, node
    report.beside(f"{name}: copy of {size.rows:,} rows", size.rows, (base_name, base_times.copies), (name, times.copies), target)
    measurement = f"{name}: {size.updates:,} updates in one transaction"
    report.beside(measurement, size.updates, (base_name, base_times.batches), (name, times.batches), target)


def merged_batches(node: DemoServer) -> str:
    """Return how many batches executors and the driver have merged, from the node's status."""
    command = [sys.executable, "-m", "headgate.cli.main", "status", "-D", str(node.data), "--json"]
    spark = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)["spark"]
    return f"{spark['spark_batches']} by executors, {spark['driver_batches']} by the driver"


@contextmanager
def node(root: Path, name: str, settings: dict[str, str]) -> Iterator[DemoServer]:
    """Start a node with these settings, and stop it at the end of the block."""
    server = DemoNode(name, root / name, "postgres", settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def attempt(report: Report, measurement: str) -> Iterator[None]:
    """Report an error inside the block as a row, and continue after the block."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (any error is reported, and the next measurement begins)
        detail = getattr(error, "detail", None)
        report.value(measurement, f"FAILED, {type(error).__name__}: {error}" + (f" ({detail})" if detail else ""), "")


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after `seconds` in the block, and again each minute, in case cleaning up takes long too."""

    def raise_timeout(_: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds, 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
