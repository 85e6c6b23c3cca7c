"""In every order of steps, an apply worker next to sessions gives PostgreSQL's result, or that of a stronger isolation.

A step of the session `apply` is a transaction of the publisher. Its outcome is `applied` after the subscriber has applied it and `failed`
if it has disabled the subscription. The step waits while the apply worker waits for a lock.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from tests.conftest import Server, until
from tests.server.judgement import Arrangement, Outcome, Verdict
from tests.server.permutation import READ_COMMITTED, REPEATABLE_READ, Ensemble, Spec, Stage
from tests.server.play import Play
from tests.server.specs_definitions import UNLOCKED
from tests.server.specs_rows import FOR_UPDATE, PREPARE, ROWS, T, at, family, write
from tests.session import Session
from tests.subscriber.conftest import Publisher

ENABLED = "SELECT subenabled FROM pg_subscription WHERE subname = 's' AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
WORKER = "SELECT pid FROM pg_stat_subscription WHERE subname = 's' AND relid IS NULL AND pid IS NOT NULL"


class Apply:
    """The apply worker of a subscription, as a participant of a play. Each transaction also inserts its name into the table `applied`."""

    def __init__(self, publisher: Publisher, conninfo: str) -> None:
        self.publisher = publisher
        self._subscriber = Session(conninfo)
        self._numbers = itertools.count(1)
        self._given_up = False

    def say(self, sql: str) -> Any:
        number = next(self._numbers)
        self._given_up = False
        self.publisher.sql(f"BEGIN; {sql}; INSERT INTO applied VALUES ({number}); COMMIT")
        while not self._given_up:
            if self._subscriber.sql(f"SELECT 1 FROM applied WHERE n = {number}"):
                return "applied"
            if self._subscriber.sql(ENABLED) != "t":
                return "failed"
            time.sleep(0.02)
        return "given up"

    def waits(self, watcher: psycopg.Connection[Any]) -> bool:
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid IN "
        return watcher.execute(f"{waits}({WORKER})".encode()).fetchone() == (1,)

    def rest(self) -> None:
        self._given_up = True

    def close(self) -> None:
        self._subscriber.close()


class Subscribing(Stage):
    """A stage whose tables get a new subscription for each permutation, without an initial copy. Both sides begin with the same rows."""

    def __init__(self, play: Play, spec: Spec, publisher: Publisher, server: Server) -> None:
        super().__init__(play, spec)
        self.publisher, self._slot = publisher, f"{publisher.name}_{server.port}"
        self.apply = Apply(publisher, server.conninfo(play.database))
        play.speakers["apply"] = self.apply

    def prepare(self) -> None:
        tables = f"{self.spec.setup}; CREATE TABLE applied (n int PRIMARY KEY); {self.spec.rows}"
        self.unsubscribe()
        self.publisher.sql(
            f"DROP PUBLICATION IF EXISTS p; DROP SCHEMA public CASCADE; CREATE SCHEMA public; {tables}; CREATE PUBLICATION p FOR ALL TABLES"
        )
        self.publisher.sql(f"SELECT pg_create_logical_replication_slot('{self._slot}', 'pgoutput')")
        self.make(f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {tables}")
        options = f"copy_data = false, create_slot = false, slot_name = '{self._slot}', disable_on_error = true"
        self.make(f"CREATE SUBSCRIPTION s CONNECTION '{self.publisher.conninfo}' PUBLICATION p WITH ({options})")
        until(lambda: self.play.say("watcher", WORKER), "the apply worker does not start")

    def perform(self, arrangement: Arrangement) -> Outcome:
        outcome = super().perform(arrangement)
        self.unsubscribe()
        return outcome

    def unsubscribe(self) -> None:
        """Drop the subscription and its slot."""
        if self.play.say("watcher", ENABLED):
            self.make("ALTER SUBSCRIPTION s DISABLE")
            self.make("ALTER SUBSCRIPTION s SET (slot_name = NONE)")
            self.make("DROP SUBSCRIPTION s")
        own_slots = f"FROM pg_replication_slots WHERE slot_name = '{self._slot}'"
        until(lambda: self.publisher.sql(f"SELECT count(*) {own_slots} AND active") == "0", "the slot is still active")
        self.publisher.sql(f"SELECT pg_drop_replication_slot(slot_name) {own_slots}")

    def close(self) -> None:
        self.play.rest()
        self.unsubscribe()
        self.apply.close()


def of_t(apply: tuple[str, ...], take: int = 4, **sessions: tuple[str, ...]) -> Spec:
    """Return a spec of an apply worker and sessions that use the table t."""
    return Spec(T, ROWS, {"apply": apply, **sessions}, ("SELECT * FROM t ORDER BY 1",), take, may=UNLOCKED)


def local(*statements: str, end: str = "COMMIT") -> tuple[str, ...]:
    """Return the steps of a local transaction."""
    return ("BEGIN", *statements, end)


UPDATE, DELETE, INSERT = write(1, 100), "DELETE FROM t WHERE a = 1", "INSERT INTO t VALUES (3, 30)"
SPECS = {
    **at(
        (READ_COMMITTED, REPEATABLE_READ),
        {
            "UPDATE beside UPDATE": of_t((UPDATE, write(2, 200)), 3, a=local(write(1, 1), write(2, 2))),
            "DELETE beside SELECT and UPDATE": of_t((DELETE,), 3, a=local("SELECT * FROM t ORDER BY a", write(1, 1))),
        },
    ),
    "INSERT beside INSERT": of_t((INSERT, UPDATE), a=local("INSERT INTO t VALUES (4, 40)", write(2, 2))),
    "INSERT beside INSERT of the key that is taken back": of_t((INSERT,), a=local("INSERT INTO t VALUES (3, 31)", end="ROLLBACK")),
    "INSERT beside INSERT of the key": of_t((INSERT, UPDATE), a=local("INSERT INTO t VALUES (3, 31)")),
    "UPDATE of a row that goes": of_t((UPDATE, INSERT), a=local(DELETE)),
    "TRUNCATE beside UPDATE": of_t(("TRUNCATE t", "INSERT INTO t VALUES (1, 5)"), a=local(write(1, 1), "INSERT INTO t VALUES (4, 40)")),
    "UPDATE beside TRUNCATE": of_t((UPDATE, INSERT), a=local("TRUNCATE t")),
    "UPDATE beside FOR UPDATE": of_t((UPDATE,), a=local(FOR_UPDATE, write(1, 1)), b=("SELECT * FROM t ORDER BY a",)),
    "INSERT beside ON CONFLICT": of_t((INSERT,), a=local("INSERT INTO t VALUES (3, 31) ON CONFLICT (a) DO UPDATE SET b = t.b + 1", end="ROLLBACK")),
    "UPDATE beside a savepoint": of_t((UPDATE,), a=local("SAVEPOINT s", write(1, 1), "ROLLBACK TO s")),
    "UPDATE beside PREPARE": of_t((UPDATE, INSERT), a=("BEGIN", write(1, 1), PREPARE, "COMMIT PREPARED 'one'")),
    "UPDATE beside two writers": of_t((UPDATE, DELETE), 6, a=local(write(1, 1)), b=local("UPDATE t SET b = b + 1")),
    "INSERT beside ADD COLUMN": of_t((INSERT, UPDATE), a=local("ALTER TABLE t ADD COLUMN c int DEFAULT 5")),
    "UPDATE beside DROP COLUMN": of_t((UPDATE,), a=local("ALTER TABLE t DROP COLUMN b", end="ROLLBACK")),
    "UPDATE beside ALTER TYPE": of_t((UPDATE, INSERT), a=local("ALTER TABLE t ALTER COLUMN b TYPE bigint")),
    "INSERT beside ADD CHECK": of_t((INSERT,), a=local("ALTER TABLE t ADD CONSTRAINT small CHECK (b < 50)")),
    "INSERT beside a violated CHECK": of_t((INSERT,), a=local("ALTER TABLE t ADD CONSTRAINT small CHECK (b < 25)")),
    "UPDATE beside RENAME and back": of_t((UPDATE, INSERT), a=local("ALTER TABLE t RENAME TO n", "ALTER TABLE n RENAME TO t")),
    "UPDATE beside DROP TABLE": of_t((UPDATE,), 3, a=local("DROP TABLE t", end="ROLLBACK"), b=("SELECT * FROM t ORDER BY a",)),
    "UPDATE beside CREATE INDEX": of_t((UPDATE, INSERT), 3, a=local("CREATE UNIQUE INDEX ti ON t (b)")),
    "UPDATE beside CREATE PUBLICATION": of_t((UPDATE,), 3, a=local("CREATE PUBLICATION q FOR TABLE t", end="ROLLBACK")),
    "a child beside its parent": Spec(
        family(""), "INSERT INTO parent VALUES (1, 10)",
        {"apply": ("INSERT INTO child VALUES (8, 1)", "UPDATE parent SET b = 11 WHERE a = 1"), "a": local("UPDATE parent SET b = 12 WHERE a = 1", "INSERT INTO child VALUES (9, 1)")},
        ("SELECT * FROM parent", "SELECT * FROM child ORDER BY n"), 4,
    ),
}  # fmt: skip
SLICE = ("UPDATE beside ALTER TYPE", "INSERT beside INSERT of the key that is taken back")


@dataclass
class Subscribers:
    """A node and a PostgreSQL that subscribe to one publisher. `ensemble` returns both stages of a spec."""

    servers: tuple[Server, Server]
    publisher: Publisher
    stages: list[tuple[Play, Subscribing]]

    def ensemble(self, name: str) -> Ensemble:
        for server in self.servers:
            play = Play(server)
            self.stages.append((play, Subscribing(play, SPECS[name], self.publisher, server)))
        return Ensemble(self.stages[0][1], self.stages[1][1])


@pytest.fixture
def subscribers(node: Server, postgres: Server, publisher: Publisher) -> Iterator[Subscribers]:
    """A node and a PostgreSQL that subscribe to the same publisher."""
    subscribers = Subscribers((node, postgres), publisher, [])
    yield subscribers
    for play, stage in subscribers.stages:
        stage.close()
        play.close()


@pytest.mark.parametrize("name", SLICE)
def test_apply_worker_agrees_with_postgresql_in_one_order(subscribers: Subscribers, name: str) -> None:
    _, reports = subscribers.ensemble(name).play(name, 1)
    assert not reports, "\n".join(reports)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_apply_worker_agrees_with_postgresql_in_many_orders(subscribers: Subscribers, name: str) -> None:
    verdicts, reports = subscribers.ensemble(name).play(name)
    assert not reports, "\n".join(reports)
    assert Verdict.EQUAL in verdicts or Verdict.WAITED in verdicts


def test_specs_have_at_least_70_orders() -> None:
    assert sum(len(spec.permutations(name)) for name, spec in SPECS.items()) >= 70
