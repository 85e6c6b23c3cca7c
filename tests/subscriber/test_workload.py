"""Whatever happens on the publisher: a node and a PostgreSQL that subscribe to it hold the same at every quiet point, and the node, read as
of any position of its log, what the publisher held at that commit.

HEADGATE_WORKLOAD_SEEDS, _ROUNDS, _BATCH (rows of the largest statements), _MOMENTS (of the past) ask for more than the suite runs.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from tests.subscriber.workload import CONTENTS, PUBLISHED, READY, TABLES, Workload

from headgate.catalog import relation as relations
from headgate.lsn import Lsn

FIRST = int(os.environ.get("HEADGATE_WORKLOAD_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("HEADGATE_WORKLOAD_SEEDS", "1")))
ROUNDS = int(os.environ.get("HEADGATE_WORKLOAD_ROUNDS", "5"))
BATCH = int(os.environ.get("HEADGATE_WORKLOAD_BATCH", "300"))
MOMENTS = int(os.environ.get("HEADGATE_WORKLOAD_MOMENTS", "2"))
Contents = dict[str, list[str]]


def shown(ask: Any) -> Contents:
    """The rows of each table, in one order for both kinds of server."""
    return {name: sorted(ask(query).split("\n")) for name, query in CONTENTS.items()}


class History:
    """What the publisher held after each transaction, by the end of its log then."""

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._moments: list[tuple[Lsn, Contents]] = []

    def run(self, transaction: str) -> None:
        """Runs a transaction and keeps what is there afterwards."""
        self._connection.execute(transaction)  # type: ignore[call-overload]
        self.keep()

    def keep(self) -> None:
        """Keeps what is there now."""
        contents = {name: _rows(self._connection.execute(f"SELECT * FROM {name}").fetchall()) for name in CONTENTS}
        at = self._connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert at is not None
        self._moments.append((Lsn.parse(at[0]), contents))

    def at(self, end: Lsn) -> Contents:
        """What was there when the transaction that ends at a position had committed."""
        return next(contents for known, contents in self._moments if known >= end)

    def close(self) -> None:
        self._connection.close()


def _rows(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr([_value(value) for value in row]) for row in rows)


def _value(value: Any) -> Any:
    """Numbers and text alike where the node keeps as text what Delta could not hold (numeric without precision)."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.rstrip(" ") if isinstance(value, str) else value


def past(subscriber: Any, moment: Lsn) -> Contents:
    """The same of the node, as of a position of its log."""
    cursor = subscriber.catalog.cursor()
    found = {}
    for name in CONTENTS:
        table = subscriber.engine.frame_at(relations.lookup(cursor, 5, "public", name), moment).toArrow()
        found[name] = _rows(list(zip(*[column.to_pylist() for column in table.columns], strict=True)))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_and_a_postgresql_hold_the_same_now_and_in_the_past(postgres, publisher, subscriber, seed: int) -> None:
    publisher.sql(f"{TABLES} {PUBLISHED}")
    streaming = seed % 2 == 1
    if streaming:
        publisher.sql(f"ALTER ROLE postgres IN DATABASE {publisher.database} SET logical_decoding_work_mem = '64kB'")
    workload, history = Workload(seed, BATCH), History(postgres.conninfo(publisher.database))
    for _ in range(3):
        history.run(workload.transaction())
    subscriber.sql(TABLES)
    assert "ERROR" not in subscriber.sql(publisher.subscription("streaming = on" if streaming else ""))
    mirror = postgres.new_database()
    postgres.psql(mirror, TABLES)
    slot = f"{publisher.database}_mirror"
    publisher.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    postgres.psql(
        mirror,
        f"CREATE SUBSCRIPTION mirror CONNECTION '{postgres.conninfo(publisher.database)}' PUBLICATION p"
        f" WITH (create_slot = false, slot_name = '{slot}')",
    )
    subscriber.wait(READY, "t", 120)
    first = subscriber.engine.log.end
    for _ in range(ROUNDS):
        for _ in range(4):
            history.run(workload.transaction())
        publisher.wait_confirmed(seconds=120)
        publisher.wait_confirmed("mirror", seconds=120)
        expected = shown(publisher.sql)
        assert shown(lambda query: postgres.psql(mirror, query)) == expected, f"PostgreSQL itself, seed {seed}"
        assert shown(subscriber.sql) == expected
    applied = [entry for entry in subscriber.engine.log.entries(first, 5, 1000) if entry.origin is not None and entry.writes]
    for entry in applied[:: max(1, len(applied) // MOMENTS)]:
        then = history.at(entry.origin_lsn)
        for name, rows in past(subscriber, entry.end_lsn).items():
            assert rows == then[name], f"{name} as of {entry.end_lsn}, the publisher at {entry.origin_lsn}"
    history.close()
    subscriber.sql("DROP SUBSCRIPTION s")
    postgres.psql(mirror, "DROP SUBSCRIPTION mirror")
