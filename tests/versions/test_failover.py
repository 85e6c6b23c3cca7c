"""A node continues after its publisher of version 17 or 18 fails over to a standby with synchronized slots.

libpq tries the hosts in order.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from tests.conftest import PostgresServer, Server, until
from tests.postgresql_version import binaries
from tests.system.chain import Database, meanwhile, subscribe

SYNCHRONIZED = "SELECT count(*) FROM pg_replication_slots WHERE synced AND failover AND NOT temporary"


def standby_of(primary: Server, farm: Any) -> Server:
    """Create a standby from the files of the stopped primary. Both run afterwards."""
    follows = {"sync_replication_slots": "on"} if "synchronized_standby_slots" in primary.conf else {}
    standby = farm.make(type(primary), start=False, hot_standby_feedback="on", primary_slot_name="'physical'", **follows)
    primary.psql("postgres", "SELECT pg_create_physical_replication_slot('physical', true)")
    primary.stop()
    with (standby.data / "postgresql.conf").open() as conf:
        content = conf.read()
    shutil.rmtree(standby.data)
    shutil.copytree(primary.data, standby.data)
    (standby.data / "postgresql.conf").write_text(f"{content}primary_conninfo = '{primary.conninfo()}'\n")
    (standby.data / "standby.signal").touch()
    shutil.chown(standby.data, "postgres", "postgres")
    for path in standby.data.rglob("*"):
        shutil.chown(path, "postgres", "postgres")
    primary.start()
    standby.start()
    return standby


def replicated(version: int, farm: Any, **conf: str) -> tuple[Server, Server]:
    """A primary and its standby."""
    programs = binaries(version)
    farm.folders.append(programs.parent)
    kind: type[PostgresServer] = type(f"PostgresServer{version}", (PostgresServer,), {"programs": programs})
    primary = farm.make(kind, **conf)
    return primary, standby_of(primary, farm)


@pytest.mark.slow
@pytest.mark.parametrize("version", [16, 18])
def test_node_can_subscribe_to_a_standby(_farm: Any, node: Server, version: int) -> None:  # noqa: PT019
    primary, standby = replicated(version, _farm)
    publisher, lake = Database.new(primary), Database.new(node)
    publisher.sql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    lake.sql("CREATE TABLE t (a int PRIMARY KEY)")
    until(lambda: publisher.name in standby.psql("postgres", "SELECT datname FROM pg_database"), "the database is not on the standby")
    # a slot is created after the primary has logged its running transactions, periodically or on request
    with meanwhile(lambda _: publisher.sql("SELECT pg_log_standby_snapshot()")):
        subscribe(lake, Database(standby, publisher.name), "s", "p")
    publisher.sql("INSERT INTO t VALUES (2)")
    lake.wait("SELECT count(*) FROM t", "2")
    lake.unsubscribe()


@pytest.mark.slow
@pytest.mark.parametrize("version", [17, 18])
def test_node_follows_a_publisher_that_fails_over(_farm: Any, node: Server, version: int) -> None:  # noqa: PT019
    primary, standby = replicated(version, _farm, synchronized_standby_slots="'physical'")
    publisher, lake = Database.new(primary), Database.new(node)
    table = "CREATE TABLE t (a int PRIMARY KEY, b text)"
    publisher.sql(f"{table}; INSERT INTO t SELECT i, 'copied' FROM generate_series(1, 100) i; CREATE PUBLICATION p FOR TABLE t")
    lake.sql(table)
    hosts = (
        f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} user=postgres dbname={publisher.name} target_session_attrs=read-write"
    )
    hosts_of_publisher = type("Hosts", (), {"conninfo": hosts})()
    subscribe(lake, hosts_of_publisher, "s", "p", "failover = true")
    publisher.sql("INSERT INTO t VALUES (101, 'streamed')")
    lake.wait("SELECT count(*) FROM t", "101")
    until(lambda: standby.psql("postgres", SYNCHRONIZED) == "1", "the slot is not on the standby", 60)
    primary.kill()
    (primary.data / "postmaster.pid").unlink()
    standby._run("pg_ctl", "-D", str(standby.data), "-w", "promote")
    promoted = Database(standby, publisher.name)
    promoted.sql("UPDATE t SET b = 'promoted' WHERE a <= 10; INSERT INTO t VALUES (102, 'behind')")
    rows = "SELECT a, b FROM t ORDER BY a"
    lake.wait("SELECT count(*) FROM t WHERE b IN ('promoted', 'behind')", "11")
    assert lake.sql(rows) == promoted.sql(rows)
    lake.unsubscribe()
