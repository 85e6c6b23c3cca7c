"""Under a random workload, a node and a PostgreSQL that subscribe to the same publisher have the same rows whenever they have caught up.

A transaction that reads the node while it applies changes sees the publisher's rows as of one commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.conftest import Server, check
from tests.subscriber.conftest import Publisher, Subscriber
from tests.subscriber.workload import CONTENTS, PUBLISHED, READY, TABLES, Workload

from headgate.lsn import INVALID, Lsn

Contents = dict[str, list[str]]


def contents(connection: psycopg.Connection[Any]) -> Contents:
    """Return all rows of each table, in an order that is the same for both kinds of server."""
    return {name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}").fetchall())) for name in CONTENTS}  # type: ignore[call-overload]


class History:
    """The publisher's rows after each transaction, by the position at which the transaction began."""

    def __init__(self, publisher: Publisher) -> None:
        self._connection = publisher.session.connection
        self._moments: list[tuple[Lsn, Contents]] = []

    def run(self, transaction: str) -> None:
        """Run a transaction and record the position before it and the rows after it."""
        began = self.end
        self._connection.execute(transaction)  # type: ignore[call-overload]
        self._moments.append((began, contents(self._connection)))

    @property
    def end(self) -> Lsn:
        """Return the end of the publisher's log now."""
        row = self._connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def between(self, first: Lsn, last: Lsn) -> list[Contents]:
        """Return the rows after each transaction from the last one that began before `first` to the last one that began before `last`.

        A position is the end of a transaction, or that at which the synchronization of a table ended, after the transaction.
        """
        ends = [max(index for index, (began, _) in enumerate(self._moments) if began < end) for end in (first, last)]
        return [contents for _, contents in self._moments[ends[0] : ends[1] + 1]]


class Past:
    """A transaction whose snapshot of the node is taken now, and the two positions of the publisher between which the snapshot lies."""

    def __init__(self, subscriber: Subscriber, copied: Lsn) -> None:
        """`copied`: the position up to which the tables were copied."""
        self.first = max(_applied(subscriber), copied)
        self.connection = psycopg.connect(subscriber.conninfo, autocommit=True)
        self.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        self.connection.execute("SELECT count(*) FROM wide")
        self.last = max(_applied(subscriber), copied)


def _applied(subscriber: Subscriber) -> Lsn:
    """Return the position up to which the subscription has applied changes."""
    lsn = subscriber.sql(
        f"SELECT remote_lsn FROM pg_replication_origin_status WHERE external_id = 'pg_{subscriber.of_subscription('s.oid')}'"
    )
    return Lsn.parse(lsn) if lsn else INVALID


@pytest.fixture
def mirror(postgres: Server, publisher: Publisher) -> Iterator[Subscriber]:
    """A database of PostgreSQL that subscribes to the same publication."""
    database = Subscriber(postgres)
    database.sql(TABLES)
    publisher.sql(f"{TABLES} {PUBLISHED}")
    publisher.sql(f"SELECT pg_create_logical_replication_slot('{publisher.name}_mirror', 'pgoutput')")
    database.sql(
        publisher.subscription("create_slot = false", name="mirror")
    )  # creating the slot would wait for this statement's own transaction
    database.wait(READY, "t")
    yield database
    database.close()


@pytest.mark.parametrize(
    ("seed", "rounds", "batch"),
    [
        (0, 3, 300),
        *(pytest.param(seed, 10, 300, marks=pytest.mark.slow) for seed in range(1, 9)),
        pytest.param(9, 5, 10_000, marks=pytest.mark.slow),
    ],
)
def test_node_and_postgresql_hold_the_same_rows_now_and_in_the_past(
    publisher, mirror, subscriber, seed: int, rounds: int, batch: int
) -> None:
    streaming = seed % 2 == 1
    if streaming:
        publisher.sql(f"ALTER ROLE postgres IN DATABASE {publisher.name} SET logical_decoding_work_mem = '64kB'")
    workload, history = Workload(seed, batch), History(publisher)
    for _ in range(3):
        history.run(workload.transaction())
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription("streaming = on" if streaming else ""))
    subscriber.wait(READY, "t", 120)
    copied, moments = history.end, []
    for _ in range(rounds):
        for number in range(4):
            history.run(workload.transaction())
            if number == 2:
                moments.append(Past(subscriber, copied))
        publisher.wait_confirmed(seconds=120)
        publisher.wait_confirmed("mirror", seconds=120)
        expected = contents(publisher.session.connection)
        assert contents(mirror.session.connection) == expected, f"PostgreSQL itself, seed {seed}"
        assert contents(subscriber.session.connection) == expected
    for moment in moments:
        assert contents(moment.connection) in history.between(moment.first, moment.last), f"from {moment.first} to {moment.last}"
        moment.connection.close()
    check(subscriber.server, subscriber.name)
