"""Tables with any names and values are created, copied and streamed from PostgreSQL to a node, and from that node to another.

`tests/server/test_any_name.py` tests any name on a single server. `test_hostile_names.py` has a list of chosen names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.conftest import Server
from tests.server.test_any_name import NAMES, TEXTS, literal, quoted
from tests.subscriber.conftest import Publisher, Subscriber

from headgate.storage.delta.delta_log import _READERS_OWN, _RESERVED

KEYWORDS = [
    "_delta_log", "..", "/", "%", "a/b", "%2e%2e", "__HIVE_DEFAULT_PARTITION__", "_SUCCESS", "part-0", "struct", "pivot", "anti", "qualify", "describe", "lateral",
    "summarize", "temp", "main", "memory", "system", "ü" * 31 + "x", "😀" * 16, "a\nb", "\\x00", "NaN", "rowid", "default", "timestamp", "current_date",
]  # fmt: skip
READY_HERE = """
    SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid
    JOIN pg_database d ON d.oid = subdbid WHERE datname = current_database()"""
ANY = st.one_of(st.sampled_from(KEYWORDS), NAMES).map(lambda name: name.encode()[:63].decode(errors="ignore"))


def free(name: str) -> bool:
    """Return whether a text can be the name of a schema, a table and a column. Names that Delta does not support have their own tests."""
    return bool(name) and not name.startswith("pg_") and name.lower() not in {reserved.lower() for reserved in _RESERVED | _READERS_OWN}


@dataclass(frozen=True)
class Named:
    """A table with two columns, and the values that are written to it."""

    schema: str
    table: str
    column: str
    label: str
    first: str
    second: str

    @property
    def shown(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def key(self) -> str:
        return quoted("k" if self.column != "k" else "l")

    @property
    def kind(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table[:15] + '!')}"

    def made(self) -> str:
        """Return the statements that create the table in the publisher, with a row, which is copied. Its type is an enum with any label."""
        return (
            f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}; CREATE TYPE {self.kind} AS ENUM ({literal(self.label)});"
            f"CREATE TABLE {self.shown} ({self.key} int PRIMARY KEY, {quoted(self.column)} text, m {self.kind});"
            f"INSERT INTO {self.shown} VALUES (1, {literal(self.first)}, {literal(self.label)})"
        )

    def type_made(self) -> str:
        """Return the statements that create the type in a subscriber, because replication does not create types."""
        return self.made().split(";CREATE TABLE")[0]

    def changed(self) -> str:
        return (
            f"INSERT INTO {self.shown} VALUES (2, {literal(self.second)}, NULL), (3, {literal(self.first)}, {literal(self.label)});"
            f"UPDATE {self.shown} SET {quoted(self.column)} = {literal(self.second)} WHERE {quoted(self.column)} = {literal(self.first)};"
            f"DELETE FROM {self.shown} WHERE {self.key} = 3"
        )

    def rows(self) -> str:
        return f"SELECT * FROM {self.shown} ORDER BY 1"


def tables(count: int) -> st.SearchStrategy[list[Named]]:
    """Draw this number of tables with different names."""
    table = st.builds(
        Named, ANY.filter(free), ANY.filter(free), ANY.filter(lambda name: free(name) and name != "m"), ANY.filter(bool), TEXTS, TEXTS
    )
    return st.lists(table, min_size=count, max_size=count, unique_by=(lambda table: table.shown, lambda table: table.table[:15]))


@dataclass
class Scene:
    """A PostgreSQL database, a node's database that subscribes to it and publishes, and another one that subscribes to that."""

    publisher: Publisher
    first: Subscriber
    second: Subscriber

    def check(self, some: list[Named]) -> None:
        """Check that both subscribers get all rows of the publisher."""
        for table in some:
            self.publisher.sql(table.made())
            self.first.sql(table.type_made())
            self.second.sql(table.type_made())
        self.publisher.sql("CREATE PUBLICATION p FOR ALL TABLES")
        self.first.sql(self.publisher.subscription("create_tables"))
        self.first.wait(READY_HERE, "t")
        self.first.sql("CREATE PUBLICATION p FOR ALL TABLES")
        options = f"slot_name = '{self.second.name}_s', create_tables"
        self.second.sql(f"CREATE SUBSCRIPTION s CONNECTION '{self.first.conninfo}' PUBLICATION p WITH ({options})")
        self.second.wait(READY_HERE, "t")
        for table in some:
            self.publisher.sql(table.changed())
        for table in some:
            expected = self.publisher.sql(table.rows())
            self.first.wait(table.rows(), expected, seconds=60)
            self.second.wait(table.rows(), expected, seconds=60)

    def clear(self, some: list[Named]) -> None:
        """Drop everything that the example has created."""
        self.second.unsubscribe()
        self.first.unsubscribe()
        for station in (self.first, self.publisher):
            station.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
            station.sql("DROP PUBLICATION IF EXISTS p")
        for station in (self.publisher, self.first, self.second):
            for table in some:
                station.sql(f"DROP TABLE IF EXISTS {table.shown}; DROP TYPE IF EXISTS {table.kind}")
                if table.schema != "public":
                    station.sql(f"DROP SCHEMA IF EXISTS {quoted(table.schema)} CASCADE")


@pytest.fixture
def scene(publisher: Publisher, subscriber: Subscriber, node: Server) -> Iterator[Scene]:
    second = Subscriber(node)
    yield Scene(publisher, subscriber, second)
    second.close()


@settings(max_examples=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(some=tables(2))
def test_tables_with_any_names_are_replicated_through_two_nodes(scene: Scene, some: list[Named]) -> None:
    scene.check(some)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(some=tables(6))
def test_tables_with_any_names_are_replicated_through_two_nodes_in_many_examples(scene: Scene, some: list[Named]) -> None:
    try:
        scene.check(some)
    finally:
        scene.clear(some)
