"""Statements that write the catalogs while a subscription applies changes all the time.

Called by `__main__` with a publisher and the node. The commits of other sessions must not make each statement of a transaction slower.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.replication import Side, fill, pair, prepare, subscribe, wait_synced
from headgate.cli.demo.servers import DemoServer

ACCOUNTS = 100_000
RATE = 200
"""Transactions per second. The machine keeps some capacity for the statements that are measured."""
STATEMENTS = 5
"""Statements of a dump for each table: CREATE TABLE, OWNER TO, COMMENT, ADD CONSTRAINT, CREATE INDEX."""


@contextmanager
def load(publisher: DemoServer, subscriber: DemoServer) -> Iterator[list[int]]:
    """Run a subscription whose publisher updates rows all the time. The list has one element, the number of transactions."""
    with pair(publisher, subscriber) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, ACCOUNTS)
        subscribe(pub, sub, name)
        wait_synced(sub)
        stop, transactions = threading.Event(), [0]

        def update() -> None:
            began = time.perf_counter()
            with psycopg.connect(pub.conninfo, autocommit=True) as session:
                while not stop.wait(max(transactions[0] / RATE - (time.perf_counter() - began), 0)):
                    session.execute("UPDATE accounts SET abalance = abalance + 1 WHERE aid = %s", [transactions[0] * 7919 % ACCOUNTS + 1])
                    transactions[0] += 1

        thread = threading.Thread(target=update)
        thread.start()
        try:
            yield transactions
        finally:
            stop.set()
            thread.join()


def create_tables(side: Side, count: int) -> None:
    """Create tables that have a key, an index and a comment each, and a publication of them."""
    with psycopg.connect(side.conninfo) as session:
        for number in range(count):
            session.execute(
                f"CREATE TABLE t_{number} (id int PRIMARY KEY, a text NOT NULL, b numeric(10,2) DEFAULT 0, c timestamptz)".encode()
            )
            session.execute(f"CREATE INDEX ON t_{number} (a)".encode())
            session.execute(f"COMMENT ON TABLE t_{number} IS 'the table number {number}'".encode())
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")


def subscribe_seconds(publisher: Side, subscriber: Side) -> float:
    """Return the seconds of a CREATE SUBSCRIPTION that creates the tables."""
    began = time.perf_counter()
    subscribe(publisher, subscriber, "bench_busy", "WITH (create_tables = true, copy_data = false)")
    seconds = time.perf_counter() - began
    subscriber.execute("DROP SUBSCRIPTION bench_busy")
    return seconds


def restore_seconds(source: Side, target: Side, folder: Path, *options: str) -> float:
    """Return the seconds that psql takes to restore a dump of the tables."""
    script = folder / "dump.sql"
    pg_dump = ["pg_dump", "-s", "--no-publications", "-f", str(script), "-d", source.conninfo]
    subprocess.run(pg_dump, check=True, capture_output=True)
    began = time.perf_counter()
    command = ["psql", "-X", "-q", *options, "-v", "ON_ERROR_STOP=1", "-d", target.conninfo, "-f", str(script)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began
