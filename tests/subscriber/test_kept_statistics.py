"""Counters survive a clean restart, and the lag of a subscription stays known while it is disconnected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conftest import NodeServer, Server, until


def status(node: Server, name: str) -> dict[str, Any]:
    assert isinstance(node, NodeServer)
    report = json.loads(node.headgate("status", "--json").stdout)
    return next(subscription for subscription in report["subscriptions"] if subscription["name"] == name)


@pytest.mark.slow
def test_counters_survive_a_restart_and_lag_survives_errors(postgres: Server, spare_node) -> None:
    node = spare_node()
    publisher, local = postgres.new_database(), node.new_database()
    name = f"kept_{local}"
    for server, database in ((postgres, publisher), (node, local)):
        server.psql(database, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    postgres.psql(publisher, "INSERT INTO t VALUES (1), (2); CREATE PUBLICATION p FOR TABLE t")
    node.psql(local, f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(publisher)}' PUBLICATION p")
    until(lambda: node.psql(local, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == "t")
    node.psql(local, "DELETE FROM t WHERE id = 1")
    postgres.psql(
        publisher, "ALTER PUBLICATION p ADD TABLE u; INSERT INTO t VALUES (3); DELETE FROM t WHERE id = 1; INSERT INTO u VALUES (1), (2)"
    )
    query = f"SELECT relname, srsubstate, rows_copied, rows_applied, rows_skipped, changes_left_out FROM pg_stat_subscription_rel WHERE subname = '{name}'"
    counted = "t|r|2|1|1|0\nu||0|0|0|2"
    until(lambda: node.psql(local, query) == counted)
    node.psql(local, "CREATE ROLE nobody; SET ROLE nobody; " + query)
    status_before = status(node, name)
    assert (status_before["connected"], status_before["skipped_rows"]) == (True, 1)
    commits = "SELECT xact_rollback, stats_reset FROM pg_stat_database WHERE datname = 'postgres'"
    database = node.psql(local, commits)

    node.stop()
    node.start()
    assert node.psql(local, query) == counted
    assert node.psql(local, commits) == database
    status_after = status(node, name)
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
    assert {key: status_after[key] for key in same} == {key: status_before[key] for key in same}

    node.psql(local, f"ALTER SUBSCRIPTION {name} CONNECTION 'host=127.0.0.1 port=1'")
    disconnected = until(lambda: (current := status(node, name))["failing"] and not current["connected"] and current)
    assert disconnected["applied_lsn"] is not None
    assert disconnected["lag_bytes"] == 0
    until(lambda: status(node, name)["lag_seconds"] > disconnected["lag_seconds"])
    node.psql(local, f"ALTER SUBSCRIPTION {name} DISABLE; ALTER SUBSCRIPTION {name} SET (slot_name = NONE); DROP SUBSCRIPTION {name}")

    node.kill()
    node.start()
    assert node.psql(local, commits) != database
