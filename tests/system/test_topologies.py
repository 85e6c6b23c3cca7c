"""Subscriptions between databases of one node: both ways without a loop, in a chain, and what `headgate status` tells of them."""

from __future__ import annotations

import functools
import json
from typing import Any

from tests import conftest

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
