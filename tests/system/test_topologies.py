"""Databases of one node can subscribe to each other, both ways without a loop and in a chain. Two nodes can share a table by hashed keys."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests import conftest
from tests.conftest import Server, check

until = functools.partial(conftest.until, seconds=90)

TABLE = "CREATE TABLE t (id int PRIMARY KEY, origin text); CREATE PUBLICATION p FOR TABLE t;"
READY = "SELECT count(*) > 0 AND count(*) = count(*) FILTER (WHERE srsubstate = 'r') FROM pg_subscription_rel"


def subscribe(node: Any, subscriber: str, publisher: str, options: str = "") -> str:
    name = f"{subscriber}_from_{publisher}"
    with_clause = f" WITH ({options})" if options else ""
    node.psql(subscriber, f"CREATE SUBSCRIPTION {name} CONNECTION '{node.conninfo(publisher)}' PUBLICATION p{with_clause}")
    until(lambda: node.psql(subscriber, READY) == "t", f"{name} is not ready")
    return name


def test_two_databases_replicate_both_ways_without_a_loop_and_into_a_third(node) -> None:
    first, second, third = (node.new_database() for _ in range(3))
    for database in (first, second, third):
        node.psql(database, TABLE)
    node.psql(first, "INSERT INTO t VALUES (1, 'one')")
    subscribe(node, second, first, "origin = none")
    subscribe(node, first, second, "origin = none, copy_data = false")
    subscribe(node, third, second)
    node.psql(first, "INSERT INTO t VALUES (11, 'one'); UPDATE t SET origin = 'one again' WHERE id = 1")
    node.psql(second, "INSERT INTO t VALUES (21, 'two')")
    expected = ["11|one", "1|one again", "21|two"]
    for database in (first, second, third):
        until(lambda: sorted(node.psql(database, "SELECT * FROM t").split("\n")) == expected, f"{database} does not have all rows")  # noqa: B023
    counts = "SELECT sum(apply_error_count + sync_error_count) FROM pg_stat_subscription_stats"
    assert node.psql(first, counts) == "0"
    for database, name in ((third, f"{third}_from_{second}"), (first, f"{first}_from_{second}"), (second, f"{second}_from_{first}")):
        node.psql(database, f"DROP SUBSCRIPTION {name}")


@pytest.mark.slow
def test_status_shows_the_work_of_a_subscription_and_what_to_do_about_its_error(node) -> None:
    publishing, subscribing = node.new_database(), node.new_database()
    for database in (publishing, subscribing):
        node.psql(database, TABLE)
    node.psql(publishing, "INSERT INTO t SELECT i, 'copied' FROM generate_series(1, 30) i")
    name = subscribe(node, subscribing, publishing)

    def report() -> dict[str, Any]:
        status = json.loads(node.headgate("status", "--json").stdout)
        assert status["running"]
        return next(subscription for subscription in status["subscriptions"] if subscription["name"] == name)

    node.psql(publishing, "INSERT INTO t SELECT i, 'streamed' FROM generate_series(31, 40) i")
    until(lambda: report()["applied_rows"] == 10, "ten rows are not counted")
    reported = report()
    assert (reported["state"], reported["tables"], reported["tables_synced"], reported["copied_rows"]) == ("streaming", 1, 1, 30)
    assert reported["last_error"] is None

    node.psql(subscribing, "INSERT INTO t VALUES (50, 'in the way')")
    node.psql(publishing, "INSERT INTO t VALUES (50, 'comes late')")
    error = until(lambda: report()["last_error"], "no error is reported")
    assert error["message"] == 'duplicate key value violates unique constraint "t_pkey"'
    assert f"ALTER SUBSCRIPTION {name} SKIP (lsn = '" in error["advice"]
    text = node.headgate("status").stdout
    assert f"{name} (database {subscribing}): " in text
    assert error["advice"] in text
    node.psql(subscribing, "DELETE FROM t WHERE id = 50")
    until(lambda: node.psql(subscribing, "SELECT count(*) FROM t") == "41", "the subscription does not recover")
    node.psql(subscribing, f"DROP SUBSCRIPTION {name}")


SHARES = ("hashint4(id) % 2 = 0", "hashint4(id) % 2 <> 0")
CHANGES = """
INSERT INTO shared SELECT i, 'later ' || i, i FROM generate_series(3001, 6000) i;
UPDATE shared SET v = 'changed ' || id WHERE id % 3 = 0;
UPDATE shared SET id = id + 100000 WHERE id % 7 = 0;
DELETE FROM shared WHERE id % 11 = 0;
BEGIN; UPDATE shared SET id = -id WHERE id BETWEEN 1 AND 50; UPDATE shared SET n = n + 1 WHERE id < 0; COMMIT;
"""
"""New rows, changed rows, and keys that move from one node to the other."""


@pytest.mark.slow
def test_two_nodes_share_a_table_by_hashed_keys(postgres: Server, node: Server, own_node: Callable[..., Server]) -> None:
    source = postgres.new_database()
    table = "CREATE TABLE shared (id int PRIMARY KEY, v text, n int);"
    postgres.psql(source, table + "INSERT INTO shared SELECT i, 'first ' || i, i FROM generate_series(1, 3000) i")
    nodes = [(node, node.new_database()), (own_node(), "postgres")]
    for number, ((sharing_node, database), share) in enumerate(zip(nodes, SHARES, strict=True)):
        postgres.psql(source, f"CREATE PUBLICATION share{number} FOR TABLE shared WHERE ({share})")
        sharing_node.psql(database, table)
        name = f"{source}_{number}"
        sharing_node.psql(database, f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION share{number}")
        until(lambda: sharing_node.psql(database, READY) == "t", f"{name} is not ready")  # noqa: B023

    postgres.psql(source, CHANGES)
    rows = "SELECT id, v, n FROM shared ORDER BY id"
    shares = [postgres.psql(source, rows.replace("shared", f"shared WHERE {share}", 1)) for share in SHARES]
    for (sharing_node, database), share in zip(nodes, shares, strict=True):
        until(lambda: sharing_node.psql(database, rows) == share, "the node does not have its share of the rows")  # noqa: B023
    assert sum(int(sharing_node.psql(database, "SELECT count(*) FROM shared")) for sharing_node, database in nodes) == int(
        postgres.psql(source, "SELECT count(*) FROM shared")
    )
    for number, (sharing_node, database) in enumerate(nodes):
        sharing_node.psql(database, f"DROP SUBSCRIPTION {source}_{number}")
        check(sharing_node, database)
