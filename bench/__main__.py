"""`python -m bench` measures a node and native PostgreSQL in one run, and prints the ratios of the medians.

It starts two PostgreSQL clusters and one node on this machine. Every measurement runs on PostgreSQL and on the node in turn, `--runs`
times. The parts `filter`, `cluster`, `java` and `jobs` start their own servers. bench/README.md has the figures.
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
    """The rows of the report: measurement, native, node, ratio, target."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def rate(self, measurement: str, count: int, native: list[float], node: list[float], target: float) -> None:
        """Add a row with the rows per second of both servers. `native` and `node` are in seconds."""
        native_rate, node_rate = count / statistics.median(native), count / statistics.median(node)
        self._add(measurement, f"{native_rate:,.0f}/s", f"{node_rate:,.0f}/s", round(node_rate / native_rate, 3), target)

    def cost(
        self, measurement: str, count: int, native: list[Cost], node: list[Cost], target: float, *, publisher: bool = False, cpu: str = ""
    ) -> None:
        """Add rows per second, and seconds of CPU per million rows, of the subscribers or, with `publisher`, of the publishers."""
        self.rate(measurement, count, [cost.seconds for cost in native], [cost.seconds for cost in node], target)
        native_cpu, node_cpu = (
            statistics.median((cost.publisher if publisher else cost.subscriber) * 1e6 / count for cost in costs)
            for costs in (native, node)
        )
        ratio = round(node_cpu / max(native_cpu, 0.01), 2)
        self._add(f"{measurement}: CPU per million", f"{native_cpu:.2f} s", f"{node_cpu:.2f} s", ratio, cpu)

    def beside_spark(self, measurement: str, count: int, native: list[float], spark: list[float], node: list[float], target: str) -> None:
        """Add the rows per second of PostgreSQL, Spark's own expression and a node, from seconds. The ratio is node to Spark."""
        native_rate, spark_rate, node_rate = (count / statistics.median(seconds) for seconds in (native, spark, node))
        base = f"PostgreSQL {native_rate:,.0f}/s, Spark {spark_rate:,.0f}/s"
        self._add(measurement, base, f"{node_rate:,.0f}/s", round(node_rate / spark_rate, 3), target)

    def beside(self, measurement: str, count: int, base: tuple[str, list[float]], node: tuple[str, list[float]], target: str) -> None:
        """Add the rows per second of two nodes. `base` and `node` are the name of a node and its seconds."""
        base_rate, node_rate = (count / statistics.median(seconds) for _, seconds in (base, node))
        self._add(measurement, f"{base[0]}: {base_rate:,.0f}/s", f"{node_rate:,.0f}/s", round(node_rate / base_rate, 2), target)

    def duration(self, measurement: str, native: float, node: float, target: str) -> None:
        """Add the milliseconds of both servers."""
        self._add(measurement, f"{native:,.1f} ms", f"{node:,.0f} ms", round(node / native, 1), target)

    def value(self, measurement: str, node: str, target: str) -> None:
        """Add a figure that does not have a native counterpart."""
        self._add(measurement, "", node, "", target)

    def _add(self, measurement: str, native: str, node: str, ratio: object, target: object) -> None:
        """Add a row and print it."""
        self.rows.append({"measurement": measurement, "native": native, "node": node, "ratio": ratio, "target": target})
        console.print(self.rows[-1])

    def print(self) -> None:
        """Print all rows as a table."""
        table = Table(title="headgate and native PostgreSQL, medians")
        for name in ("measurement", "native", "node", "ratio", "target"):
            table.add_column(name)
        for row in self.rows:
            table.add_row(*(str(value) for value in row.values()))
        console.print(table)


def alternate(runs: int, native: Callable[[], T], node: Callable[[], T]) -> tuple[list[T], list[T]]:
    """Run both in turn, so that other work on the machine affects both."""
    pairs = [(native(), node()) for _ in range(runs)]
    return [native_result for native_result, _ in pairs], [node_result for _, node_result in pairs]


def measure(report: Report, options: argparse.Namespace, source: DemoServer, native: DemoServer, node: DemoNode) -> None:
    """Run the parts that `--only` names."""
    scale, runs, only = options.scale, options.runs, options.only.split(",")
    rows = int(2_000_000 * scale)
    inserts, updates, deletes = int(500_000 * scale), int(300_000 * scale), int(200_000 * scale)
    if "copy" in only:
        times = alternate(runs, lambda: replication.copy_cost(source, native, rows), lambda: replication.copy_cost(source, node, rows))
        report.cost(f"initial copy of {rows:,} rows, PostgreSQL → node", rows, *times, target=0.45, cpu="2.2 s")
        condition = "WHERE (aid % 5 = 0)"
        times = alternate(
            runs,
            lambda: replication.copy_cost(source, native, rows, condition),
            lambda: replication.copy_cost(source, node, rows, condition),
        )
        report.cost(f"the same through {condition}", rows, *times, target=0.6)
    measure_streams(report, only, source, native, node, (inserts, updates, deletes), runs)
    if "publish" in only:
        times = alternate(
            runs, lambda: replication.copy_cost(source, native, inserts), lambda: replication.copy_cost(node, native, inserts)
        )
        report.cost(f"initial copy of {inserts:,} rows, node → PostgreSQL", inserts, *times, target=1 / 10, publisher=True)
        counts = (inserts // 5, updates // 5, deletes // 5)
        native_costs, node_costs = alternate(
            runs, lambda: replication.stream_costs(source, native, *counts), lambda: replication.stream_costs(node, native, *counts)
        )
        for index, (changes, count) in enumerate(((f"{counts[0]:,} inserts", counts[0]), ("updates and deletes", sum(counts[1:])))):
            costs = ([run[index] for run in runs_of_server] for runs_of_server in (native_costs, node_costs))
            report.cost(f"stream of {changes}, node → PostgreSQL", count, *costs, target=1 / 6, publisher=True)
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
        "catalogs": lambda: measure_catalogs(report, native, node, sorted({10, max(10, int(1_000 * scale))})),
    }
    for name, measure_part in parts.items():
        if name in only:
            measure_part()
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
    """Measure the memory of the driver while one large transaction is applied."""
    memory = driver_memory.measure(source, node, changes)
    for process, idle, peak in zip(("Python", "Java"), memory.idle, memory.peak, strict=True):
        figure = f"{idle / 2**20:,.0f} MiB idle, {(peak - idle) / 2**20:+,.0f} MiB at most, {memory.seconds:.0f} s"
        report.value(f"{process} of the driver, {changes:,} updates in one transaction", figure, "300 MB, both")


def measure_source(report: Report, node: DemoServer, rows: int, runs: int) -> None:
    """Measure how fast a node returns published changes as Arrow, and to Spark."""
    figures = source_rates.measure(node, rows, runs)
    for readers, rates in figures.rates.items():
        report.value(f"{rows:,} changes as Arrow: {readers}", f"{statistics.median(rates):,.0f}/s", "1,200,000/s")
    report.value("restart of a streaming query, until its rows are written", f"{statistics.median(figures.restarts):.2f} s", "")


def measure_triggers(report: Report, source: DemoServer, native: DemoServer, node: DemoServer, rows: int, runs: int) -> None:
    """Measure the applied rows per second of tables with a trigger."""
    for case in triggers.CASES:
        count = rows if case.target >= 1_000 else rows // 10
        seconds = functools.partial(triggers.seconds, source, case=case, rows=count)
        native_times, node_times = alternate(runs, functools.partial(seconds, native), functools.partial(seconds, node))
        for index, command in enumerate(("INSERT", "UPDATE")):
            measurement = f"applied {command}s of a table with {case.name} (target {case.target:,}/s)"
            report.rate(measurement, count, [times[index] for times in native_times], [times[index] for times in node_times], target=0)


def measure_sessions(report: Report, native: DemoServer, node: DemoServer, rows: int) -> None:
    """Measure single statements through one connection to each server."""
    native_medians, node_medians = sessions.milliseconds(native, rows), sessions.milliseconds(node, rows)
    for statement, target in sessions.TARGETS.items():
        report.duration(f"{statement}, {rows:,} rows", native_medians[statement], node_medians[statement], target)


def measure_hostile(report: Report, native: DemoServer, node: DemoServer, seconds: float) -> None:
    """Measure how long one ordinary client waits beside eight hostile sessions."""
    for name, server in (("native", native), ("node", node)):
        waits = hostile.waits(server, seconds)
        figure = f"worst {waits[-1]:.2f} s, {replication.percentiles([1000 * wait for wait in waits])}"
        report.value(f"{name}: {len(waits):,} statements beside eight hostile sessions", figure, hostile.TARGET)


def measure_streams(
    report: Report, only: list[str], source: DemoServer, native: DemoServer, node: DemoServer, sizes: tuple[int, int, int], runs: int
) -> None:
    """Measure catching up, compared with PostgreSQL and with a history."""
    if "stream" in only:
        measure_stream(report, source, native, node, sizes, runs)
    if "history" in only:
        measure_history(report, source, node, sizes, runs)


def measure_stream(
    report: Report, source: DemoServer, native: DemoServer, node: DemoServer, sizes: tuple[int, int, int], runs: int
) -> None:
    """Measure catching up with inserts, then with updates and deletes."""
    inserts, updates, deletes = sizes
    native_costs, node_costs = alternate(
        runs, lambda: replication.stream_costs(source, native, *sizes), lambda: replication.stream_costs(source, node, *sizes)
    )
    inserting = ([costs[0] for costs in native_costs], [costs[0] for costs in node_costs])
    report.cost(f"catch-up of {inserts:,} inserts", inserts, *inserting, 1 / 4, cpu="3.0 s")
    changing = ([costs[1] for costs in native_costs], [costs[1] for costs in node_costs])
    report.cost(f"catch-up of {updates:,} updates and {deletes:,} deletes", updates + deletes, *changing, 1 / 6, cpu="7.0 s")


def measure_history(report: Report, source: DemoServer, node: DemoServer, sizes: tuple[int, int, int], runs: int) -> None:
    """Measure catching up without a history (shown as "native") and with one."""
    replication.stream_costs(source, node, *sizes)  # warm up the node
    without, with_history = alternate(
        runs,
        lambda: replication.stream_costs(source, node, *sizes),
        lambda: replication.stream_costs(source, node, *sizes, "WITH (history = true)"),
    )
    inserts, updates, deletes = sizes
    inserting = ([costs[0] for costs in without], [costs[0] for costs in with_history])
    report.cost(f"catch-up of {inserts:,} inserts, with history", inserts, *inserting, 0.75)
    changing = ([costs[1] for costs in without], [costs[1] for costs in with_history])
    report.cost(f"catch-up of {updates:,} updates and {deletes:,} deletes, with history", updates + deletes, *changing, 0.75)


def measure_small(
    report: Report, source: DemoServer, native: DemoServer, node: DemoServer, transactions: int, sizes: tuple[int, int], runs: int
) -> None:
    """Measure transactions of one row, and 1,000 updates of tables of two sizes."""
    replication.one_row_seconds(source, node, 200)  # warm up the node
    times = alternate(
        runs,
        lambda: replication.one_row_seconds(source, native, transactions),
        lambda: replication.one_row_seconds(source, node, transactions),
    )
    report.rate(f"{transactions:,} transactions of one row", transactions, *times, target=0.5)
    small, large = (statistics.median(replication.random_updates_seconds(source, node, rows)) for rows in sizes)
    figure = f"{sizes[0]:,} rows {small:.2f} s, {sizes[1]:,} rows {large:.2f} s: {large / small:.2f} times"
    report.value("1,000 random updates", figure, "2 times")


def measure_batches(report: Report, source: DemoServer, node: DemoServer, rows: int, batches: int) -> None:
    """Measure whether many small commits make later commits, and reads of the table, slower."""
    commits, fresh, aged = replication.batch_milliseconds(source, node, rows, batches)
    early, late = statistics.median(commits[50:150]), statistics.median(commits[-100:])
    report.value(
        f"commits of 10 rows, about the 100th and the {batches:,}th",
        f"{early:.0f} ms, {late:.0f} ms: {late / early:.2f} times",
        "1.5 times",
    )
    report.value(
        f"reading {rows:,} rows, of a fresh copy and after the commits",
        f"{fresh:.0f} ms, {aged:.0f} ms: {aged / fresh:.2f} times",
        "1.5 times",
    )


def measure_tables(report: Report, source: DemoServer, node: DemoServer, count: int) -> None:
    """Measure creating many tables by psql, one by one, and by a subscription, and the size of the node after each."""
    pid = server_pid(node)
    report.value("a node without tables", str(tables.size(pid)), "")
    seconds = tables.psql_seconds(tables.new_database(node, "bench_psql"), count, node.root)
    report.value(f"{count:,} tables by psql -f", f"{seconds:.0f} s, {tables.size(pid)}", "2,000 in 180 s")
    keyed_count = max(count * 3 // 20, 1)
    seconds = tables.create_seconds(tables.new_database(node, "bench_keyed"), keyed_count)
    report.value(f"{keyed_count:,} x CREATE TABLE with a primary key", f"{seconds:.0f} s, {tables.size(pid)}", "")
    pub, sub = tables.new_database(source, "bench_many_pub"), tables.new_database(node, "bench_many_sub")
    seconds = tables.copy_seconds(pub, sub, "bench_many", count)
    report.value(f"{count:,} tables of 100 rows, created and copied", f"{seconds:.0f} s, {tables.size(pid)}", "2,000 in 480 s")
    seconds = tables.stream_seconds(pub, "bench_many", count)
    report.value(f"20 changes of each of {min(count, tables.CHANGING)} tables, streamed", f"{seconds:.1f} s, {tables.size(pid)}", "")
    sub.execute("DROP SUBSCRIPTION bench_many")


def measure_busy(report: Report, source: DemoServer, node: DemoServer, count: int) -> None:
    """Measure creating tables by a subscription and by a dump while another subscription applies changes all the time."""
    many, few = tables.new_database(source, "bench_busy_many"), tables.new_database(source, "bench_busy_few")
    busy.create_tables(many, count)
    busy.create_tables(few, count * 2 // busy.STATEMENTS)
    with busy.load(source, node) as transactions:
        for measurement, measure_seconds in (
            (f"create_tables of {count:,} tables", lambda: busy.subscribe_seconds(many, tables.new_database(node, "bench_busy"))),
            (
                f"a dump of {2 * count:,} statements by psql",
                lambda: busy.restore_seconds(few, tables.new_database(node, "bench_busy_psql"), node.root),
            ),
            (
                "the same by psql -1",
                lambda: busy.restore_seconds(few, tables.new_database(node, "bench_busy_once"), node.root, "-1"),
            ),
        ):
            before = transactions[0]
            seconds = measure_seconds()
            rate = (transactions[0] - before) / seconds
            report.value(f"{measurement}, beside a busy subscription", f"{seconds:.1f} s, {rate:,.0f} transactions/s", "60 s")


def measure_catalogs(report: Report, native: DemoServer, node: DemoServer, counts: list[int]) -> None:
    """Measure the programs' catalog queries, the first time and again, in databases of `counts` tables."""
    pids = [server_pid(server) for server in (native, node)]
    for count in counts:
        native_side, node_side = catalogs.create_database(native, count), catalogs.create_database(node, count)
        statements = catalogs.program_queries(native_side)
        native_times = catalogs.measure(native_side, statements, pids[0])
        node_times = catalogs.measure(node_side, catalogs.translate_oids(statements, native_side, node_side), pids[1])
        for turn in ("first", "again"):
            for share in (0.5, 0.95):
                measurement = f"{len(statements)} catalog queries, {count:,} tables, {turn}, p{int(share * 100)}"
                shares = (replication.percentile(getattr(times, turn), share) for times in (native_times, node_times))
                report.duration(measurement, *shares, "")
        report.duration(f"CPU of a catalog query, {count:,} tables, on average", native_times.cpu, node_times.cpu, "")


def measure_compare(report: Report, source: DemoServer, native: DemoServer, node: DemoServer, rows: int, runs: int) -> None:
    """Measure changing a filter of a publication with `reconcile`, and comparing two copies. PostgreSQL can only copy again."""
    with compare.chain(source, node, native) as chain:
        into, out = chain.copy(rows)
        report.value(f"initial copy of {rows:,} rows into the node, out of it", f"{into:.1f} s, {out:.1f} s", "")
        less, more = chain.change_filter("id % 100 < 99", rows - rows // 100), chain.change_filter("id > 0", rows)
        report.value("a filter that loses 1 %, that gets it back", f"{less:.1f} s, {more:.1f} s", "a tenth of the copy")
        seconds, differences, memory = zip(*(chain.verify() for _ in range(runs)), strict=True)
        assert not any(differences), differences
        figure = f"{statistics.median(seconds):.1f} s, {statistics.median(memory) / 2**20:.0f} MB"
        report.value(f"verify of {rows:,} equal rows", figure, "45 s, 256 MB of 10,000,000")
        chain.plant_differences()
        verify_seconds, reported, _ = chain.verify()
        report.value(f"with {len(compare.PLANTED)} differences: {len(reported)} reported", f"{verify_seconds:.1f} s", "")
        report.value("headgate.reconcile of these", f"{chain.reconcile():.1f} s", "")
        assert chain.verify()[1] == []


def measure_wide(report: Report, options: argparse.Namespace, source: DemoServer, native: DemoServer, node: DemoServer) -> None:
    """Measure copies of each type, a table of 30 columns, and updates that need the stored row."""
    scale, runs = options.scale, options.runs
    rows, wide_rows, updates = int(200_000 * scale), int(300_000 * scale), int(60_000 * scale)
    for type_name in options.types.split(",") if options.types else wide.TYPES:
        seconds = [wide.type_seconds(source, node, native, type_name, rows) for _ in range(runs)]
        native_rate, into, out = (10 * rows / statistics.median(copies) for copies in zip(*seconds, strict=True))
        figure = f"{into:,.0f} in, {out:,.0f} out a second (PostgreSQL {native_rate:,.0f})"
        report.value(f"{10 * rows:,} values of type {type_name}", figure, "700,000 each")
    native_times, node_times = alternate(
        runs,
        lambda: wide.thirty_columns_seconds(source, native, wide_rows, updates),
        lambda: wide.thirty_columns_seconds(source, node, wide_rows, updates),
    )
    for index, (measurement, count) in enumerate(((f"copy of {wide_rows:,} rows", wide_rows), (f"{updates:,} updates", updates))):
        report.rate(f"30 columns: {measurement}", count, [run[index] for run in native_times], [run[index] for run in node_times], 0.4)
    times = alternate(runs, lambda: wide.unsent_seconds(source, native, updates), lambda: wide.unsent_seconds(source, node, updates))
    report.rate(f"{updates:,} updates that leave a TOASTed value unsent", updates, *times, target=0.4)
    times = alternate(
        runs,
        lambda: wide.narrow_seconds(source, native, updates, wide.UPDATE_KEY),
        lambda: wide.narrow_seconds(source, node, updates, wide.UPDATE_KEY),
    )
    report.rate(f"{updates:,} updates of the key", updates, *times, target=0.6)
    large = int(1_000_000 * scale)
    times = alternate(
        runs,
        lambda: wide.narrow_seconds(source, native, large, wide.UPDATE_VALUE, one_transaction=True),
        lambda: wide.narrow_seconds(source, node, large, wide.UPDATE_VALUE, one_transaction=True),
    )
    report.rate(f"{large:,} updates in one transaction", large, *times, target=0.5)


def measure_gate(report: Report, native: DemoServer, node: DemoServer, rows: int, runs: int) -> None:
    """Measure how fast each server sends one log through no filter, one filter, and eight filters at once."""
    cases = {"no filter": ("none",), "a simple filter": ("simple",), "a filter of five terms": ("five",), "eight filters": gate.EIGHT}
    with gate.log(native, rows) as native_side, gate.log(node, rows) as node_side:
        for names in cases.values():
            gate.seconds(node_side, names)  # warm up the node
        medians: dict[str, list[float]] = {}
        for case, names in cases.items():
            times = alternate(runs, functools.partial(gate.seconds, native_side, names), functools.partial(gate.seconds, node_side, names))
            medians[case] = [statistics.median(seconds) for seconds in times]
            report.rate(f"{rows:,} changed rows through {case}", rows, *times, target=0)
    for case, base, target in (
        ("a simple filter", "no filter", "1.1"),
        ("a filter of five terms", "no filter", ""),
        ("eight filters", "a simple filter", "3"),
    ):
        native_ratio, node_ratio = (time / base_time for time, base_time in zip(medians[case], medians[base], strict=True))
        report.value(f"time of {case} divided by time of {base}", f"{node_ratio:.2f} (PostgreSQL {native_ratio:.2f})", target)


def measure_with_servers(report: Report, options: argparse.Namespace, root: Path) -> None:
    """Run the parts that use two PostgreSQL clusters and a node."""
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
    """Measure the throughput of row filters, on a PostgreSQL server and a Spark session that only this part uses."""
    from headgate.storage.spark.application import spark_session as spark

    server = PostgreSQL("filters", root / "filters", "postgres")
    server.start()
    session = spark.start(scratch=root / "scratch")
    try:
        filters.write_parquet(session, root / "parquet", rows)
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            filters.fill(connection, rows)
            for case in filters.CASES:
                times = filters.measure(session, connection, root / "parquet", case, runs)
                target = "" if case.needs_correction else "0.7"
                report.beside_spark(f"filter, {case.name}, {rows:,} rows", rows, *times.values(), target)
    finally:
        session.stop()
        server.stop()


def main() -> int:
    """Run the parts that the command line names, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each measurement, of which the median counts")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of rows")
    parser.add_argument("--only", default="copy,stream,publish,gate,sessions,latency,filter", help="the parts to run, separated by commas")
    parser.add_argument("--types", default="", help="the types of part wide, separated by commas")
    parser.add_argument("--ways", default="/".join(java.WAYS), help="the ways of part java, separated by slashes")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    report = Report()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # run the `finally` clauses, which stop the servers
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        root.chmod(0o755)
        if set(options.only.split(",")) - {"filter", "cluster", "java", "jobs"}:
            measure_with_servers(report, options, root)
        if "cluster" in options.only.split(","):
            from bench import cluster  # it imports modules of the tests

            cluster.measure(report, root, cluster.Size(int(4_000_000 * options.scale), int(1_000_000 * options.scale)), options.runs)
        if "jobs" in options.only.split(","):
            for workload in jobs.measure(root, options.scale):
                listed = ", ".join(f"{count} {kind} ({tasks} tasks)" for kind, (count, tasks) in workload.jobs.items()) or "no job"
                share = "" if workload.share is None else f", {workload.share:.0%} of the changes by tasks"
                report.value(f"jobs of: {workload.name}", f"{workload.seconds:.1f} s, {listed}{share}", "95 % of a backlog")
        if "java" in options.only.split(","):
            for run in range(options.runs):
                for figure in java.measure(root / f"java{run}", options.scale, options.ways.split("/")):
                    text = f"{figure.cpu:.2f} s of CPU, {figure.seconds:.2f} s, {figure.memory / 2**20:,.0f} MiB"
                    report.value(f"{figure.way}: {figure.work}", text, "")
        if "filter" in options.only.split(","):
            measure_filters(report, root, int(10_000_000 * options.scale), options.runs)
    report.print()
    if options.json:
        options.json.write_text(json.dumps(report.rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
