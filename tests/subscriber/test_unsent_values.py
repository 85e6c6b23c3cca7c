"""For values that the publisher does not send (unchanged TOAST, columns of the subscriber), a node keeps those that a PostgreSQL subscriber
keeps.

The property test draws tables (identity, key, storage, extra columns of the subscriber) and transactions that change rows several times.
Some rows are missing on the subscribers, so that changes are skipped. The transactions of a round arrive together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.conftest import Server, until
from tests.subscriber.conftest import READY, Publisher, Subscriber

COLUMNS = "id int NOT NULL, k text NOT NULL, big text, n int NOT NULL, c numeric"
LARGE = "(SELECT string_agg(md5(i::text || '{}'), '') FROM generate_series(1, {}) i)"
IDENTITIES = {
    "key": "ALTER TABLE {0} ADD PRIMARY KEY ({1})",
    "index": "ALTER TABLE {0} ADD CONSTRAINT {0}_key UNIQUE ({1}); ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_key",
    "full": "ALTER TABLE {0} ADD PRIMARY KEY ({1}); ALTER TABLE {0} REPLICA IDENTITY FULL",
    "full without a key": "ALTER TABLE {0} REPLICA IDENTITY FULL",
    "nothing": "ALTER TABLE {0} REPLICA IDENTITY NOTHING",
}
LOCAL = {
    "nothing": "",
    "generated": ", g int GENERATED ALWAYS AS (length(coalesce(big, k)) + n) STORED, h text GENERATED ALWAYS AS (left(big, 5)) STORED",
    "own column": ", own int DEFAULT 5, g int GENERATED ALWAYS AS (own * n) STORED, CHECK (own + n > -1000)",
    "check": ", CHECK (length(k) > 0 AND n > -1000 AND length(big) > 0), h numeric GENERATED ALWAYS AS (c + 1) STORED",
}
PARTITIONED = {
    "": "",
    "list": "CREATE TABLE {0}_0 PARTITION OF {0} FOR VALUES IN ('short'); CREATE TABLE {0}_1 PARTITION OF {0} DEFAULT;"
    " ALTER TABLE {0}_1 ADD CHECK (length(k) + n > -1000 AND length(big) > 0)",
    "hash": "CREATE TABLE {0}_0 PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
    " CREATE TABLE {0}_1 PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
}


@dataclass(frozen=True)
class Definition:
    """A published table, and how the subscriber's table differs."""

    identity: str
    key: str
    external_key: bool
    external: bool
    local: str
    partitioned: str

    def published(self, name: str) -> str:
        """Return the CREATE TABLE of the publisher."""
        storage = "".join(
            f"; ALTER TABLE {name} ALTER {column} SET STORAGE EXTERNAL"
            for column, is_external in (("k", self.external_key), ("big", self.external))
            if is_external
        )
        return f"CREATE TABLE {name} ({COLUMNS}); {IDENTITIES[self.identity].format(name, self.key)}{storage}"

    def subscribed(self, name: str) -> str:
        """Return the CREATE TABLE of a subscriber."""
        partition_by = f" PARTITION BY {self.partitioned} (k)" if self.partitioned else ""
        identity = {"nothing": "SELECT", "full without a key": IDENTITIES["full without a key"]}.get(self.identity, IDENTITIES["key"])
        table = f"CREATE TABLE {name} ({COLUMNS}{LOCAL[self.local]}){partition_by}; {identity.format(name, self.key)}"
        return f"{table}; {PARTITIONED[self.partitioned].format(name)}"


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    identity = draw(st.sampled_from([*IDENTITIES]))
    key = draw(st.sampled_from(["id", "k", "id, k", "k, id"]))
    partitioned = draw(st.sampled_from([*PARTITIONED]))
    if identity not in ("full without a key", "nothing") and "k" not in key:
        partitioned = ""
    local = draw(st.sampled_from([*LOCAL]))
    if identity == "full without a key" and local == "own column":
        local = "generated"  # PostgreSQL finds no row whose own column is not NULL
    return Definition(identity, key, draw(st.booleans()), draw(st.booleans()), local, partitioned)


NUMBERS = st.integers(0, 4)
keys = st.sampled_from(["'short'", "'other'", *(LARGE.format(mark, 80) for mark in "abc")])
larges = st.sampled_from(["'little'", *(LARGE.format(mark, 300) for mark in "xyz"), "NULL"])
statements = st.one_of(
    st.builds(
        "INSERT INTO {{0}} SELECT {0}, k, {2}, {3}, '1.{4}' FROM (SELECT {1} AS k) AS s"
        " WHERE NOT EXISTS (SELECT FROM {{0}} t WHERE t.id = {0} OR t.k = s.k)".format, NUMBERS, keys, larges, NUMBERS, st.sampled_from(["0", "00", "5"]),
    ),
    st.builds("UPDATE {{0}} SET n = n + {}".format, NUMBERS),
    st.builds("UPDATE {{0}} SET n = n + 1, c = c + 0.{} WHERE id <= {}".format, st.sampled_from(["0", "00", "1"]), NUMBERS),
    st.builds("UPDATE {{0}} SET big = {} WHERE id = {}".format, larges, NUMBERS),
    st.builds("UPDATE {{0}} SET c = NULL WHERE id = {}".format, NUMBERS),
    st.builds(
        "UPDATE {{0}} SET k = s.k, n = n + 1 FROM (SELECT {} AS k) AS s WHERE id = {} AND NOT EXISTS (SELECT FROM {{0}} t WHERE t.k = s.k)".format,
        keys, NUMBERS,
    ),
    st.builds("UPDATE {{0}} SET id = {0} WHERE id = {1} AND NOT EXISTS (SELECT FROM {{0}} t WHERE t.id = {0})".format, NUMBERS, NUMBERS),
    st.builds("DELETE FROM {{0}} WHERE id = {}".format, NUMBERS),
    st.sampled_from(["TRUNCATE {0}", "INSERT INTO {0} SELECT 4, 'short', 'little', 1, 1 WHERE NOT EXISTS (SELECT FROM {0} WHERE id = 4 OR k = 'short')"]),
)  # fmt: skip
transactions = st.lists(st.lists(statements, min_size=1, max_size=6), min_size=1, max_size=6)
FIRST = "INSERT INTO {0} SELECT i, {1}, {2}, i, 1.0 FROM generate_series(0, 3) i"
STORED = FIRST.format(
    "{0}",
    "(SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 80) j)",
    "(SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 300) j)",
)


class Pair:
    """A PostgreSQL database and a node's database that subscribe to the same publication."""

    def __init__(self, publisher: Publisher, mirror: Subscriber, node: Subscriber) -> None:
        self.publisher, self.mirror, self.node = publisher, mirror, node
        self._rounds = 0

    def run(self, drawn: list[Definition], rounds: list[list[list[str]]], lost: int) -> None:
        """Create the tables, run the rounds of transactions, and compare the subscribers after each."""
        self._rounds += 1
        tables = {f"t{self._rounds}_{number}": definition for number, definition in enumerate(drawn)}
        self._subscribe(tables)
        try:
            for number, changes in enumerate(rounds):
                if number:
                    for database in (self.mirror, self.node):
                        database.sql("; ".join(f"DELETE FROM {name} WHERE id = {lost}" for name in tables))
                self._round(tables, changes)
                for name, definition in tables.items():
                    assert contents(self.node, name) == contents(self.mirror, name), f"{definition}, round {number}"
        finally:
            self._unsubscribe(tables)

    def _round(self, tables: dict[str, Definition], transactions: list[list[str]]) -> None:
        """Run transactions whose changes arrive at the node together."""
        self.node.sql("ALTER SUBSCRIPTION s DISABLE")
        for transaction in transactions:
            for name, definition in tables.items():
                statements = [sql for sql in transaction if definition.identity != "nothing" or sql.startswith(("INSERT", "TRUNCATE"))]
                self.publisher.sql(f"BEGIN; {';'.join(statements).format(name)}; COMMIT")
        self.node.sql("ALTER SUBSCRIPTION s ENABLE")
        self.publisher.wait_confirmed("mirror")
        self.publisher.wait_confirmed(seconds=120)

    def _subscribe(self, tables: dict[str, Definition]) -> None:
        for name, definition in tables.items():
            self.publisher.sql(f"{definition.published(name)}; {STORED.format(name)}")
            for database in (self.mirror, self.node):
                database.sql(definition.subscribed(name))
        self.publisher.sql(f"CREATE PUBLICATION p FOR TABLE {', '.join(tables)}")
        self.publisher.sql(f"SELECT pg_create_logical_replication_slot('{self.publisher.name}_mirror', 'pgoutput')")
        self.mirror.sql(
            self.publisher.subscription("create_slot = false", name="mirror")
        )  # creating the slot would wait for this statement's own transaction
        self.node.sql(self.publisher.subscription())
        for database in (self.mirror, self.node):
            database.wait(READY, "t", 120)

    def _unsubscribe(self, tables: dict[str, Definition]) -> None:
        self.mirror.sql("ALTER SUBSCRIPTION mirror DISABLE; ALTER SUBSCRIPTION mirror SET (slot_name = NONE); DROP SUBSCRIPTION mirror")
        self.node.sql("DROP SUBSCRIPTION s")
        slot = f"{self.publisher.name}_mirror"
        until(
            lambda: self.publisher.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") == "f", "the slot is in use"
        )
        self.publisher.sql(f"SELECT pg_drop_replication_slot('{slot}'); DROP PUBLICATION p")
        for database in (self.publisher, self.mirror, self.node):
            database.sql(f"DROP TABLE {', '.join(tables)}")


def contents(subscriber: Subscriber, table: str) -> list[str]:
    """Return the rows of a table in an order that is the same for both kinds of server."""
    names = subscriber.sql(
        f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    ).split("\n")
    expressions = [f"md5({name}), length({name})" if name in ("k", "big") else name for name in names]
    return sorted(subscriber.sql(f"SELECT {', '.join(expressions)} FROM {table}").split("\n"))


@pytest.fixture
def make_pair(postgres: Server, publisher: Publisher) -> Iterator[Callable[[Subscriber], Pair]]:
    """Return a function that creates a pair."""
    mirror = Subscriber(postgres)
    yield lambda node: Pair(publisher, mirror, node)
    mirror.close()


ROUNDS = st.lists(transactions, min_size=2, max_size=2)
DRAWN = settings(
    deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


CHOSEN = [
    Definition("full without a key", "id", external_key=True, external=True, local="generated", partitioned="list"),
    Definition("full", "k", external_key=True, external=True, local="own column", partitioned="list"),
    Definition("key", "id, k", external_key=True, external=True, local="check", partitioned="hash"),
    Definition("index", "k", external_key=True, external=True, local="generated", partitioned=""),
]
TOUCHED = [
    ["UPDATE {0} SET n = n + 1", "UPDATE {0} SET n = n + 1, c = c + 0.00", "DELETE FROM {0} WHERE id = 1"],
    ["UPDATE {0} SET big = 'little' WHERE id = 0", "UPDATE {0} SET id = 4 WHERE id = 0", "UPDATE {0} SET n = 7 WHERE id = 4"],
    ["UPDATE {0} SET k = 'short' WHERE id = 3", "UPDATE {0} SET n = n + 1", "UPDATE {0} SET id = 0 WHERE id = 2"],
]


def test_rows_changed_several_times_equal_those_of_a_postgresql_subscriber(make_pair, subscriber) -> None:
    make_pair(subscriber).run(CHOSEN, [TOUCHED], 2)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["20000", "0"], ids=["driver", "tasks"])
def test_rows_of_drawn_tables_and_transactions_equal_those_of_a_postgresql_subscriber(make_pair, spare, rows: str) -> None:
    pair = make_pair(spare(small_batch_rows=rows))

    @settings(DRAWN, max_examples=25 if rows != "0" else 6)
    @given(st.lists(definitions(), min_size=6, max_size=12), ROUNDS, NUMBERS)
    def holds(drawn: list[Definition], rounds: list[list[list[str]]], lost: int) -> None:
        pair.run(drawn, rounds, lost)

    holds()
