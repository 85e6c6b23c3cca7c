"""The table of the demonstration, its publications and subscriptions, its live workload, and the expected rows of each server.

Called by `course`. The chain has two filters. Node A subscribes to the orders of region eu, with some of their columns. Node B subscribes
to those of node A whose amount is at least 100. The last PostgreSQL subscribes to all rows of node B.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from headgate.cli.demo.servers import DemoServer

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
