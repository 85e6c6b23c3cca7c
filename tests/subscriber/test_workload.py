"""Whatever happens on the publisher: a node and a PostgreSQL that subscribe to it hold the same at every quiet point, now and in the past."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.subscriber.workload import CONTENTS, PUBLISHED, TABLES, Workload

from headgate.catalog import relation as relations

READY = "SELECT count(*) = 3 AND count(*) = count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel"
SEEDS = range(int(os.environ.get("HEADGATE_WORKLOAD_SEEDS", "1")))
ROUNDS = int(os.environ.get("HEADGATE_WORKLOAD_ROUNDS", "5"))
BATCH = int(os.environ.get("HEADGATE_WORKLOAD_BATCH", "300"))


def shown(server: Any) -> dict[str, list[str]]:
    """The rows of each table, in one order for both kinds of server."""
    return {name: sorted(server.sql(query).split("\n")) for name, query in CONTENTS.items()}


def past(subscriber: Any, moment: Any) -> dict[str, int]:
    """How many rows each table had at a position of the node's log, and a sum over them."""
    cursor = subscriber.catalog.cursor()
    found = {name: relations.lookup(cursor, 5, "public", name) for name in CONTENTS}
    return {name: subscriber.engine.frame_at(relation, moment).toArrow() for name, relation in found.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_and_a_postgresql_hold_the_same_at_every_quiet_point(postgres, publisher, subscriber, seed: int) -> None:
    publisher.sql(f"{TABLES} {PUBLISHED}")
    workload = Workload(seed, BATCH)
    for _ in range(3):
        publisher.sql(workload.transaction())
    subscriber.sql(TABLES)
    streaming = "streaming = on" if seed % 2 else ""
    assert "ERROR" not in subscriber.sql(publisher.subscription(streaming))
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
    moments = []
    for _ in range(ROUNDS):
        for _ in range(4):
            publisher.sql(workload.transaction())
        publisher.wait_confirmed(seconds=120)
        publisher.wait_confirmed("mirror", seconds=120)
        expected = shown(publisher)
        assert {name: sorted(postgres.psql(mirror, query).split("\n")) for name, query in CONTENTS.items()} == expected
        assert shown(subscriber) == expected
        moments.append((subscriber.engine.log.end, past(subscriber, subscriber.engine.log.end)))
    for moment, then in moments:
        now = past(subscriber, moment)
        for name, rows in then.items():
            assert sorted(map(repr, now[name].to_pylist())) == sorted(map(repr, rows.to_pylist())), f"{name} at {moment}"
    subscriber.sql("DROP SUBSCRIPTION s")
    postgres.psql(mirror, "DROP SUBSCRIPTION mirror")
