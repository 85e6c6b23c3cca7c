"""After headgate.wait_for_lsn() or headgate.complete_until(), the next statement sees the publisher's rows at an LSN or at a time."""

from __future__ import annotations

from datetime import datetime

import psycopg
import pytest
from tests.conftest import NodeServer, PostgresServer, SqlError
from tests.system.chain import Database, subscribe

import pyspark_headgate


def test_publishers_rows_at_an_lsn_are_visible_after_the_wait(postgres: PostgresServer, node: NodeServer) -> None:
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE elsewhere (id int); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY)")
    subscribe(subscriber, publisher, "waited", "p")
    try:
        for number in range(1, 4):
            publisher.sql(f"INSERT INTO t VALUES ({number}); INSERT INTO elsewhere VALUES ({number})")
            lsn = publisher.sql("SELECT pg_current_wal_lsn()")
            assert subscriber.sql(f"SELECT headgate.wait_for_lsn('waited', '{lsn}', 60)") == "t"
            assert subscriber.sql("SELECT count(*) FROM t") == str(number)
        assert subscriber.sql("SELECT headgate.wait_for_lsn('waited', 'FFFFFFFF/0', 0.1)") == "f"
        subscriber.sql("ALTER SUBSCRIPTION waited DISABLE")
        with pytest.raises(SqlError, match='subscription "waited" is disabled'):
            subscriber.sql("SELECT headgate.wait_for_lsn('waited', '0/0', 1)")
    finally:
        subscriber.unsubscribe()
    for arguments, message in (
        ("'nosuch', '0/0', 1", 'subscription "nosuch" does not exist'),
        ("'nosuch', '0/0', -1", "timeout must not be negative"),
    ):
        with pytest.raises(SqlError, match=message):
            subscriber.sql(f"SELECT headgate.wait_for_lsn({arguments})")


@pytest.mark.parametrize("kind", ["postgres", pytest.param("node", marks=pytest.mark.slow)])
def test_every_commit_up_to_the_returned_time_is_visible(
    request: pytest.FixtureRequest, postgres: PostgresServer, node: NodeServer, kind: str
) -> None:
    publisher, subscriber = Database.new(request.getfixturevalue(kind)), Database.new(node)
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE elsewhere (id int); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE local (id int); CREATE ROLE complete_reader")
    subscribe(subscriber, publisher, "completed", "p")
    complete, clock = "SELECT headgate.complete_until('t', 60)", "SELECT clock_timestamp()"
    try:
        earliest = ""
        for number in range(1, 4):
            publisher.sql(f"INSERT INTO t VALUES ({number}); INSERT INTO elsewhere VALUES ({number})")
            committed = publisher.sql(clock)
            until = subscriber.sql(complete)
            assert subscriber.sql("SELECT count(*) FROM t") == str(number)
            assert publisher.sql(f"SELECT '{until}'::timestamptz BETWEEN '{committed}' AND clock_timestamp()") == "t"
            assert until > earliest
            earliest = until
        for role, table, message in (
            ("postgres", "local", 'table "public.local" is not in a subscription'),
            ("postgres", "nosuch", 'relation "nosuch" does not exist'),
            ("complete_reader", "t", "permission denied for table t"),
        ):
            with pytest.raises(SqlError, match=message):
                subscriber.sql(f"SET ROLE {role}; SELECT headgate.complete_until('{table}', 1)")
        subscriber.sql("ALTER SUBSCRIPTION completed DISABLE")
        with pytest.raises(SqlError, match='subscription "completed" is disabled'):
            subscriber.sql(complete)
    finally:
        subscriber.unsubscribe()
        subscriber.sql("DROP ROLE complete_reader")


@pytest.mark.slow
def test_no_time_is_complete_while_a_change_waits_to_be_applied(postgres: PostgresServer, node: NodeServer) -> None:
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY)")
    subscribe(subscriber, publisher, "held_up", "p")
    try:
        with psycopg.connect(subscriber.conninfo) as blocking:
            blocking.execute("LOCK TABLE t")
            publisher.sql("INSERT INTO t VALUES (1)")
            assert subscriber.sql("SELECT headgate.complete_until('t', 0.5) IS NULL") == "t"
            with pytest.raises(TimeoutError, match=r'table "public\.t" does not have all changes of its publisher'):
                pyspark_headgate.complete_until(subscriber.conninfo, "public.t", timeout=0.5)
        committed = publisher.sql("SELECT clock_timestamp()")
        assert pyspark_headgate.complete_until(subscriber.conninfo, "public.t") >= datetime.fromisoformat(committed)
        assert subscriber.sql("SELECT count(*) FROM t") == "1"
    finally:
        subscriber.unsubscribe()
