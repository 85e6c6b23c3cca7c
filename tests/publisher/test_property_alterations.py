"""While publications are altered at random, every subscriber has the rows that the filters select whenever it has caught up.

The publisher is a node with a table and a partitioned table in two publications. One of them is altered occasionally, also inside
transactions, while rows change. PostgreSQL 15, PostgreSQL 18 and a node subscribe to both. The expected rows are read from the publisher:
the rows of each table that pass one of the filters, in the published columns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.conftest import NodeServer, Server
from tests.system.chain import Database, arrived, subscribe

TABLES = """CREATE TABLE t (a int, k text, c text, n numeric(6,2), PRIMARY KEY (a, k));
CREATE TABLE r (a int, k text, c text, n numeric(6,2), PRIMARY KEY (a, k)) PARTITION BY LIST (k);
CREATE TABLE r1 PARTITION OF r FOR VALUES IN ('x', 'y'); CREATE TABLE r2 PARTITION OF r DEFAULT;"""
PLAIN = "CREATE TABLE {} (a int, k text, c text, n numeric(6,2), PRIMARY KEY (a, k));"
FILTERS = (
    "a > 5", "a % 2 = 0", "k = 'x'", "k <> 'y' AND a < 12", "a BETWEEN 3 AND 9 OR k = 'z'", "k IN ('x', 'z')", "NOT (a = 7)",
    "k LIKE 'y%'", "length(k) = a", "coalesce(k, '') > 'x'",
)  # fmt: skip
COLUMNS = ("a, k", "a, k, c", "a, k, n", "a, k, c, n")


@dataclass
class Publications:
    """The test's record of the publications: for each, the filters by table (None: every row)."""

    draw: random.Random
    has: dict[str, dict[str, str | None]] = field(default_factory=lambda: {"p": {"t": None, "r": None}, "q": {}})
    columns: str = COLUMNS[-1]

    def altered(self) -> str:
        """Draw a statement that alters one of them."""
        # the lists of two publications must be the same: only p alone has one
        name = self.draw.choice("ppq") if self.columns == COLUMNS[-1] else "p"
        old_filters = self.has[name]
        if old_filters and self.draw.random() < 0.2:
            self.has[name] = {}
            return f"ALTER PUBLICATION {name} DROP TABLE {', '.join(old_filters)}"
        tables = [table for table in "tr" if self.draw.random() < 0.8] or ["t"]
        self.has[name] = {table: self.draw.choice((None, *FILTERS, *FILTERS)) for table in tables}
        self.columns = COLUMNS[-1] if self.has["q"] else self.draw.choice(COLUMNS)
        listed = "" if self.columns == COLUMNS[-1] else f" ({self.columns})"
        parts = [f"{table}{listed}" + (f" WHERE ({where})" if where else "") for table, where in self.has[name].items()]
        return f"ALTER PUBLICATION {name} SET TABLE {', '.join(parts)}"

    def selected(self, table: str) -> str | None:
        """Return the WHERE clause of the published rows, or None if no row is published."""
        filters = [tables[table] for tables in self.has.values() if table in tables]
        if not filters:
            return "false"
        return "true" if None in filters else " OR ".join(f"({condition})" for condition in filters)


def changes(draw: random.Random) -> str:
    """Draw a statement that changes some rows."""
    table, key = draw.choice("tr"), draw.randrange(15)
    where = f"a BETWEEN {key} AND {key + draw.randrange(4)}"
    kind = draw.random()
    if kind < 0.4:
        letter = draw.choice("xyz")
        rows = f"SELECT i, '{letter}', 'c' || i, i / 4.0 FROM generate_series({key}, {key + 3}) i"
        return f"INSERT INTO {table} {rows} ON CONFLICT (a, k) DO UPDATE SET c = excluded.c || 'again'"
    if kind < 0.7:
        return f"UPDATE {table} SET c = c || '{key}', n = n + 1 WHERE {where}"
    if kind < 0.85:
        longest = f"SELECT max(k) FROM {table} WHERE a = {key}"  # the others might become a key that is there
        return f"UPDATE {table} SET k = k || 'y' WHERE a = {key} AND length(k) < 3 AND k = ({longest})"
    return f"DELETE FROM {table} WHERE {where}"


@dataclass
class Chain:
    publisher: Database
    subscribers: dict[str, Database]

    def differences(self, publications: Publications) -> list[str]:
        """Return the tables in which a subscriber that has caught up does not have the expected rows."""
        differing = []
        for name, subscriber in self.subscribers.items():
            arrived(self.publisher, name)
            for table in "tr":
                query = "SELECT {} FROM {} WHERE {} ORDER BY a, k"
                expected = self.publisher.sql(query.format(publications.columns, table, publications.selected(table)))
                actual = subscriber.sql(query.format(publications.columns, table, "true"))
                if actual != expected:
                    differing.append(f"{name} {table} {publications.has}\nthere:\n{expected}\nhere:\n{actual}")
        return differing


@pytest.fixture
def chain(of_version: Callable[[int], Server], node: Server, spare_node: Callable[..., NodeServer]) -> Iterator[Chain]:
    publisher = Database.new(spare_node())
    publisher.sql(
        f"""{TABLES} CREATE PUBLICATION p FOR TABLE t, r WITH (reconcile = true, publish_via_partition_root = true);
        CREATE PUBLICATION q WITH (reconcile = true, publish_via_partition_root = true)"""
    )
    subscribers = {"fifteen": Database.new(of_version(15)), "eighteen": Database.new(of_version(18)), "lake": Database.new(node)}
    for name, database in subscribers.items():
        database.sql(PLAIN.format("t") + PLAIN.format("r"))
        subscribe(database, publisher, name, "p, q")
    yield Chain(publisher, subscribers)
    for database in subscribers.values():
        database.unsubscribe()


def play(chain: Chain, draw: random.Random, rounds: int) -> None:
    publications = Publications(draw)
    script: list[str] = []
    for _ in range(rounds):
        for _ in range(draw.randrange(1, 5)):
            steps = [publications.altered() if draw.random() < 0.3 else changes(draw) for _ in range(draw.randrange(1, 5))]
            script.append(f"BEGIN; {'; '.join(steps)}; COMMIT" if draw.random() < 0.5 else "; ".join(steps))
            chain.publisher.sql(script[-1])
        differing = chain.differences(publications)
        assert not differing, "\n".join([*script, *differing])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_subscribers_follow_random_alterations(chain: Chain, seed: int) -> None:
    play(chain, random.Random(seed), 20)
