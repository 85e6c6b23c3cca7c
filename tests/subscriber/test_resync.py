"""headgate.resync(), headgate.reconcile() and REFRESH … WITH (reconcile): tables that are synchronized again beside their old rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import NodeServer, PostgresServer, SqlError
from tests.system.chain import Database, arrived, subscribe

MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(12,2)); CREATE TABLE other (id int PRIMARY KEY)"
FILL = """
INSERT INTO t SELECT i, md5(i::text), i * 1.5 FROM generate_series(1, 3000) i; INSERT INTO other SELECT generate_series(1, 100);
CREATE PUBLICATION p FOR TABLE t WHERE (id % 10 <> 0), other
"""
SETTLED = "SELECT count(*) FILTER (WHERE resync IS NOT NULL OR srsubstate <> 'r') FROM pg_stat_subscription_rel WHERE subname = 's'"
ROWS = "SELECT count(*), sum(id), min(md5(v || n)), max(md5(v || n)) FROM t"


@pytest.fixture
def pair(postgres: PostgresServer, node: NodeServer) -> Iterator[tuple[Database, Database]]:
    """A publisher and a subscriber that has its rows."""
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql(MAKE + ";" + FILL)
    subscriber.sql(MAKE)
    subscribe(subscriber, publisher, "s", "p")
    yield publisher, subscriber
    subscriber.unsubscribe()


def published(publisher: Database, where: str = "id % 10 <> 0") -> str:
    """What the subscriber should have."""
    return publisher.sql(f"{ROWS} WHERE {where}")


@pytest.mark.parametrize("function", ["resync", "reconcile"])
def test_a_table_that_others_have_written_is_the_publishers_again_and_streams_on(pair: tuple[Database, Database], function: str) -> None:
    publisher, subscriber = pair
    subscriber.sql(
        "DELETE FROM t WHERE id < 50; UPDATE t SET v = NULL WHERE id = 77; INSERT INTO t SELECT i FROM generate_series(5000, 5010) i"
    )
    publisher.sql("UPDATE t SET n = n + 1 WHERE id > 2990")
    subscriber.sql(f"SELECT headgate.{function}('s', 'public.t')")
    publisher.sql("INSERT INTO t VALUES (9001, 'behind', 1)")
    subscriber.wait(SETTLED, "0")
    publisher.sql("UPDATE t SET v = 'later' WHERE id = 3")
    arrived(publisher, "s")
    assert subscriber.sql(ROWS) == published(publisher)
    assert publisher.sql("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%sync%'") == "0"


@pytest.mark.parametrize("function", ["resync", "reconcile"])
def test_who_may_ask_and_for_what(pair: tuple[Database, Database], function: str) -> None:
    _, subscriber = pair
    ask = f"SELECT headgate.{function}"
    subscriber.sql("CREATE TABLE mine (a int)")
    for call, message in (
        (f"{ask}('none', 't')", 'subscription "none" does not exist'),
        (f"{ask}('s', 'nowhere.t')", 'relation "nowhere.t" does not exist'),
        (f"{ask}('s', 'mine')", 'table "public.mine" is not in subscription "s"'),
        (f"CREATE ROLE {subscriber.name}_other; SET ROLE {subscriber.name}_other; {ask}('s', 't')", "must be owner of subscription s"),
        (f"ALTER SUBSCRIPTION s DISABLE; {ask}('s', 't')", 'subscription "s" is disabled'),
    ):
        with pytest.raises(SqlError, match=message):
            subscriber.sql(call)
    assert subscriber.sql("SELECT count(*) FROM pg_stat_subscription_rel WHERE resync IS NOT NULL") == "0"
