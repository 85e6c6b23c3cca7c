"""headgate.wait_for_lsn(): the next statement sees what the publisher had at an LSN."""

from __future__ import annotations

import pytest
from tests.conftest import NodeServer, PostgresServer, SqlError
from tests.system.chain import Database, subscribe


def test_after_the_wait_what_the_publisher_had_is_visible(postgres: PostgresServer, node: NodeServer) -> None:
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
