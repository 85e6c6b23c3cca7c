"""`python -m bench`: measures a node beside native PostgreSQL in one run and prints ratios of medians.

Servers: two PostgreSQL clusters and one node, all started here, all on this machine. Every measurement alternates
native and node, `--runs` times. Filters are measured on a Spark session and a PostgreSQL of their own, beside Spark's
own expressions; the part `cluster` has servers of its own. The figures that are kept stand in bench/README.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psycopg
from rich.console import Console
from rich.table import Table

from bench import busy, catalogs, compare, driver_memory, gate, hostile, java, jobs, replication, sessions, tables, triggers, wide
from bench import filter as filters
from bench import source as source_rates
from bench.cost import Cost, server_pid
from bench.memory import Peak
from headgate.cli.demo.servers import DemoNode, DemoServer, PostgreSQL

T = TypeVar("T")
console = Console()


class Report:
    """Collects rows of (what, native, node, ratio, wanted)."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def rate(self, what: str, count: int, native: list[float], node: list[float], wanted: float) -> None:
        """Rows per second of both, from seconds."""
        fast, ours = count / statistics.median(native), count / statistics.median(node)
        self.rows.append(
            {"what": what, "native": f"{fast:,.0f}/s", "node": f"{ours:,.0f}/s", "ratio": round(ours / fast, 3), "wanted": wanted}
        )
        console.print(self.rows[-1])

    def cost(
        self, what: str, count: int, native: list[Cost], node: list[Cost], wanted: float, *, publisher: bool = False, cpu: str = ""
    ) -> None:
        """Report rows per second of both, and the seconds of CPU per million rows. `publisher`: of the publishers, not the subscribers."""
        self.rate(what, count, [cost.seconds for cost in native], [cost.seconds for cost in node], wanted)
        first, ours = (
            statistics.median((cost.publisher if publisher else cost.subscriber) * 1e6 / count for cost in costs)
            for costs in (native, node)
        )
        shown = {"native": f"{first:.2f} s", "node": f"{ours:.2f} s"}
        self.rows.append({"what": f"{what}: CPU per million", **shown, "ratio": round(ours / max(first, 0.01), 2), "wanted": cpu})
        console.print(self.rows[-1])

    def beside_spark(self, what: str, count: int, native: list[float], spark: list[float], node: list[float], wanted: str) -> None:
        """Rows per second of PostgreSQL, of Spark's own expression and of a node's, from seconds; the ratio is to Spark."""
        postgresql, plain, ours = (count / statistics.median(each) for each in (native, spark, node))
        shown = f"PostgreSQL {postgresql:,.0f}/s, Spark {plain:,.0f}/s"
        self.rows.append({"what": what, "native": shown, "node": f"{ours:,.0f}/s", "ratio": round(ours / plain, 3), "wanted": wanted})
        console.print(self.rows[-1])

    def beside(self, what: str, count: int, base: tuple[str, list[float]], node: tuple[str, list[float]], wanted: str) -> None:
        """Rows per second of a node beside those of another one, from seconds."""
        first, ours = (count / statistics.median(seconds) for _, seconds in (base, node))
        shown = {"native": f"{base[0]}: {first:,.0f}/s", "node": f"{ours:,.0f}/s"}
        self.rows.append({"what": what, **shown, "ratio": round(ours / first, 2), "wanted": wanted})
        console.print(self.rows[-1])

    def duration(self, what: str, native: float, node: float, wanted: str) -> None:
        """Milliseconds of both."""
        shown = {"native": f"{native:,.1f} ms", "node": f"{node:,.0f} ms"}
        self.rows.append({"what": what, **shown, "ratio": round(node / native, 1), "wanted": wanted})
        console.print(self.rows[-1])

    def value(self, what: str, node: str, wanted: str) -> None:
        """A figure that has no native counterpart."""
        self.rows.append({"what": what, "native": "", "node": node, "ratio": "", "wanted": wanted})
        console.print(self.rows[-1])

    def print(self) -> None:
        """The table for a person."""
        table = Table(title="headgate beside native PostgreSQL, medians")
        for name in ("what", "native", "node", "ratio", "wanted"):
            table.add_column(name)
        for row in self.rows:
            table.add_row(*(str(value) for value in row.values()))
        console.print(table)


def alternate(runs: int, native: Callable[[], T], node: Callable[[], T]) -> tuple[list[T], list[T]]:
    """Runs both in turn, so that what else the machine does falls on both."""
    pairs = [(native(), node()) for _ in range(runs)]
    return [first for first, _ in pairs], [second for _, second in pairs]


def measure(report: Report, options: argparse.Namespace, source: DemoServer, native: DemoServer, node: DemoNode) -> None:
    """All measurements that were asked for."""
    scale, runs, only = options.scale, options.runs, options.only.split(",")
    rows = int(2_000_000 * scale)
    inserts, updates, deletes = int(500_000 * scale), int(300_000 * scale), int(200_000 * scale)
    if "copy" in only:
        times = alternate(runs, lambda: replication.copy_cost(source, native, rows), lambda: replication.copy_cost(source, node, rows))
        report.cost(f"initial copy of {rows:,} rows, PostgreSQL → node", rows, *times, wanted=0.45, cpu="2.2 s")
        fifth = "WHERE (aid % 5 = 0)"
        times = alternate(
            runs, lambda: replication.copy_cost(source, native, rows, fifth), lambda: replication.copy_cost(source, node, rows, fifth)
        )
        report.cost(f"the same through {fifth}", rows, *times, wanted=0.6)
    measure_streams(report, only, source, native, node, (inserts, updates, deletes), runs)
    if "publish" in only:
        times = alternate(
            runs, lambda: replication.copy_cost(source, native, inserts), lambda: replication.copy_cost(node, native, inserts)
        )
        report.cost(f"initial copy of {inserts:,} rows, node → PostgreSQL", inserts, *times, wanted=1 / 10, publisher=True)
        few = (inserts // 5, updates // 5, deletes // 5)
        first, second = alternate(
            runs, lambda: replication.stream_costs(source, native, *few), lambda: replication.stream_costs(node, native, *few)
        )
        for place, (what, count) in enumerate(((f"{few[0]:,} inserts", few[0]), ("updates and deletes", sum(few[1:])))):
            costs = ([run[place] for run in side] for side in (first, second))
            report.cost(f"stream of {what}, node → PostgreSQL", count, *costs, wanted=1 / 6, publisher=True)
    if "small" in only:
        measure_small(report, source, native, node, int(20_000 * scale), (int(1_000_000 * scale), int(10_000_000 * scale)), runs)
    if "batches" in only:
        measure_batches(report, source, node, int(1_000_000 * scale), int(10_000 * scale))
    if "gate" in only:
        measure_gate(report, native, node, int(1_000_000 * scale), runs)
    if "sessions" in only:
        measure_sessions(report, native, node, int(1_000_000 * scale))
    parts: dict[str, Callable[[], None]] = {
        "tables": lambda: measure_tables(report, source, node, int(2_000 * scale)),
        "busy": lambda: measure_busy(report, source, node, int(1_000 * scale)),
        "memory": lambda: measure_memory(report, source, node, int(10_000_000 * scale)),
        "hostile": lambda: measure_hostile(report, native, node, 120 * scale),
        "source": lambda: measure_source(report, node, int(1_000_000 * scale), runs),
        "catalogs": lambda: measure_catalogs(report, native, node, (10, int(1_000 * scale))),
    }
    for name, measured in parts.items():
        if name in only:
            measured()
    if "triggers" in only:
        measure_triggers(report, source, native, node, int(20_000 * scale), runs)
    if "compare" in only:
        measure_compare(report, source, native, node, int(10_000_000 * scale), runs)
    if "wide" in only:
        measure_wide(report, options, source, native, node)
    if "latency" in only:
        for rate, seconds in ((1, 30.0), (100, 15.0)):
            ms = replication.latency(source, node, rate, seconds)
            report.value(f"commit to visible at {rate}/s", replication.percentiles(ms), "p50 < 2.5 s")


def measure_memory(report: Report, source: DemoServer, node: DemoNode, changes: int) -> None:
    """The memory of the driver while one transaction is applied."""
    memory = driver_memory.measured(source, node, changes)
    for what, idle, peak in zip(("Python", "Java"), memory.idle, memory.peak, strict=True):
        shown = f"{idle / 2**20:,.0f} MiB idle, {(peak - idle) / 2**20:+,.0f} MiB at most"
        report.value(f"{what} of the driver, {changes:,} updates in one transaction", f"{shown}, {memory.seconds:.0f} s", "300 MB, both")


def measure_source(report: Report, node: DemoServer, rows: int, runs: int) -> None:
    """Published changes as Arrow."""
    for what, rates in source_rates.rates(node, rows, runs).items():
        report.value(f"{rows:,} changes as Arrow: {what}", f"{statistics.median(rates):,.0f}/s", "1,200,000/s")


def measure_triggers(report: Report, source: DemoServer, native: DemoServer, node: DemoServer, rows: int, runs: int) -> None:
    """Applied rows a second of tables with a trigger."""
    for case in triggers.CASES:
        few = rows if case.wanted >= 1_000 else rows // 10
        measured = functools.partial(triggers.seconds, source, case=case, rows=few)
        first, second = alternate(runs, functools.partial(measured, native), functools.partial(measured, node))
        for place, word in enumerate(("INSERT", "UPDATE")):
            what = f"applied {word}s of a table with {case.name} (wanted {case.wanted:,}/s)"
            report.rate(what, few, [times[place] for times in first], [times[place] for times in second], wanted=0)


def measure_sessions(report: Report, native: DemoServer, node: DemoServer, rows: int) -> None:
    """Single statements on a table, through one connection each."""
    fast, ours = sessions.milliseconds(native, rows), sessions.milliseconds(node, rows)
    for what, wanted in sessions.WANTED.items():
        report.duration(f"{what}, {rows:,} rows", fast[what], ours[what], wanted)


def measure_hostile(report: Report, native: DemoServer, node: DemoServer, seconds: float) -> None:
    """The waits of one ordinary client beside eight hostile sessions."""
    for name, server in (("native", native), ("node", node)):
        waits = hostile.waits(server, seconds)
        shown = f"worst {waits[-1]:.2f} s, {replication.percentiles([1000 * each for each in waits])}"
        report.value(f"{name}: {len(waits):,} statements beside eight hostile sessions", shown, hostile.WANTED)


def measure_streams(
    report: Report, only: list[str], source: DemoServer, native: DemoServer, node: DemoServer, sizes: tuple[int, int, int], runs: int
) -> None:
    """Catching up, beside PostgreSQL and with a history."""
    if "stream" in only:
        measure_stream(report, source, native, node, sizes, runs)
    if "history" in only:
        measure_history(report, source, node, sizes, runs)


def measure_stream(
    report: Report, source: DemoServer, native: DemoServer, node: DemoServer, sizes: tuple[int, int, int], runs: int
) -> None:
    """Catching up with inserts, then with updates and deletes."""
    inserts, updates, deletes = sizes
    first, second = alternate(
        runs, lambda: replication.stream_costs(source, native, *sizes), lambda: replication.stream_costs(source, node, *sizes)
    )
    report.cost(f"catch-up of {inserts:,} inserts", inserts, [t[0] for t in first], [t[0] for t in second], 1 / 4, cpu="3.0 s")
    what = f"catch-up of {updates:,} updates and {deletes:,} deletes"
    report.cost(what, updates + deletes, [t[1] for t in first], [t[1] for t in second], 1 / 6, cpu="7.0 s")


def measure_history(report: Report, source: DemoServer, node: DemoServer, sizes: tuple[int, int, int], runs: int) -> None:
    """Measure catching up without a history (shown as "native") and with one."""
    replication.stream_costs(source, node, *sizes)  # the node is warm
    first, second = alternate(
        runs,
        lambda: replication.stream_costs(source, node, *sizes),
        lambda: replication.stream_costs(source, node, *sizes, "WITH (history = true)"),
    )
    inserts, updates, deletes = sizes
    report.cost(f"catch-up of {inserts:,} inserts, with history", inserts, [t[0] for t in first], [t[0] for t in second], 0.75)
    what = f"catch-up of {updates:,} updates and {deletes:,} deletes, with history"
    report.cost(what, updates + deletes, [t[1] for t in first], [t[1] for t in second], 0.75)


def measure_small(
    report: Report, source: DemoServer, native: DemoServer, node: DemoServer, transactions: int, sizes: tuple[int, int], runs: int
) -> None:
    """Transactions of one row, and a few updates of a table of two sizes."""
    replication.one_row_seconds(source, node, 200)  # the node is warm
    once = alternate(
        runs,
        lambda: replication.one_row_seconds(source, native, transactions),
        lambda: replication.one_row_seconds(source, node, transactions),
    )
    report.rate(f"{transactions:,} transactions of one row", transactions, *once, wanted=0.5)
    taken = [statistics.median(replication.random_updates_seconds(source, node, rows)) for rows in sizes]
    shown = ", ".join(f"{rows:,} rows {seconds:.2f} s" for rows, seconds in zip(sizes, taken, strict=True))
    report.value("1,000 random updates", f"{shown}: {taken[1] / taken[0]:.2f} times", "2 times")


def measure_batches(report: Report, source: DemoServer, node: DemoServer, rows: int, batches: int) -> None:
    """Small batches one behind the other, for as long as a table gets old by them."""
    taken, fresh, aged = replication.batch_milliseconds(source, node, rows, batches)
    early, late = (statistics.median(each) for each in (taken[50:150], taken[-100:]))
    report.value(
        f"commits of 10 rows by the 100th and the {batches:,}th", f"{early:.0f} ms, {late:.0f} ms: {late / early:.2f} times", "1.5 times"
    )
    report.value(
        f"reading {rows:,} rows, a fresh copy and behind them", f"{fresh:.0f} ms, {aged:.0f} ms: {aged / fresh:.2f} times", "1.5 times"
    )


def measure_tables(report: Report, source: DemoServer, node: DemoServer, count: int) -> None:
    """Many tables on the node: made by psql, made one by one, copied from a publisher; what the node takes before and after."""
    pid = server_pid(node)
    report.value("a node with no tables", str(tables.size(pid)), "")
    seconds = tables.made_by_psql(tables.database(node, "bench_psql"), count, node.root)
    report.value(f"{count:,} tables by psql -f", f"{seconds:.0f} s, {tables.size(pid)}", "2,000 in 180 s")
    few = max(count * 3 // 20, 1)
    seconds = tables.keyed(tables.database(node, "bench_keyed"), few)
    report.value(f"{few:,} x CREATE TABLE with a primary key", f"{seconds:.0f} s, {tables.size(pid)}", "")
    pub, sub = tables.database(source, "bench_many_pub"), tables.database(node, "bench_many_sub")
    seconds = tables.copied(pub, sub, "bench_many", count)
    report.value(f"{count:,} tables of 100 rows, made and copied", f"{seconds:.0f} s, {tables.size(pid)}", "2,000 in 480 s")
    seconds = tables.streamed(pub, "bench_many", count)
    report.value(f"20 changes of each of {min(count, tables.CHANGING)} tables, streamed", f"{seconds:.1f} s, {tables.size(pid)}", "")
    sub.execute("DROP SUBSCRIPTION bench_many")


def measure_busy(report: Report, source: DemoServer, node: DemoServer, count: int) -> None:
    """Tables that a subscription makes, and that a dump makes, beside a subscription that is never at rest."""
    many, few = tables.database(source, "bench_busy_many"), tables.database(source, "bench_busy_few")
    busy.defined(many, count)
    busy.defined(few, count * 2 // busy.STATEMENTS)
    with busy.load(source, node) as done:
        for what, wanted, measured in (
            (f"create_tables of {count:,} tables", "60 s", lambda: busy.made(many, tables.database(node, "bench_busy"))),
            (
                f"a dump of {2 * count:,} statements by psql",
                "60 s",
                lambda: busy.restored(few, tables.database(node, "bench_busy_psql"), node.root),
            ),
            ("the same by psql -1", "60 s", lambda: busy.restored(few, tables.database(node, "bench_busy_once"), node.root, "-1")),
        ):
            before = done[0]
            seconds = measured()
            report.value(
                f"{what}, beside a busy subscription", f"{seconds:.1f} s, {(done[0] - before) / seconds:,.0f} transactions/s", wanted
            )


def measure_catalogs(report: Report, native: DemoServer, node: DemoServer, counts: tuple[int, ...]) -> None:
    """What programs ask of the catalogs, in databases of so many tables: each query the first time, then again."""
    pids = [server_pid(server) for server in (native, node)]
    for count in counts:
        one, other = catalogs.filled(native, count), catalogs.filled(node, count)
        statements = catalogs.asked(one)
        fast = catalogs.taken(one, statements, pids[0])
        ours = catalogs.taken(other, catalogs.there(statements, one, other), pids[1])
        for what, times, beside in (("first", fast.first, ours.first), ("again", fast.again, ours.again)):
            for share in (0.5, 0.95):
                title = f"{len(statements)} catalog queries, {count:,} tables, {what}, p{int(share * 100)}"
                report.duration(title, replication.percentile(times, share), replication.percentile(beside, share), "")
        report.duration(f"CPU of a catalog query, {count:,} tables, on average", fast.cpu, ours.cpu, "")


def measure_compare(report: Report, source: DemoServer, native: DemoServer, node: DemoServer, rows: int, runs: int) -> None:
    """A filter that changes, and a comparison of two copies: without a counterpart in PostgreSQL, but for a new copy."""
    with compare.chain(source, node, native) as made:
        into, out = made.copied(rows)
        report.value(f"first copy of {rows:,} rows into the node, out of it", f"{into:.1f} s, {out:.1f} s", "")
        less, more = made.filtered("id % 100 < 99", rows - rows // 100), made.filtered("id > 0", rows)
        report.value("a filter that loses 1 %, that gets it back", f"{less:.1f} s, {more:.1f} s", "a tenth of the copy")
        seconds, found, above = zip(*(made.verified() for _ in range(runs)), strict=True)
        assert not any(found), found
        shown = f"{statistics.median(seconds):.1f} s, {statistics.median(above) / 2**20:.0f} MB"
        report.value(f"verify of {rows:,} equal rows", shown, "45 s, 256 MB of 10,000,000")
        made.planted()
        took, named, _ = made.verified()
        report.value(f"with {len(compare.PLANTED)} differences: {len(named)} named", f"{took:.1f} s", "")
        report.value("headgate.reconcile of these", f"{made.reconciled():.1f} s", "")
        assert made.verified()[1] == []


def measure_wide(report: Report, options: argparse.Namespace, source: DemoServer, native: DemoServer, node: DemoServer) -> None:
    """Types one by one, a table of 30 columns, and changes that need what is stored."""
    scale, runs = options.scale, options.runs
    rows, many, updates = int(200_000 * scale), int(300_000 * scale), int(60_000 * scale)
    for kind in options.types.split(",") if options.types else wide.TYPES:
        times = [wide.of_type(source, node, native, kind, rows) for _ in range(runs)]
        fast, into, out = (10 * rows / statistics.median(each) for each in zip(*times, strict=True))
        shown = f"{into:,.0f} in, {out:,.0f} out a second (PostgreSQL {fast:,.0f})"
        report.value(f"{10 * rows:,} values of type {kind}", shown, "700,000 each")
    first, second = alternate(runs, lambda: wide.thirty(source, native, many, updates), lambda: wide.thirty(source, node, many, updates))
    report.rate(f"30 columns: copy of {many:,} rows", many, [t[0] for t in first], [t[0] for t in second], 0.4)
    report.rate(f"30 columns: {updates:,} updates", updates, [t[1] for t in first], [t[1] for t in second], 0.4)
    times = alternate(runs, lambda: wide.unsent(source, native, updates), lambda: wide.unsent(source, node, updates))
    report.rate(f"{updates:,} updates that leave a TOASTed value unsent", updates, *times, wanted=0.4)
    keys = alternate(runs, lambda: wide.narrow(source, native, updates, wide.KEYS), lambda: wide.narrow(source, node, updates, wide.KEYS))
    report.rate(f"{updates:,} updates of the key", updates, *keys, wanted=0.6)
    most = int(1_000_000 * scale)
    once = alternate(
        runs,
        lambda: wide.narrow(source, native, most, wide.ONCE, at_once=True),
        lambda: wide.narrow(source, node, most, wide.ONCE, at_once=True),
    )
    report.rate(f"{most:,} updates in one transaction", most, *once, wanted=0.5)


def measure_gate(report: Report, native: DemoServer, node: DemoServer, rows: int, runs: int) -> None:
    """One log of each, read through every filter, by one and by eight."""
    cases = {"no filter": ("none",), "a simple filter": ("simple",), "a filter of five terms": ("five",), "eight filters": gate.EIGHT}
    with gate.log(native, rows) as one, gate.log(node, rows) as other:
        for names in cases.values():
            gate.seconds(other, names)  # the node is warm
        medians: dict[str, list[float]] = {}
        for case, names in cases.items():
            times = alternate(runs, lambda names=names: gate.seconds(one, names), lambda names=names: gate.seconds(other, names))  # type: ignore[misc]
            medians[case] = [statistics.median(each) for each in times]
            report.rate(f"{rows:,} changed rows through {case}", rows, *times, wanted=0)
    for case, base, wanted in (
        ("a simple filter", "no filter", "1.1"),
        ("a filter of five terms", "no filter", ""),
        ("eight filters", "a simple filter", "3"),
    ):
        fast, ours = (of / beside for of, beside in zip(medians[case], medians[base], strict=True))
        report.value(f"{case}, as times {base}", f"{ours:.2f} (PostgreSQL {fast:.2f})", wanted)


def with_servers(report: Report, options: argparse.Namespace, root: Path) -> None:
    """What is measured on two PostgreSQL clusters and a node."""
    source = PostgreSQL("source", root / "source", "postgres")
    native = PostgreSQL("native", root / "native", "postgres")
    node = DemoNode("node", root / "node", "postgres")
    servers: list[DemoServer] = [source, native, node]
    try:
        for server in servers:
            console.print(f"starting {server.title}")
            server.start()
        with Peak(server_pid(node)) as peak:
            measure(report, options, source, native, node)
        if peak.bytes:
            report.value("peak memory of the node", f"{peak.bytes / 2**30:.2f} GiB", "2.5 GiB")
    finally:
        for server in servers:
            server.stop()


def measure_filters(report: Report, root: Path, rows: int, runs: int) -> None:
    """The throughput of row filters, on a PostgreSQL and a Spark session of their own."""
    from headgate.storage.spark.application import spark_session as spark

    server = PostgreSQL("filters", root / "filters", "postgres")
    server.start()
    session = spark.start(scratch=root / "scratch")
    try:
        filters.write_parquet(session, root / "parquet", rows)
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            filters.fill(connection, rows)
            for case in filters.CASES:
                times = filters.three(session, connection, root / "parquet", case, runs)
                wanted = "" if case.correction else "0.7"
                report.beside_spark(f"filter, {case.name}, {rows:,} rows", rows, *times.values(), wanted)
    finally:
        session.stop()
        server.stop()


def main() -> int:
    """Starts the servers, measures, prints, stops the servers."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement, of which the median counts")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of rows")
    parser.add_argument("--only", default="copy,stream,publish,gate,sessions,latency,filter", help="which measurements, comma-separated")
    parser.add_argument("--types", default="", help="of the part wide, which types, comma-separated")
    parser.add_argument("--ways", default="/".join(java.WAYS), help="of the part java, which ways, separated by slashes")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    report = Report()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        root.chmod(0o755)
        if set(options.only.split(",")) - {"filter", "cluster", "java", "jobs"}:
            with_servers(report, options, root)
        if "cluster" in options.only.split(","):
            from bench import cluster  # it is made of what tests are made of

            cluster.measure(report, root, cluster.Size(int(4_000_000 * options.scale), int(1_000_000 * options.scale)), options.runs)
        if "jobs" in options.only.split(","):
            for done in jobs.measured(root, options.scale):
                each = ", ".join(f"{count} {kind} ({tasks} tasks)" for kind, (count, tasks) in done.jobs.items()) or "no job"
                share = "" if done.share is None else f", {done.share:.0%} of the changes by tasks"
                report.value(f"jobs of: {done.name}", f"{done.seconds:.1f} s, {each}{share}", "95 % of a backlog")
        if "java" in options.only.split(","):
            for run in range(options.runs):
                for figure in java.measured(root / f"java{run}", options.scale, options.ways.split("/")):
                    shown = f"{figure.cpu:.2f} s of CPU, {figure.seconds:.2f} s, {figure.memory / 2**20:,.0f} MiB"
                    report.value(f"{figure.way}: {figure.what}", shown, "")
        if "filter" in options.only.split(","):
            measure_filters(report, root, int(10_000_000 * options.scale), options.runs)
    report.print()
    if options.json:
        options.json.write_text(json.dumps(report.rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
