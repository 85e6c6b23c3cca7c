"""A PostgreSQL that subscribes to a node and one that subscribes to a PostgreSQL have the same rows after a random workload.

The same workload runs on a node and on a PostgreSQL server. Each has its own subscriber, which is a real PostgreSQL server. The test
compares the result of every command, whether the subscription still runs (`disable_on_error` makes an error of either side visible), and
the contents of all tables after the initial copy, after the first phase, and after a REFRESH and the second phase. Several workloads run
concurrently, each in its own database, so that their waits overlap.

A few run with the suite, two hundred with `make test-all`. A failing workload is printed as the Python expression that creates it. Paste it
into `PINNED` to run it again.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.conftest import PG_BIN, PostgresServer, Server, _Farm, patience
from tests.publisher.workload import CONTENTS, TABLES, Workload, workloads

ABREAST = 4
AMOUNTS = [pytest.param(4, 0, marks=pytest.mark.slow), pytest.param(200, 1201, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
"""The numbers of workloads, and the seeds that draw them."""
PATIENCE = 300.0
"""Timeout in seconds. A busy machine copies many small tables slowly."""

PINNED: list[Workload] = []

Rows = dict[str, list[tuple[object, ...]]]


class Chain:
    """A publisher (node or PostgreSQL) and a PostgreSQL that subscribes to it, each with a database."""

    def __init__(self, publisher: Server, subscriber: Server) -> None:
        self.publisher, self.subscriber = publisher, subscriber
        self.database, self.mirror = publisher.new_database(), subscriber.new_database()
        self.pub, self.sub = (
            psycopg.connect(server.conninfo(database), autocommit=True)
            for server, database in ((publisher, self.database), (subscriber, self.mirror))
        )
        self.name = f"sub_{self.mirror}"
        self.marks = 0
        self.stopped = self.unsure = False
        """Whether a copy has stopped the subscription. Which rows other copies have brought by then depends on timing."""
        for session in (self.pub, self.sub):
            session.execute(("CREATE TABLE mark (n int);" + TABLES).encode())
        self.pub.execute("CREATE PUBLICATION m FOR TABLE mark WITH (publish = 'insert')")

    def crowd(self) -> subprocess.Popen[bytes]:
        """Open another walsender of the publisher's database. If there are two, a node reads and renders changes for both at once."""
        slot = f"{self.name}_other"
        self.pub.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        options = ["-S", slot, "--start", "-f", "/dev/null", "-o", "proto_version=1", "-o", "publication_names=m"]
        return subprocess.Popen([PG_BIN / "pg_recvlogical", "-d", self.publisher.conninfo(self.database), *options])

    def run(self, sql: str) -> str:
        """Run a command on the publisher. Return its tag, or its error."""
        try:
            return str(self.pub.execute(sql.encode()).statusmessage)
        except psycopg.Error as error:
            return f"{error.sqlstate} {error.diag.message_primary} {error.diag.message_detail or ''}"

    def end(self, workload: Workload) -> None:
        """Drop the subscription and the publications, and undo the workload's changes of the tables."""
        self.run("ROLLBACK")
        self.sub.execute(f"DROP SUBSCRIPTION IF EXISTS {self.name}".encode())
        self.sub.execute(b"TRUNCATE mark, w.k, w.f, w.i, w.r, s.t")
        for sql in ["DROP PUBLICATION p", "DROP PUBLICATION q", "DROP PUBLICATION u", *workload.undo()]:
            self.run(sql)

    def subscribe(self, options: str) -> str:
        """Create a subscription to all publications, including that of the mark. Return their names.

        If their column lists cannot be combined, subscribe to `m` and `p` alone.
        """
        for names in ("m, p, q, u", "m, p"):
            source = f"CONNECTION '{self.publisher.conninfo(self.database)}' PUBLICATION {names}"
            try:
                self.sub.execute(f"CREATE SUBSCRIPTION {self.name} {source} WITH (disable_on_error = true, {options})".encode())
                return names
            except psycopg.errors.FeatureNotSupported:
                continue  # different column lists
        raise AssertionError(names)

    def refresh(self, copy: str) -> str:
        """Run ALTER SUBSCRIPTION … REFRESH if the subscription is enabled. Return "refreshed" or the error."""
        if not self.enabled():
            return ""
        try:
            self.sub.execute(f"ALTER SUBSCRIPTION {self.name} REFRESH PUBLICATION WITH (copy_data = {copy})".encode())
            return "refreshed"
        except psycopg.errors.FeatureNotSupported as error:
            return str(error.diag.message_primary)

    def mark(self) -> None:
        """Insert a row whose arrival shows that all earlier changes have arrived."""
        self.run("ROLLBACK")
        self.marks += 1
        self.pub.execute(f"INSERT INTO mark VALUES ({self.marks})".encode())

    def enabled(self) -> bool:
        """Return whether the subscription is enabled, so no error has stopped it."""
        row = self.sub.execute("SELECT subenabled FROM pg_subscription WHERE subname = %s", (self.name,)).fetchone()
        return bool(row and row[0])

    def arrived(self) -> bool:
        """Return whether the mark has arrived and every table is ready, or the subscription has stopped."""
        ready = "SELECT count(*) FROM pg_subscription_rel, pg_subscription s WHERE s.oid = srsubid AND subname = %s AND srsubstate <> 'r'"
        unready = self.sub.execute(ready.encode(), (self.name,)).fetchone()
        mark = self.sub.execute("SELECT coalesce(max(n), 0) FROM mark").fetchone()
        return (unready == (0,) and mark == (self.marks,)) or not self.enabled()

    def errors(self) -> str:
        """Return the last errors of the subscriber and of the publisher."""
        logs = [server.log().split("\n") for server in (self.subscriber, self.publisher)]
        return "\n".join("\n".join([line for line in lines if "ERROR" in line or "CONTEXT" in line][-12:]) for lines in logs)

    def state(self) -> str:
        """Return a description of what has not arrived."""
        unready = self.sub.execute(
            b"SELECT srrelid::regclass::text, srsubstate::text FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        ).fetchall()
        return f"mark {self.marks} of {self.name} has not arrived from {self.publisher.data}; tables {unready}"

    def contents(self) -> Rows:
        """Return the rows of each table of the subscriber."""
        return {name: self.sub.execute(query.encode()).fetchall() for name, query in CONTENTS.items()}


def arrive(chains: list[Chain], doing: list[Workload], at: str) -> None:
    """Wait until all marks have arrived."""
    for chain in chains:
        chain.mark()
    until = time.monotonic() + PATIENCE * patience()
    waiting = list(zip(chains, [workload for workload in doing for _ in range(2)], strict=True))
    while waiting := [(chain, workload) for chain, workload in waiting if not chain.arrived()]:
        assert time.monotonic() < until, f"{at}: {waiting[0][0].state()}\n{waiting[0][1]}\n{waiting[0][0].errors()}"
        waiting[0][0].sub.execute("SELECT pg_sleep(0.05)")


def compare(pairs: list[tuple[Chain, Chain]], doing: list[Workload], at: str, *, copied: bool = False) -> None:
    """Check that both subscribers of each workload have the same rows. `copied`: tables have been copied since the last comparison."""
    for (native, node), workload in zip(pairs, doing, strict=True):
        expected, node_runs = native.enabled(), node.enabled()
        report = f"{at}: subscription {node.name} to the node enabled: {node_runs}, {native.name} to PostgreSQL: {expected}\n{workload}"
        assert node_runs == expected, report + node.errors()
        if copied and not node_runs and not native.stopped:
            native.unsure = True
        native.stopped = not node_runs
        if native.unsure:
            continue
        expected_rows, actual_rows = native.contents(), node.contents()
        for name, row in expected_rows.items():
            assert actual_rows[name] == row, f"{at}: {name} holds {actual_rows[name]}, from PostgreSQL {row}\n{workload}"


def run(pairs: list[tuple[Chain, Chain]], doing: list[Workload]) -> list[bool]:
    """Run the workloads concurrently. Return whether each subscription still runs at the end."""
    pairs = pairs[: len(doing)]
    chains = [chain for pair in pairs for chain in pair]

    def run_part(statements: str) -> None:
        for (native, node), workload in zip(pairs, doing, strict=True):
            for sql in getattr(workload, statements):
                expected, node_answer = native.run(sql), node.run(sql)
                assert node_answer == expected, f"{sql}: the node returns {node_answer}, PostgreSQL {expected}\n{workload}"

    for chain in chains:
        chain.stopped = chain.unsure = False
    run_part("rows")
    run_part("publications")
    for (native, node), workload in zip(pairs, doing, strict=True):
        assert native.subscribe(workload.options) == node.subscribe(workload.options), workload
    arrive(chains, doing, "initial copy")
    compare(pairs, doing, "initial copy", copied=True)
    run_part("first")
    arrive(chains, doing, "first phase")
    compare(pairs, doing, "first phase")
    for (native, node), workload in zip(pairs, doing, strict=True):
        assert native.refresh(workload.refresh) == node.refresh(workload.refresh), workload
    arrive(chains, doing, "refresh")
    compare(pairs, doing, "refresh", copied=True)
    run_part("second")
    arrive(chains, doing, "second phase")
    compare(pairs, doing, "second phase")
    running = [native.enabled() for native, _ in pairs]
    for (native, node), workload in zip(pairs, doing, strict=True):
        native.end(workload)
        node.end(workload)
    return running


@pytest.fixture(scope="module")
def pairs(postgres: Server, node: Server, _session_farm: _Farm) -> Iterator[list[tuple[Chain, Chain]]]:
    """Databases for concurrent workloads, and a PostgreSQL server for the subscribers."""
    subscriber = _session_farm.make(
        PostgresServer, max_worker_processes="120", max_logical_replication_workers="100", max_replication_slots="120",
        max_sync_workers_per_subscription="2",
    )  # fmt: skip
    chain_pairs = [(Chain(postgres, subscriber), Chain(node, subscriber)) for _ in range(ABREAST)]
    crowd = [chain.crowd() for _, chain in chain_pairs[::2]]
    yield chain_pairs
    for process in crowd:
        process.terminate()
        process.wait()
    for chain in (chain for pair in chain_pairs for chain in pair):
        chain.sub.execute(f"DROP SUBSCRIPTION IF EXISTS {chain.name}".encode())
        chain.pub.close()
        chain.sub.close()
    subscriber.stop("immediate")


@pytest.mark.slow
def test_pinned_workloads_leave_the_same_rows(pairs: list[tuple[Chain, Chain]]) -> None:
    for start in range(0, len(PINNED), ABREAST):
        run(pairs, PINNED[start : start + ABREAST])


def drawn(count: int, number: int) -> list[Workload]:
    """Return this number of workloads, the same ones for the same seed."""
    drawn_workloads: list[Workload] = []

    @seed(number)
    @settings(max_examples=count, phases=[Phase.generate], database=None, derandomize=False, suppress_health_check=[*HealthCheck])
    @given(workloads())
    def collect(workload: Workload) -> None:
        drawn_workloads.append(workload)

    collect()
    return drawn_workloads


@pytest.mark.parametrize(("count", "number"), AMOUNTS)
def test_subscribers_of_a_node_and_of_postgresql_hold_the_same_rows(pairs: list[tuple[Chain, Chain]], count: int, number: int) -> None:
    doing, running = drawn(count, number), 0
    for start in range(0, len(doing), ABREAST):
        running += sum(run(pairs, doing[start : start + ABREAST]))
        print(f"{start + ABREAST} workloads, {running} subscriptions ran to the end", flush=True)
