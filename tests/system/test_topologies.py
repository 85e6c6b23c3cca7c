"""Subscriptions between databases of one node: both ways without a loop, in a chain, and what `headgate status` tells of them. A table that
two nodes share by hashed keys.
"""

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
    words = f" WITH ({options})" if options else ""
    node.psql(subscriber, f"CREATE SUBSCRIPTION {name} CONNECTION '{node.conninfo(publisher)}' PUBLICATION p{words}")
    until(lambda: node.psql(subscriber, READY) == "t", f"{name} is not ready")
    return name


def test_two_databases_replicate_both_ways_without_a_loop_and_into_a_third(node) -> None:
    one, two, three = (node.new_database() for _ in range(3))
    for database in (one, two, three):
        node.psql(database, TABLE)
    node.psql(one, "INSERT INTO t VALUES (1, 'one')")
    subscribe(node, two, one, "origin = none")
    subscribe(node, one, two, "origin = none, copy_data = false")
    subscribe(node, three, two)
    node.psql(one, "INSERT INTO t VALUES (11, 'one'); UPDATE t SET origin = 'one again' WHERE id = 1")
    node.psql(two, "INSERT INTO t VALUES (21, 'two')")
    expected = ["11|one", "1|one again", "21|two"]
    for database in (one, two, three):
        until(lambda: sorted(node.psql(database, "SELECT * FROM t").split("\n")) == expected, f"{database} has not got everything")  # noqa: B023
    counts = "SELECT sum(apply_error_count + sync_error_count) FROM pg_stat_subscription_stats"
    assert node.psql(one, counts) == "0"
    for database, name in ((three, f"{three}_from_{two}"), (one, f"{one}_from_{two}"), (two, f"{two}_from_{one}")):
        node.psql(database, f"DROP SUBSCRIPTION {name}")


def test_status_tells_what_a_subscription_does_and_what_to_do_about_its_error(node) -> None:
    one, two = node.new_database(), node.new_database()
    for database in (one, two):
        node.psql(database, TABLE)
    node.psql(one, "INSERT INTO t SELECT i, 'copied' FROM generate_series(1, 30) i")
    name = subscribe(node, two, one)

    def report() -> dict[str, Any]:
        found = json.loads(node.headgate("status", "--json").stdout)
        assert found["running"]
        return next(each for each in found["subscriptions"] if each["name"] == name)

    node.psql(one, "INSERT INTO t SELECT i, 'streamed' FROM generate_series(31, 40) i")
    until(lambda: report()["applied_rows"] == 10, "ten rows are not counted")
    found = report()
    assert (found["state"], found["tables"], found["tables_synced"], found["copied_rows"]) == ("streaming", 1, 1, 30)
    assert found["last_error"] is None

    node.psql(two, "INSERT INTO t VALUES (50, 'in the way')")
    node.psql(one, "INSERT INTO t VALUES (50, 'comes late')")
    error = until(lambda: report()["last_error"], "no error is told")
    assert error["message"] == 'duplicate key value violates unique constraint "t_pkey"'
    assert f"ALTER SUBSCRIPTION {name} SKIP (lsn = '" in error["advice"]
    text = node.headgate("status").stdout
    assert f"{name} (database {two}): " in text
    assert error["advice"] in text
    node.psql(two, "DELETE FROM t WHERE id = 50")
    until(lambda: node.psql(two, "SELECT count(*) FROM t") == "41", "it does not heal")
    node.psql(two, f"DROP SUBSCRIPTION {name}")


SHARES = ("hashint4(id) % 2 = 0", "hashint4(id) % 2 <> 0")
CHANGES = """
INSERT INTO shared SELECT i, 'later ' || i, i FROM generate_series(3001, 6000) i;
UPDATE shared SET v = 'changed ' || id WHERE id % 3 = 0;
UPDATE shared SET id = id + 100000 WHERE id % 7 = 0;
DELETE FROM shared WHERE id % 11 = 0;
BEGIN; UPDATE shared SET id = -id WHERE id BETWEEN 1 AND 50; UPDATE shared SET n = n + 1 WHERE id < 0; COMMIT;
"""
"""New rows, changed ones, and keys that move from one node to the other."""


@pytest.mark.slow
def test_two_nodes_share_a_table_by_hashed_keys(postgres: Server, node: Server, own_node: Callable[..., Server]) -> None:
    source = postgres.new_database()
    table = "CREATE TABLE shared (id int PRIMARY KEY, v text, n int);"
    postgres.psql(source, table + "INSERT INTO shared SELECT i, 'first ' || i, i FROM generate_series(1, 3000) i")
    nodes = [(node, node.new_database()), (own_node(), "postgres")]
    for number, ((each, database), share) in enumerate(zip(nodes, SHARES, strict=True)):
        postgres.psql(source, f"CREATE PUBLICATION share{number} FOR TABLE shared WHERE ({share})")
        each.psql(database, table)
        name = f"{source}_{number}"
        each.psql(database, f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION share{number}")
        until(lambda: each.psql(database, READY) == "t", f"{name} is not ready")  # noqa: B023

    postgres.psql(source, CHANGES)
    rows = "SELECT id, v, n FROM shared ORDER BY id"
    shares = [postgres.psql(source, rows.replace("shared", f"shared WHERE {share}", 1)) for share in SHARES]
    for (each, database), share in zip(nodes, shares, strict=True):
        until(lambda: each.psql(database, rows) == share, "the node has not got its share")  # noqa: B023
    assert sum(int(each.psql(database, "SELECT count(*) FROM shared")) for each, database in nodes) == int(
        postgres.psql(source, "SELECT count(*) FROM shared")
    )
    for number, (each, database) in enumerate(nodes):
        each.psql(database, f"DROP SUBSCRIPTION {source}_{number}")
        check(each, database)
