"""Nodes whose tables lie in an object store, alone and with a Spark cluster: the part `cluster` of `python -m bench`.

Everything is started here, beside one publisher: the store (`object_store`), a node on local disk and one on the store, a standalone
Spark cluster with the node that is its driver, and a node that reaches the store through a proxy which has each request wait (`delay`).
Each does the same `work`: the first copy of a table, then one large transaction. Before it is measured, a node does so with fewer rows.

A measurement that fails, or takes longer than `LONGEST`, is a row of the report that says so, and the next one begins.
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
"""Of a core, for an executor: four of them leave one of two cores to the publisher, the driver and the store."""
WARM_EXECUTORS = 2
"""Times that the small work is done before executors are measured: each has a Java of its own."""
FAR = 30
"""Milliseconds that each request waits for a store that is far."""
RATES = ((1, 30.0), (100, 15.0))
"""Transactions a second, and for how many seconds."""
LONGEST = 900
"""Seconds that one copy with its batch may take, or one run of transactions."""
TOTALS = "SELECT count(*), sum(abalance::bigint) FROM accounts"


class Report(Protocol):
    """What `__main__` prints."""

    def value(self, what: str, node: str, wanted: str) -> None:
        """A figure that has no counterpart."""

    def beside(self, what: str, count: int, base: tuple[str, list[float]], node: tuple[str, list[float]], wanted: str) -> None:
        """Rows per second of two nodes, from seconds."""


@dataclass(frozen=True)
class Size:
    """How many rows are copied, how many of them one transaction updates."""

    rows: int
    updates: int


WARM = Size(450_000, 250_000)
"""Rows of 128 bytes: just enough for a copy by tasks (48 MB), and for a batch whose keys are too many to be sent to the stored rows."""


@dataclass(frozen=True)
class Taken:
    """Seconds of the copies, and of catching up with the transactions."""

    copies: list[float]
    batches: list[float]


def measure(report: Report, root: Path, size: Size, runs: int) -> None:
    """All of it."""
    source = PostgreSQL("source", root / "source", "postgres")
    store, kind = object_store.started(root / "store")
    report.value("the object store", kind, "")
    try:
        source.start()
        beside_local_disk(report, source, store, root, size, runs)
        by_executors(report, source, store, root, size, runs)
        from_far(report, source, store, root, size, runs)
    finally:
        source.stop()
        store.end()


def beside_local_disk(report: Report, source: DemoServer, store: ObjectStore, root: Path, size: Size, runs: int) -> None:
    """Without a cluster: local disk and the store in turn."""
    with attempt(report, "local disk and the store"), node(root, "local", {}) as here, node(root, "stored", store.settings()) as there:
        for each in (here, there):
            work(source, each, WARM)
        near, far = Taken([], []), Taken([], [])
        for _ in range(runs):
            add(near, work(source, here, size))
            add(far, work(source, there, size))
        compare(report, size, ("local disk", near), ("store", far), "0.7")


def by_executors(report: Report, source: DemoServer, store: ObjectStore, root: Path, size: Size, runs: int) -> None:
    """On a cluster of one executor, of two, of four, each of one core or of a share of one, which join one after the other."""
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
    report.value("an executor has", f"{SHARE} of a core" if limited else "what it gets of the cores", "")
    try:
        join(spark, quotas, 1, limited=limited)
        with attempt(report, "the node on a cluster"), node(root, "driver", settings) as driver:
            one: Taken | None = None
            for count in EXECUTORS:
                with attempt(report, f"{count} executors"):
                    join(spark, quotas, count, limited=limited)
                    until(lambda: len(spark.executors()) == len(spark.workers), "the executors do not start", 120)
                    for _ in range(WARM_EXECUTORS):  # enough for a range for each
                        work(source, driver, Size(WARM.rows * count, WARM.updates))
                    taken = Taken([], [])
                    with shares(quotas):
                        for _ in range(runs):
                            add(taken, work(source, driver, size))
                    one = one or taken
                    compare(report, size, ("1 executor", one), (f"{count} executors", taken), "1.6" if count == 2 else "")
            report.value("batches that the cluster's node has merged", merged(driver), "0 by the driver")
    finally:
        spark.end()
        for quota in quotas:
            quota.end()


def join(spark: SparkCluster, quotas: list[CpuQuota], count: int, *, limited: bool) -> None:
    """Adds workers until there are so many, each with a quota of its own."""
    while len(spark.workers) < count:
        spark.add_worker()
        if limited:
            quotas.append(CpuQuota(str(len(spark.workers))))
            for pid in tree(spark.workers[-1].pid):
                quotas[-1].add(pid)


@contextmanager
def shares(quotas: list[CpuQuota]) -> Iterator[None]:
    """Inside, each has its share of a core; before and behind, what it takes, so that Java gets warm."""
    for quota in quotas:
        quota.limit(SHARE)
    try:
        yield
    finally:
        for quota in quotas:
            quota.limit(None)


def from_far(report: Report, source: DemoServer, store: ObjectStore, root: Path, size: Size, runs: int) -> None:
    """Without a cluster, by a proxy that has no request wait, then each of them."""
    delay = Delay(store.port)
    settings = store.settings() | {"data_location_endpoint": f"'http://127.0.0.1:{delay.port}'"}
    try:
        with attempt(report, "the node of a far store"), node(root, "far", settings) as there:
            work(source, there, WARM)
            copies = []
            for delay.milliseconds in (0, FAR):
                for rate, seconds in RATES:
                    with attempt(report, f"{rate} transactions a second, {delay.milliseconds:.0f} ms a request"):
                        visible(report, source, there, delay, rate, seconds)
                taken = Taken([], [])
                for _ in range(runs):
                    add(taken, work(source, there, size))
                copies.append(taken)
            compare(report, size, ("0 ms a request", copies[0]), (f"{FAR} ms a request", copies[1]), "")
    finally:
        delay.end()


def work(source: DemoServer, node: DemoServer, size: Size) -> tuple[float, float]:
    """Seconds of the first copy of a table, and of catching up with one transaction on it."""
    with limit(LONGEST), pair(source, node) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, size.rows, step=1_000_000)
        pub.execute("VACUUM ANALYZE accounts")
        began = time.perf_counter()
        subscribe(pub, sub, name)
        wait_synced(sub)
        copied = time.perf_counter() - began
        changed = catch_up(pub, sub, name, lambda: pub.execute(f"UPDATE accounts SET abalance = aid WHERE aid <= {size.updates}"))
        assert sub.execute(TOTALS) == pub.execute(TOTALS), "the copies differ"
        return copied, changed.seconds


def visible(report: Report, source: DemoServer, node: DemoServer, delay: Delay, rate: int, seconds: float) -> None:
    """From COMMIT until the node has it, and how many requests there were for one."""
    with limit(LONGEST):
        before = delay.requests
        taken = replication.latency(source, node, rate, seconds)
        requests = (delay.requests - before) / len(taken)
    what = f"commit to visible at {rate}/s, {delay.milliseconds:.0f} ms a request"
    report.value(what, f"{replication.percentiles(taken)}; {requests:.1f} requests a commit", "p50 <= 1.5 s" if delay.milliseconds else "")


def add(taken: Taken, seconds: tuple[float, float]) -> None:
    """One more run."""
    taken.copies.append(seconds[0])
    taken.batches.append(seconds[1])


def compare(report: Report, size: Size, base: tuple[str, Taken], node: tuple[str, Taken], wanted: str) -> None:
    """Two rows: the copy and the transaction."""
    (one, these), (other, those) = base, node
    report.beside(f"{other}: copy of {size.rows:,} rows", size.rows, (one, these.copies), (other, those.copies), wanted)
    what = f"{other}: {size.updates:,} updates in one transaction"
    report.beside(what, size.updates, (one, these.batches), (other, those.batches), wanted)


def merged(node: DemoServer) -> str:
    """How many batches were merged by whom, as the node's status says."""
    command = [sys.executable, "-m", "headgate.cli.main", "status", "-D", str(node.data), "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)["spark"]
    return f"{said['spark_batches']} by executors, {said['driver_batches']} by the driver"


@contextmanager
def node(root: Path, name: str, settings: dict[str, str]) -> Iterator[DemoServer]:
    """A node with these settings, which ends behind it."""
    made = DemoNode(name, root / name, "postgres", settings=settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@contextmanager
def attempt(report: Report, what: str) -> Iterator[None]:
    """What fails inside is told, and does not end the run."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (whatever it is, the next one begins)
        detail = getattr(error, "detail", None)
        report.value(what, f"FAILED, {type(error).__name__}: {error}" + (f" ({detail})" if detail else ""), "")


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """TimeoutError for what takes longer; once a minute again, for what clears up behind it."""

    def over(_: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
