"""The steps of the demonstration. `demo` is the command `headgate demo`.

It starts the servers (one after another, because the start of a JVM uses two cores), fills the table, and publishes and subscribes link by
link. Then it runs the live workload, waits until every link has confirmed the source's last change, and compares the rows of all four
servers. The exit code is 0 only if they are equal. The chain has two filters. Node A subscribes to the orders of region eu, with some of
their columns. Node B subscribes to those of node A whose amount is at least 100. The last PostgreSQL subscribes to all rows of node B.
"""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.cli.demo.servers import DemoNode, DemoServer, PostgreSQL
from headgate.errors import PostgresError

COLUMNS = "id, region, customer, amount, status, placed_at"
REGIONS = ("eu", "us", "ap", "af")

SOURCE_TABLE = """CREATE TABLE orders (
  id bigint, region text, customer text NOT NULL, amount numeric(10,2) NOT NULL, status text NOT NULL,
  placed_at timestamptz NOT NULL, note text, PRIMARY KEY (id, region))"""
TABLE = """CREATE TABLE orders (
  id bigint, region text, customer text NOT NULL, amount numeric(10,2) NOT NULL, status text NOT NULL,
  placed_at timestamptz NOT NULL, PRIMARY KEY (id, region))"""
FILL = """INSERT INTO orders
  SELECT g, (ARRAY['eu','us','ap','af'])[1 + g % 4], 'customer ' || g % 5000, (g * 37 % 30000) / 100.0, 'new',
         timestamptz '2026-01-01 00:00:00+00' + g * interval '13 seconds', 'internal ' || g
  FROM generate_series(1, {rows}) g"""

PUBLISH_SOURCE = f"CREATE PUBLICATION orders_eu FOR TABLE orders ({COLUMNS}) WHERE (region = 'eu')"
PUBLISH_A = "CREATE PUBLICATION orders_large FOR TABLE orders WHERE (amount >= 100)"
PUBLISH_B = "CREATE PUBLICATION orders_all FOR TABLE orders"

EXPECTED = {
    "A": f"SELECT {COLUMNS} FROM orders WHERE region = 'eu'",
    "B": f"SELECT {COLUMNS} FROM orders WHERE region = 'eu' AND amount >= 100",
    "end": f"SELECT {COLUMNS} FROM orders WHERE region = 'eu' AND amount >= 100",
}
"""The expected rows of each server of the chain, as a query on the source."""


@dataclass(frozen=True)
class ChainLink:
    """One subscription of the chain."""

    subscription: str
    publication: str
    publisher: DemoServer
    subscriber: DemoServer


def create_source(session: psycopg.Connection, rows: int) -> None:
    """Create the source's table, fill it and publish it."""
    session.execute(SOURCE_TABLE)
    session.execute(FILL.format(rows=rows).encode())
    session.execute(PUBLISH_SOURCE)


def create_target(session: psycopg.Connection, publication: str | None) -> None:
    """Create the table on a later server of the chain, and publish it if another server follows."""
    session.execute(TABLE)
    if publication == PUBLISH_A:  # its filter uses a column that is not in the key
        session.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    if publication:
        session.execute(publication.encode())


def subscribe(link: ChainLink) -> None:
    """Create the subscription on the link's subscriber."""
    with link.subscriber.connect() as session:
        session.execute(
            f"CREATE SUBSCRIPTION {link.subscription} CONNECTION '{link.publisher.conninfo}' PUBLICATION {link.publication}".encode()
        )


def workload(session: psycopg.Connection, rows: int, seconds: float) -> Iterator[str]:
    """Run small transactions on the source for some seconds. Yield the kind of each one."""
    chance = random.Random(31)  # noqa: S311 - a repeatable workload, nothing secret
    next_id = rows
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        some = chance.randrange(1, rows)
        kind = chance.choices(["insert", "enter", "leave", "grow", "delete", "mixed"], [5, 3, 3, 3, 2, 1])[0]
        if kind == "insert":
            next_id += 1
            session.execute(
                "INSERT INTO orders VALUES (%s, %s, %s, %s, 'new', now(), 'live')",
                (next_id, chance.choice(REGIONS), f"customer {chance.randrange(5000)}", chance.randrange(30000) / 100),
            )
        elif kind == "enter":
            session.execute("UPDATE orders SET region = 'eu' WHERE id = %s", (some,))
        elif kind == "leave":
            session.execute("UPDATE orders SET region = 'us' WHERE id = %s AND region = 'eu'", (some,))
        elif kind == "grow":
            session.execute("UPDATE orders SET amount = %s, status = 'changed' WHERE id = %s", (chance.randrange(30000) / 100, some))
        elif kind == "delete":
            session.execute("DELETE FROM orders WHERE id = %s", (some,))
        else:
            with session.transaction():
                session.execute("UPDATE orders SET status = 'shipped' WHERE id BETWEEN %s AND %s", (some, some + 20))
                session.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (some + 21, some + 23))
        yield kind


def contents(server: DemoServer, query: str = f"SELECT {COLUMNS} FROM orders") -> set[tuple[object, ...]]:
    """Return the rows of a query on the server as a set: the table has a key, so there are no duplicates."""
    with server.connect() as session:
        return set(session.execute(query.encode()))


@dataclass
class Watch:
    """Sessions that read the rows and the lag of one server."""

    server: DemoServer
    filter: str
    incoming: ChainLink | None

    def __post_init__(self) -> None:
        self.session = self.server.connect()
        self.upstream = self.incoming.publisher.connect() if self.incoming else None

    def close(self) -> None:
        """End the sessions."""
        self.session.close()
        if self.upstream:
            self.upstream.close()

    def rows(self) -> int:
        """Return the number of rows in the table."""
        row = self.session.execute("SELECT count(*) FROM orders").fetchone()
        return int(row[0]) if row else 0

    def lag(self) -> tuple[str, str]:
        """Return the state of the link to this server, and the bytes of the publisher's log that it has not confirmed yet."""
        if self.incoming is None or self.upstream is None:
            return "source", ""
        row = self.upstream.execute(
            "SELECT state, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint FROM pg_stat_replication WHERE application_name = %s",
            (self.incoming.subscription,),
        ).fetchone()
        return (str(row[0]), f"{max(int(row[1] or 0), 0):,}") if row else ("not connected", "")


def live_table(watches: list[Watch], done: dict[str, int]) -> Table:
    """Return the live table, with a line for each server."""
    shown = Table(title="orders, live", caption_justify="left", expand=False)
    for name in ("server", "takes", "rows", "link", "lag, bytes"):
        shown.add_column(name, justify="right" if name in ("rows", "lag, bytes") else "left")
    for watch in watches:
        try:
            rows, (state, behind) = f"{watch.rows():,}", watch.lag()
        except psycopg.Error as error:  # only the display is affected, not the comparison at the end
            rows, state, behind = "?", type(error).__name__, ""
        shown.add_row(watch.server.title, watch.filter, rows, state, behind)
    if done:
        shown.caption = "transactions on the source: " + ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    return shown


def connections(console: Console, servers: list[DemoServer], running: bool) -> None:
    """Print how to connect to each server with psql."""
    lines = "\n".join(f"{server.title:<12} [bold]{server.psql()}[/bold]" for server in servers)
    console.print(Panel(lines, title="still running" if running else "while it ran (make demo KEEP=1 leaves them running)", expand=False))


_SECONDS = 120
"""The time after which a condition is given up."""


def wait(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds. Raise 57014 with the condition's name `what` at the timeout."""
    until = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > until:
            raise PostgresError("57014", f"waited {_SECONDS} s in vain: {what}", hint="See the servers' logs. --keep retains them.")
        time.sleep(0.2)


def synced(server: DemoServer) -> bool:
    """Return whether the initial copy of every subscribed table is complete."""
    with server.connect() as session:
        row = session.execute("SELECT count(*), count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel").fetchone()
        return bool(row and row[0] and row[0] == row[1])


def catch_up(link: ChainLink) -> None:
    """Wait until the link's subscriber has confirmed the current end of its publisher's log."""
    with link.publisher.connect() as session:
        lsn = session.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert lsn is not None

        def confirmed() -> bool:
            row = session.execute(
                "SELECT %s::pg_lsn <= replay_lsn FROM pg_stat_replication WHERE application_name = %s", (lsn[0], link.subscription)
            ).fetchone()
            return bool(row and row[0])

        wait(confirmed, f'subscription "{link.subscription}" confirms {lsn[0]}')


class Demonstration:
    """One run: its servers, its links and its folder."""

    def __init__(self, root: Path, console: Console, rows: int) -> None:
        self.console, self.rows, self.root = console, rows, root
        self.source = PostgreSQL("PostgreSQL", root / "postgresql", "shop")
        self.a = DemoNode("node A", root / "node-a", "lake")
        self.b = DemoNode("node B", root / "node-b", "lake")
        self.end = DemoServerAlias(self.source, "PostgreSQL 2", "report")
        self.servers: list[DemoServer] = [self.source, self.a, self.b, self.end]
        self.links = [
            ChainLink("orders_a", "orders_eu", self.source, self.a),
            ChainLink("orders_b", "orders_large", self.a, self.b),
            ChainLink("orders_end", "orders_all", self.b, self.end),
        ]

    def start(self, progress: Progress) -> None:
        """Start the servers and create their databases and tables."""
        task = progress.add_task("start", total=7)
        for server in (self.source, self.a, self.b):
            progress.update(task, description=f"starting {server.title}")
            server.start()
            server.create_database()
            progress.advance(task)
        self.end.create_database()
        progress.update(task, description=f"filling orders with {self.rows:,} rows")
        with self.source.connect() as session:
            create_source(session, self.rows)
        progress.advance(task)
        targets: list[tuple[DemoServer, str | None]] = [(self.a, PUBLISH_A), (self.b, PUBLISH_B), (self.end, None)]
        for target, publication in targets:
            progress.update(task, description=f"creating orders on {target.title}")
            with target.connect() as session:
                create_target(session, publication)
            progress.advance(task)
        progress.update(task, description="servers are ready")

    def copy(self, progress: Progress) -> None:
        """Create the subscriptions. Each one waits for the initial copy of the one before it."""
        task = progress.add_task("copy", total=len(self.links))
        for link in self.links:
            progress.update(task, description=f"initial copy: {link.publisher.title} → {link.subscriber.title}")
            subscribe(link)
            wait(functools.partial(synced, link.subscriber), f"initial copy to {link.subscriber.title}")
            progress.advance(task)
        progress.update(task, description="initial copies are done")

    def live(self, seconds: float) -> None:
        """Run the workload while the display shows rows and lag."""
        takes = ["everything", "WHERE (region = 'eu'), 6 of 7 columns", "WHERE (amount >= 100)", "all of node B"]
        incoming = [None, *self.links]
        watches = [Watch(server, text, link) for server, text, link in zip(self.servers, takes, incoming, strict=True)]
        done: Counter[str] = Counter()
        shown = 0.0
        try:
            with self.source.connect() as session, Live(live_table(watches, done), console=self.console, auto_refresh=False) as live:
                for kind in workload(session, self.rows, seconds):
                    done[kind] += 1
                    time.sleep(0.01)  # at most 100 transactions a second: this is a demonstration, not a benchmark
                    if time.monotonic() - shown > 1:
                        live.update(live_table(watches, done), refresh=True)
                        shown = time.monotonic()
                for link in self.links:
                    catch_up(link)
                live.update(live_table(watches, done), refresh=True)
        finally:
            for watch in watches:
                watch.close()

    def agree(self) -> bool:
        """Compare every server's rows with the source's rows that pass the filters. Print the results and return whether all are equal."""
        everything = True
        for name, server in (("A", self.a), ("B", self.b), ("end", self.end)):
            expected, seen = contents(self.source, EXPECTED[name]), contents(server)
            same = expected == seen
            everything &= same
            mark = "[green]✓[/green]" if same else "[red]✗[/red]"
            detail = "" if same else f": {len(expected - seen):,} rows missing, {len(seen - expected):,} too many"
            self.console.print(
                f"{mark} {server.title}: {len(seen):,} rows, {'equal to' if same else 'not'} what the filters let through{detail}"
            )
        return everything

    def stop(self) -> None:
        """Stop all servers, the last of the chain first."""
        for server in (self.b, self.a, self.source):
            server.stop()


class DemoServerAlias(DemoServer):
    """Another database of a server that is already running."""

    def __init__(self, server: DemoServer, title: str, database: str) -> None:
        super().__init__(title, server.root, database, server.port)

    def start(self) -> None:
        """Do nothing: the server is already running."""

    def stop(self) -> None:
        """Do nothing: the other DemoServer stops the server."""


def demo(*, keep: bool, rows: int, seconds: float) -> int:
    """Run the demonstration and return the exit code."""
    console = Console()
    root = Path(tempfile.mkdtemp(prefix="headgate-demo-"))
    root.chmod(0o755)
    began = time.monotonic()
    run = Demonstration(root, console, rows)
    agreed = False
    console.print("[bold]headgate[/bold]: PostgreSQL → node A → node B → PostgreSQL, one filtered table\n")
    try:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            run.start(progress)
            run.copy(progress)
        run.live(seconds)
        console.print()
        agreed = run.agree()
        console.print(f"\n{'Everything agreed' if agreed else '[red]The contents differ[/red]'} after {time.monotonic() - began:.0f} s.")
        connections(console, run.servers, keep)
        if keep:
            console.print(f"Stop them: headgate stop -D {run.b.data}; headgate stop -D {run.a.data}; pg_ctl -D {run.source.data} stop")
    except PostgresError as error:
        console.print(f"[red]ERROR[/red]:  {error.message}")
        for label, text in (("DETAIL", error.detail), ("HINT", error.hint)):
            if text:
                console.print(f"{label}:  {text}")
        console.print(f"Logs: {', '.join(str(server.logfile) for server in (run.source, run.a, run.b))}")
        keep = keep or any(server.logfile.exists() for server in run.servers)
        run.stop()
        return 1
    finally:
        if not keep:
            run.stop()
            shutil.rmtree(root, ignore_errors=True)
    return 0 if agreed else 1
