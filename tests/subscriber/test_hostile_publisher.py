"""A node rejects or stores what a publisher sends in a falsified field, and continues.

`tests/walreceiver/test_hostile_publisher.py` falsifies every field in every way, without a node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import psycopg
import pytest
from tests.conftest import Server, until
from tests.subscriber.conftest import Publisher, Subscriber
from tests.wire import CORRUPTIONS, Change, Tap

TABLES = """
    CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE t (id int PRIMARY KEY, name text, price numeric, seen timestamptz, feels mood);
    INSERT INTO t SELECT n, 'name', n, now(), 'glad' FROM generate_series(1, 3) n; CREATE PUBLICATION p FOR TABLE t WHERE (id <> 1000);
    CREATE TABLE honest (a int PRIMARY KEY); CREATE PUBLICATION q FOR TABLE honest"""
READ = re.compile(r"[DdRYOIU]\.")
"""Fields that a node reads. Those that only libpq reads have their own tests."""
TRIES = 200
UNNOTICED = {"a notification": ("I.", "d."), "minus one": ("d.0",)}
"""Corruptions that are omitted because no subscriber can notice them: the row is not sent, or it has another valid key."""
EXPECTED_TABLE = """
    SELECT srrelid::regclass, string_agg(attname, ',' ORDER BY attnum) FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid
    JOIN pg_attribute ON attrelid = srrelid WHERE subname = 's' AND attnum > 0 GROUP BY srrelid"""
"""The definition of the table that a subscription must have created."""


class Scene:
    """A publisher behind a proxy that falsifies fields, and an honest one with the same contents."""

    def __init__(self, publisher: Publisher, subscriber: Subscriber) -> None:
        self.publisher, self.subscriber = publisher, subscriber
        publisher.sql(TABLES)
        subscriber.sql("CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE honest (a int PRIMARY KEY)")
        subscriber.sql(publisher.subscription(publication="q", name="honest"))
        self.refused: list[psycopg.errors.Diagnostic] = []
        self.number = 100

    def replicate(self, choose: Callable[[str, str], Change | None]) -> list[tuple[str, str]]:
        """Run the whole life of a subscription that creates its tables and columns. Return the fields that were falsified."""
        with Tap(self.publisher.server.port) as tap:
            tap.choose = lambda query, name: choose(query, name) if READ.match(name) else None
            self._subscribe(tap)
            self.number += 10
            self._arrives(
                f"INSERT INTO t VALUES ({self.number}, 'new', 1, now(), 'sad'); UPDATE t SET name = 'newer' WHERE id = {self.number}"
            )
            self.publisher.sql("ALTER TABLE t ADD COLUMN more text")
            self.number += 1
            self._arrives(f"INSERT INTO t VALUES ({self.number}, 'last', 1, now(), 'sad', 'more')")
            self._drop()
            return tap.corrupted

    def _subscribe(self, tap: Tap) -> None:
        """Repeat until the subscription has the expected table."""
        conninfo = f"host=127.0.0.1 port={tap.port} dbname={self.publisher.name} user=postgres sslmode=disable gssencmode=disable"
        options = f"slot_name = '{self.publisher.name}_s', create_tables, schema_evolution = 'add_columns'"
        for _ in range(TRIES):
            self.publisher.sql(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = current_database() || '_s'"
            )
            try:
                self.subscriber.sql(f"CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p WITH ({options})")
            except psycopg.Error as error:
                self.refused.append(error.diag)
                continue
            if self.subscriber.sql(EXPECTED_TABLE) == "t|id,name,price,seen,feels":
                return
            self._drop()
        raise AssertionError("no subscription")

    def _arrives(self, change: str) -> None:
        """Check that changes of both publishers arrive."""
        self.publisher.sql(f"{change}; INSERT INTO honest VALUES ({self.number})")
        self.subscriber.wait(f"SELECT count(*) FROM honest WHERE a = {self.number}", "1", seconds=60)
        self.subscriber.wait(
            f"SELECT count(*) FROM t WHERE id = {self.number}", "1", seconds=180
        )  # each corruption may cost a start of the worker

    def _drop(self) -> None:
        self.subscriber.sql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
        count = self.subscriber.sql(
            "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relkind = 'r' AND (relnamespace = 2200 OR relnamespace >= 16384) AND relname <> 'honest'"
        )
        if count:
            self.subscriber.sql(f"DROP TABLE {count}")

    def unharmed(self) -> None:
        """Check that no falsified statement was executed, and that no thread has ended with an unexpected error."""
        assert self.subscriber.sql("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'pwned%'") == "0"
        assert not [error for error in self.refused if error.sqlstate is None or "Error" in (error.message_detail or "")]
        messages = "\n".join(entry.message for entry in self.subscriber.log.entries())
        assert not re.findall(r"worker failed|receiver failed|unforeseen|Traceback|thread .* failed", messages), messages[-3000:]


@pytest.fixture
def scene(publisher: Publisher, subscriber: Subscriber) -> Iterator[Scene]:
    scene = Scene(publisher, subscriber)
    yield scene
    publisher.sql("ALTER TABLE t DROP COLUMN IF EXISTS more")


def resident(server: Server) -> int:
    """Return the megabytes of memory that the node's process uses."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1]) // 1024  # type: ignore[index]


def test_node_survives_a_publisher_that_falsifies_some_fields(scene: Scene) -> None:
    titles = list(CORRUPTIONS)

    def choose(query: str, name: str) -> Change | None:
        chosen = crc32(f"{query}{name}".encode())
        return CORRUPTIONS[titles[chosen // 7 % len(titles)]] if chosen % 7 == 0 else None

    assert len(scene.replicate(choose)) > 3
    scene.unharmed()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_node_survives_a_publisher_that_falsifies_every_field(scene: Scene) -> None:
    memory_before = resident(scene.subscriber.server)
    for title, change in CORRUPTIONS.items():
        omitted = UNNOTICED.get(title, ())
        corrupted = scene.replicate(lambda query, name: None if name.startswith(omitted) else change)  # noqa: B023 (called before the next iteration)
        assert len(corrupted) > 30, title
        scene.unharmed()
        scene.publisher.sql("ALTER TABLE t DROP COLUMN more; DELETE FROM t WHERE id > 3")
    assert resident(scene.subscriber.server) - memory_before < 500
    until(lambda: scene.subscriber.sql("SELECT count(*) FROM pg_stat_subscription WHERE subname = 's'") == "0")
