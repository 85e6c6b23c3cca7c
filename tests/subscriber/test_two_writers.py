"""If an apply worker and another session write the same table, no key is stored twice, whichever commits first."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import until
from tests.subscriber.conftest import Publisher, Subscriber

TABLE = "CREATE TABLE t (a int PRIMARY KEY)"
DUPLICATE = 'duplicate key value violates unique constraint "t_pkey"'


def test_rows_applied_by_two_subscriptions_are_stored_once(publisher: Publisher, subscriber: Subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    for name in ("s", "r"):
        subscriber.sql(publisher.subscription("copy_data = false", name=name))
    publisher.sql("INSERT INTO t SELECT generate_series(1, 8)")
    subscriber.log.error(DUPLICATE)
    assert subscriber.sql("SELECT count(*), count(DISTINCT a) FROM t") == "8|8"


def test_row_that_a_session_is_inserting_is_not_stored_again_by_an_apply_worker(publisher: Publisher, subscriber: Subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("copy_data = false"))
    with psycopg.connect(subscriber.conninfo) as session:
        session.execute("INSERT INTO t VALUES (50)")
        publisher.sql("INSERT INTO t VALUES (50)")
        end = publisher.sql("SELECT pg_current_wal_lsn()")
        received = f"SELECT received_lsn >= '{end}' FROM pg_stat_subscription WHERE subid = {subscriber.of_subscription('s.oid')}"
        until(lambda: subscriber.sql(received) == "t", "the row has not been received")
        session.commit()
    subscriber.log.error(DUPLICATE)
    assert subscriber.sql("SELECT count(*) FROM t") == "1"


@pytest.mark.parametrize(
    ("alteration", "holds"),
    [
        pytest.param("ALTER b TYPE text", "SELECT b || '!' FROM t", id="type"),
        pytest.param("RENAME b TO old", "SELECT count(old) FROM t", id="name"),
        pytest.param("ADD CHECK (b < 5)", "SELECT count(*) FROM t WHERE b >= 5", id="check"),
    ],
)
def test_copy_uses_the_definition_from_after_it_waited_for_its_publisher(
    publisher: Publisher, subscriber: Subscriber, alteration: str, holds: str
) -> None:
    """The table is altered while the copy waits for a lock at the publisher."""
    publisher.sql("CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 7); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    subscriber.sql(publisher.subscription("enabled = false"))
    with psycopg.connect(publisher.conninfo) as session:
        session.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
        until(
            lambda: publisher.sql("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted") == "1",
            "the copy does not wait for a lock",
        )
        subscriber.sql(f"ALTER TABLE t {alteration}")
    if alteration.startswith("ALTER"):
        subscriber.wait(holds, "7!")
    else:
        subscriber.log.error("violates check constraint" if "CHECK" in alteration else "missing replicated column")
        assert subscriber.sql(holds) == "0"
