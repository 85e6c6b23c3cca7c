"""Measure the initial copy, catching up and the latency of one subscription.

The publisher and the subscriber can be nodes or PostgreSQL servers. Each function takes two running servers, creates its own databases,
and returns costs, seconds or, for latency, milliseconds. The subscriber has caught up when `flush_lsn` in the publisher's
pg_stat_replication has reached the publisher's position. If it is a node, the changes are then durable in Delta and visible.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from bench.cost import Cost, Meter
from headgate.cli.demo.servers import DemoServer

ACCOUNTS = "CREATE TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))"
NUMBERS = itertools.count(1)


@dataclass
class Side:
    """A database on one of the servers."""

    server: DemoServer
    database: str

    @property
    def conninfo(self) -> str:
        """Return the connection string of the database."""
        return f"host=127.0.0.1 port={self.server.port} user=postgres dbname={self.database}"

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement in a new connection and return its rows."""
        with psycopg.connect(self.conninfo, autocommit=True) as session:
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def pair(publisher: DemoServer, subscriber: DemoServer) -> Iterator[tuple[Side, Side, str]]:
    """Create two databases, and a name for their subscription. All are dropped at the end."""
    number = next(NUMBERS)
    sides = []
    for role, server in (("pub", publisher), ("sub", subscriber)):
        Side(server, "postgres").execute(f"CREATE DATABASE bench_{role}_{number}")
        sides.append(Side(server, f"bench_{role}_{number}"))
    pub, sub = sides
    name = f"bench_{number}"
    try:
        yield pub, sub, name
    finally:
        if sub.execute("SELECT 1 FROM pg_subscription WHERE subname = '" + name + "'"):
            sub.execute(f"DROP SUBSCRIPTION {name}")
        for side in (sub, pub):
            Side(side.server, "postgres").execute(f"DROP DATABASE {side.database} WITH (FORCE)")


def fill(pub: Side, rows: int, first: int = 1, step: int = 100_000) -> None:
    """Insert rows like those of pgbench_accounts, `step` rows in each transaction."""
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        for start in range(first, first + rows, step):
            end = min(start + step, first + rows) - 1
            session.execute(f"INSERT INTO accounts SELECT g, g % 100, 0, 'filler' FROM generate_series({start}, {end}) g".encode())


def subscribe(pub: Side, sub: Side, name: str, options: str = "") -> None:
    """Create a subscription to publication p."""
    sub.execute(f"CREATE SUBSCRIPTION {name} CONNECTION '{pub.conninfo}' PUBLICATION p {options}")


def wait_synced(sub: Side) -> None:
    """Wait until every table of the database's subscriptions is ready."""
    with psycopg.connect(sub.conninfo, autocommit=True) as session:
        while True:
            row = session.execute("SELECT count(*), count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel").fetchone()
            if row and row[0] and row[0] == row[1]:
                return
            time.sleep(0.05)


def wait_flushed(pub: Side, name: str) -> None:
    """Wait until the subscriber has confirmed the publisher's current position as flushed."""
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        target = session.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert target
        query = "SELECT %s::pg_lsn <= flush_lsn FROM pg_stat_replication WHERE application_name = %s"
        while not (row := session.execute(query, (target[0], name)).fetchone()) or not row[0]:
            time.sleep(0.02)


def catch_up(pub: Side, sub: Side, name: str, write: Callable[[], object]) -> Cost:
    """Return the cost of catching up with the changes that are written while the subscription is disabled."""
    sub.execute(f"ALTER SUBSCRIPTION {name} DISABLE")
    while pub.execute(f"SELECT 1 FROM pg_stat_replication WHERE application_name = '{name}'"):
        time.sleep(0.05)
    write()
    meter = Meter(pub.server, sub.server)
    sub.execute(f"ALTER SUBSCRIPTION {name} ENABLE")
    wait_flushed(pub, name)
    return meter.cost()


def prepare(pub: Side, sub: Side, condition: str = "") -> None:
    """Create table accounts on both sides, and publication p of it. `condition` is a row filter."""
    pub.execute(ACCOUNTS)
    sub.execute(ACCOUNTS)
    pub.execute(f"CREATE PUBLICATION p FOR TABLE accounts {condition}")


def copy_cost(publisher: DemoServer, subscriber: DemoServer, rows: int, condition: str = "") -> Cost:
    """Return the cost from CREATE SUBSCRIPTION on a filled table until the table is ready."""
    with pair(publisher, subscriber) as (pub, sub, name):
        prepare(pub, sub, condition)
        fill(pub, rows, step=1_000_000)
        meter = Meter(publisher, subscriber)
        subscribe(pub, sub, name)
        wait_synced(sub)
        return meter.cost()


def stream_costs(
    publisher: DemoServer, subscriber: DemoServer, inserts: int, updates: int, deletes: int, options: str = ""
) -> tuple[Cost, Cost]:
    """Return the costs of catching up with inserts, and then with updates and deletes."""
    with pair(publisher, subscriber) as (pub, sub, name):
        prepare(pub, sub)
        subscribe(pub, sub, name, options)
        wait_synced(sub)
        inserted = catch_up(pub, sub, name, lambda: fill(pub, inserts, step=1000))
        changed = catch_up(pub, sub, name, lambda: change(pub, updates, deletes))
        assert sub.execute("SELECT count(*), sum(abalance) FROM accounts") == pub.execute("SELECT count(*), sum(abalance) FROM accounts")
        return inserted, changed


def change(pub: Side, updates: int, deletes: int, step: int = 1000) -> None:
    """Update the first keys and delete the keys after them, `step` rows in each transaction."""
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        for start in range(1, updates + 1, step):
            session.execute(f"UPDATE accounts SET abalance = aid WHERE aid BETWEEN {start} AND {min(start + step - 1, updates)}".encode())
        for start in range(updates + 1, updates + deletes + 1, step):
            session.execute(f"DELETE FROM accounts WHERE aid BETWEEN {start} AND {min(start + step - 1, updates + deletes)}".encode())


def one_row_seconds(publisher: DemoServer, subscriber: DemoServer, transactions: int, rows: int = 100_000) -> float:
    """Return the seconds of catching up with transactions of one row each: updates of random keys and inserts in turn."""
    with pair(publisher, subscriber) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, rows)
        subscribe(pub, sub, name)
        wait_synced(sub)
        seconds = catch_up(pub, sub, name, lambda: one_row_each(pub, transactions, rows)).seconds
        assert sub.execute("SELECT count(*), sum(abalance) FROM accounts") == pub.execute("SELECT count(*), sum(abalance) FROM accounts")
        return seconds


def one_row_each(pub: Side, transactions: int, rows: int) -> None:
    """Run single-row transactions in one DO statement, so that the publisher does not wait for a client between them."""
    update = (
        "DO $$ BEGIN FOR n IN {0}..{1} LOOP UPDATE accounts SET abalance = abalance + 1 WHERE aid = 1 + n::bigint * 7919 % {2}; COMMIT;"
    )
    update += " INSERT INTO accounts VALUES ({2} + n, 1, 1, 'new'); COMMIT; END LOOP; END $$"
    pub.execute(update.format(1, transactions // 2, rows))


def random_updates_seconds(publisher: DemoServer, subscriber: DemoServer, rows: int, updates: int = 1000, times: int = 5) -> list[float]:
    """Return the seconds of catching up with a transaction that updates random keys of a table of `rows` rows, for each repetition."""
    with pair(publisher, subscriber) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, rows, step=1_000_000)
        subscribe(pub, sub, name)
        wait_synced(sub)
        chosen = f"SELECT 1 + (n::bigint * 7919 + {{0}}) % {rows} FROM generate_series(1, {updates}) n"
        update = f"UPDATE accounts SET abalance = abalance + 1 WHERE aid IN ({chosen})"
        return [catch_up(pub, sub, name, lambda turn=turn: pub.execute(update.format(turn))).seconds for turn in range(times)]  # type: ignore[misc]


def batch_milliseconds(publisher: DemoServer, subscriber: DemoServer, rows: int, batches: int) -> tuple[list[float], float, float]:
    """Return the milliseconds of each of many commits that wait for the subscriber, and of reading the table afterwards.

    Each commit updates ten rows. The second result is the median time of reading a fresh copy of the table, the third that of reading the
    table that got the commits.
    """
    with pair(publisher, subscriber) as (pub, sub, name), pair(publisher, subscriber) as (_, fresh, another):
        prepare(pub, sub)
        fill(pub, rows)
        subscribe(pub, sub, name)
        wait_synced(sub)
        wait_flushed(pub, name)
        milliseconds = []
        with synchronous(pub, name), psycopg.connect(pub.conninfo, autocommit=True) as session:
            for number in range(batches):
                keys = [1 + (number * 10 + row) * 7919 % rows for row in range(10)]
                began = time.perf_counter()
                session.execute("UPDATE accounts SET abalance = abalance + 1 WHERE aid = ANY (%s)", (keys,))
                milliseconds.append((time.perf_counter() - began) * 1000)
        fresh.execute(ACCOUNTS)
        subscribe(pub, fresh, another)
        wait_synced(fresh)
        assert fresh.execute(READ) == sub.execute(READ)
        return milliseconds, read_milliseconds(fresh), read_milliseconds(sub)


READ = "SELECT count(*), sum(abalance), max(filler) FROM accounts WHERE bid < 90"


@contextmanager
def synchronous(pub: Side, name: str) -> Iterator[None]:
    """Make commits on the publisher wait for the subscription (synchronous_standby_names)."""
    for value in (name, ""):
        pub.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{value}'")
        pub.execute("SELECT pg_reload_conf()")
        while pub.execute("SHOW synchronous_standby_names") != [(value,)]:
            time.sleep(0.02)
        if value:
            yield


def read_milliseconds(side: Side, times: int = 5) -> float:
    """Return the median milliseconds of reading the whole table."""
    with psycopg.connect(side.conninfo, autocommit=True) as session:
        milliseconds = []
        for _ in range(times):
            began = time.perf_counter()
            session.execute(READ.encode())
            milliseconds.append((time.perf_counter() - began) * 1000)
        return statistics.median(milliseconds)


def latency(publisher: DemoServer, subscriber: DemoServer, rate: int, seconds: float, rows: int = 100_000) -> list[float]:
    """Return the milliseconds from each COMMIT on the publisher to its confirmed flush. Single-row inserts and updates alternate."""
    with pair(publisher, subscriber) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, rows)
        subscribe(pub, sub, name)
        wait_synced(sub)
        wait_flushed(pub, name)
        flushes: list[tuple[int, float]] = []  # flushed position, time
        stop = threading.Event()
        poller = threading.Thread(target=poll, args=(pub, name, flushes, stop), daemon=True)
        poller.start()
        commits = write_at_rate(pub, rate, seconds, rows)
        wait_flushed(pub, name)
        time.sleep(0.1)
        stop.set()
        poller.join()
        positions = [lsn for lsn, _ in flushes]
        return [(flushes[bisect.bisect_left(positions, lsn)][1] - committed) * 1000 for lsn, committed in commits]


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def percentiles(milliseconds: list[float]) -> str:
    """Return p50, p95 and p99 as text for the report."""
    return ", ".join(f"p{int(share * 100)} {percentile(milliseconds, share) / 1000:.2f} s" for share in (0.5, 0.95, 0.99))


def write_at_rate(pub: Side, rate: int, seconds: float, rows: int) -> list[tuple[int, float]]:
    """Run `rate` single-row transactions per second. Return the position and time of each commit."""
    commits = []
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        began = time.perf_counter()
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if number % 2:
                session.execute("UPDATE accounts SET abalance = abalance + 1 WHERE aid = %s", (1 + number * 7919 % rows,))
            else:
                session.execute("INSERT INTO accounts VALUES (%s, 1, 1, 'new')", (rows + 1 + number,))
            committed = time.perf_counter()
            commits.append((position(session, "SELECT pg_current_wal_lsn() - '0/0'"), committed))
    return commits


def poll(pub: Side, name: str, flushes: list[tuple[int, float]], stop: threading.Event) -> None:
    """Record each advance of the subscription's flushed position and its time, until `stop` is set."""
    with psycopg.connect(pub.conninfo, autocommit=True) as session:
        while not stop.is_set():
            flushed = position(session, f"SELECT flush_lsn - '0/0' FROM pg_stat_replication WHERE application_name = '{name}'")
            if not flushes or flushed > flushes[-1][0]:
                flushes.append((flushed, time.perf_counter()))
            time.sleep(0.005)


def position(session: psycopg.Connection, query: str) -> int:
    """Return the number that the query selects, 0 if it returns no row or NULL."""
    row = session.execute(query.encode()).fetchone()
    return int(row[0]) if row and row[0] is not None else 0
