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
from tests.wire import POISONS, Change, Tap

TABLES = """
    CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE t (id int PRIMARY KEY, name text, price numeric, seen timestamptz, feels mood);
    INSERT INTO t SELECT n, 'name', n, now(), 'glad' FROM generate_series(1, 3) n; CREATE PUBLICATION p FOR TABLE t WHERE (id <> 1000);
    CREATE TABLE honest (a int PRIMARY KEY); CREATE PUBLICATION q FOR TABLE honest"""
READ = re.compile(r"[DdRYOIU]\.")
"""Fields that a node reads; what libpq alone reads has tests of its own."""
TRIES = 200
UNNOTICED = {"a notification": ("I.", "d."), "minus one": ("d.0",)}
"""Fields that are not falsified in some ways, because no subscriber can notice it: the row is not sent, or it has another valid key."""
AS_IT_SHALL_BE = """
    SELECT srrelid::regclass, string_agg(attname, ',' ORDER BY attnum) FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid
    JOIN pg_attribute ON attrelid = srrelid WHERE subname = 's' AND attnum > 0 GROUP BY srrelid"""
"""The table that a subscription has made."""


class Scene:
    """A publisher that lies, through a proxy, and one that does not; both are the same."""

    def __init__(self, publisher: Publisher, subscriber: Subscriber) -> None:
        self.publisher, self.subscriber = publisher, subscriber
        publisher.sql(TABLES)
        subscriber.sql("CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE honest (a int PRIMARY KEY)")
        subscriber.sql(publisher.subscription(publication="q", name="honest"))
        self.refused: list[psycopg.errors.Diagnostic] = []
        self.number = 100

    def lied_to(self, poison: Callable[[str, str], Change | None]) -> list[tuple[str, str]]:
        """A whole life of a subscription, with tables and columns that it makes itself; the fields that were spoiled."""
        with Tap(self.publisher.server.port) as tap:
            tap.each = lambda query, name: poison(query, name) if READ.match(name) else None
            self._subscribe(tap)
            self.number += 10
            self._arrives(
                f"INSERT INTO t VALUES ({self.number}, 'new', 1, now(), 'sad'); UPDATE t SET name = 'newer' WHERE id = {self.number}"
            )
            self.publisher.sql("ALTER TABLE t ADD COLUMN more text")
            self.number += 1
            self._arrives(f"INSERT INTO t VALUES ({self.number}, 'last', 1, now(), 'sad', 'more')")
            self._drop()
            return tap.spoiled

    def _subscribe(self, tap: Tap) -> None:
        """Until the subscription has the table that it is to have."""
        conninfo = f"host=127.0.0.1 port={tap.port} dbname={self.publisher.name} user=postgres sslmode=disable gssencmode=disable"
        words = f"slot_name = '{self.publisher.name}_s', create_tables, schema_evolution = 'add_columns'"
        for _ in range(TRIES):
            self.publisher.sql(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = current_database() || '_s'"
            )
            try:
                self.subscriber.sql(f"CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p WITH ({words})")
            except psycopg.Error as error:
                self.refused.append(error.diag)
                continue
            if self.subscriber.sql(AS_IT_SHALL_BE) == "t|id,name,price,seen,feels":
                return
            self._drop()
        raise AssertionError("no subscription")

    def _arrives(self, change: str) -> None:
        """What is written arrives, and the honest publisher's too."""
        self.publisher.sql(f"{change}; INSERT INTO honest VALUES ({self.number})")
        self.subscriber.wait(f"SELECT count(*) FROM honest WHERE a = {self.number}", "1", seconds=60)
        self.subscriber.wait(f"SELECT count(*) FROM t WHERE id = {self.number}", "1", seconds=180)  # each lie costs a start of the worker

    def _drop(self) -> None:
        self.subscriber.sql("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
        count = self.subscriber.sql(
            "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relkind = 'r' AND (relnamespace = 2200 OR relnamespace >= 16384) AND relname <> 'honest'"
        )
        if count:
            self.subscriber.sql(f"DROP TABLE {count}")

    def unharmed(self) -> None:
        """Nothing of what was said has been done, and no thread has ended in an error that nobody foresaw."""
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
    """Megabytes that the node's process has."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1]) // 1024  # type: ignore[index]


def test_node_survives_a_publisher_that_falsifies_some_fields(scene: Scene) -> None:
    titles = list(POISONS)

    def poison(query: str, name: str) -> Change | None:
        chosen = crc32(f"{query}{name}".encode())
        return POISONS[titles[chosen // 7 % len(titles)]] if chosen % 7 == 0 else None

    assert len(scene.lied_to(poison)) > 3
    scene.unharmed()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_node_survives_a_publisher_that_falsifies_every_field(scene: Scene) -> None:
    memory_before = resident(scene.subscriber.server)
    for title, change in POISONS.items():
        omitted = UNNOTICED.get(title, ())
        spoiled = scene.lied_to(lambda query, name: None if name.startswith(omitted) else change)  # noqa: B023 - called before the next
        assert len(spoiled) > 30, title
        scene.unharmed()
        scene.publisher.sql("ALTER TABLE t DROP COLUMN more; DELETE FROM t WHERE id > 3")
    assert resident(scene.subscriber.server) - memory_before < 500
    until(lambda: scene.subscriber.sql("SELECT count(*) FROM pg_stat_subscription WHERE subname = 's'") == "0")
