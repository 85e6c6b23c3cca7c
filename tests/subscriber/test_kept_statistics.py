"""What has been counted survives a clean restart, and how far a subscription is behind survives its connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conftest import NodeServer, Server, until


def status(node: Server, name: str) -> dict[str, Any]:
    assert isinstance(node, NodeServer)
    told = json.loads(node.headgate("status", "--json").stdout)
    return next(each for each in told["subscriptions"] if each["name"] == name)


@pytest.mark.slow
def test_counters_survive_a_restart_and_lag_survives_errors(postgres: Server, spare_node) -> None:
    node = spare_node()
    publisher, here = postgres.new_database(), node.new_database()
    name = f"kept_{here}"
    for server, database in ((postgres, publisher), (node, here)):
        server.psql(database, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    postgres.psql(publisher, "INSERT INTO t VALUES (1), (2); CREATE PUBLICATION p FOR TABLE t")
    node.psql(here, f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(publisher)}' PUBLICATION p")
    until(lambda: node.psql(here, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "t")
    node.psql(here, "DELETE FROM t WHERE id = 1")
    postgres.psql(
        publisher, "ALTER PUBLICATION p ADD TABLE u; INSERT INTO t VALUES (3); DELETE FROM t WHERE id = 1; INSERT INTO u VALUES (1), (2)"
    )
    seen = f"SELECT relname, srsubstate, rows_copied, rows_applied, rows_skipped, changes_left_out FROM pg_stat_subscription_rel WHERE subname = '{name}'"
    counted = "t|r|2|1|1|0\nu||0|0|0|2"
    until(lambda: node.psql(here, seen) == counted)
    node.psql(here, "CREATE ROLE nobody; SET ROLE nobody; " + seen)
    before = status(node, name)
    assert (before["connected"], before["skipped_rows"]) == (True, 1)
    commits = "SELECT xact_rollback, stats_reset FROM pg_stat_database WHERE datname = 'postgres'"
    database = node.psql(here, commits)

    node.stop()
    node.start()
    assert node.psql(here, seen) == counted
    assert node.psql(here, commits) == database
    after = status(node, name)
    same = (
        "copied_rows",
        "copied_bytes",
        "applied_rows",
        "applied_bytes",
        "applied_transactions",
        "skipped_rows",
        "applied_at",
        "left_out",
    )
    assert {key: after[key] for key in same} == {key: before[key] for key in same}

    node.psql(here, f"ALTER SUBSCRIPTION {name} CONNECTION 'host=127.0.0.1 port=1'")
    apart = until(lambda: (found := status(node, name))["failing"] and not found["connected"] and found)
    assert apart["applied_lsn"] is not None
    assert apart["lag_bytes"] == 0
    until(lambda: status(node, name)["lag_seconds"] > apart["lag_seconds"])
    node.psql(here, f"ALTER SUBSCRIPTION {name} DISABLE; ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}")

    node.kill()
    node.start()
    assert node.psql(here, commits) != database
