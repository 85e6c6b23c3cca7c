"""headgate.resync(), headgate.reconcile() and REFRESH … WITH (reconcile) make existing tables equal to their publisher again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.conftest import NodeServer, PostgresServer, SqlError
from tests.system.chain import Database, arrived, meanwhile, subscribe

from headgate.catalog.cursor import CatalogCursor
from headgate.catalog.replication import subscription_resync
from headgate.catalog.replication.subscription_resync import Method
from headgate.storage.engine import Engine
from headgate.subscriber.report import _again

MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(12,2)); CREATE TABLE other (id int PRIMARY KEY)"
FILL = """
INSERT INTO t SELECT i, md5(i::text), i * 1.5 FROM generate_series(1, 3000) i; INSERT INTO other SELECT generate_series(1, 100);
CREATE PUBLICATION p FOR TABLE t WHERE (id % 10 <> 0), other
"""
SETTLED = "SELECT count(*) FILTER (WHERE resync IS NOT NULL OR srsubstate <> 'r') FROM pg_stat_subscription_rel WHERE subname = 's'"
ROWS = "SELECT count(*), sum(id), min(md5(v || n)), max(md5(v || n)) FROM t"


@pytest.fixture
def pair(postgres: PostgresServer, node: NodeServer) -> Iterator[tuple[Database, Database]]:
    """A publisher, and a subscriber that has its rows."""
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql(MAKE + ";" + FILL)
    subscriber.sql(MAKE)
    subscribe(subscriber, publisher, "s", "p")
    yield publisher, subscriber
    subscriber.unsubscribe()


def published(publisher: Database, where: str = "id % 10 <> 0") -> str:
    """Return the rows that the subscriber should have."""
    return publisher.sql(f"{ROWS} WHERE {where}")


@pytest.mark.slow
@pytest.mark.parametrize("function", ["resync", "reconcile"])
def test_table_that_others_have_written_equals_its_publisher_again_and_streams(pair: tuple[Database, Database], function: str) -> None:
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
def test_resync_and_reconcile_reject_other_users_and_other_tables(pair: tuple[Database, Database], function: str) -> None:
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


KINDS = """
CREATE TABLE whole (a int, b text, c float8); ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE parts (id int, region text, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a'); CREATE TABLE parts_b PARTITION OF parts FOR VALUES IN ('b', 'c');
CREATE TABLE pairs (k1 {big}, k2 {text}, n {scale}, at timestamptz, j jsonb, xs int[], raw bytea, PRIMARY KEY (k1, k2));
CREATE TABLE swapped (id int PRIMARY KEY, u int UNIQUE, "k" text, "r" text);
CREATE TABLE made (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED {extra})
"""
ROWS_THERE = """
INSERT INTO whole SELECT i % 7, NULLIF(i % 3, 0)::text, i % 2 FROM generate_series(1, 200) i;
INSERT INTO parts SELECT i, chr(97 + i % 3), 'p' || i FROM generate_series(1, 300) i;
INSERT INTO pairs SELECT i, 'k' || i, i / 4.0, '2024-01-01 00:00+00'::timestamptz + i * interval '1 hour', '{"a": [1, null]}', ARRAY[i, NULL], '\\x00ff'
  FROM generate_series(1, 300) i;
INSERT INTO swapped SELECT i, i, 'x', NULL FROM generate_series(1, 300) i;
INSERT INTO made (id, a) SELECT i, i FROM generate_series(1, 300) i;
CREATE PUBLICATION p FOR TABLE whole, parts, pairs, swapped, made WITH (publish_via_partition_root = true)
"""
DRIFT = """
DELETE FROM whole WHERE ctid IN (SELECT ctid FROM whole WHERE a = 1 LIMIT 3); INSERT INTO whole VALUES (1, 'x', 0), (2, NULL, 0), (2, NULL, 0);
DELETE FROM parts WHERE id < 20; INSERT INTO parts VALUES (7, 'c', 'elsewhere'), (1000, 'a', 'more'); UPDATE parts SET v = NULL WHERE id = 100;
UPDATE pairs SET n = n + 0.01 WHERE k1 = 5; UPDATE pairs SET xs = '{}', raw = '' WHERE k1 = 6; UPDATE pairs SET j = NULL, at = NULL WHERE k1 = 7;
DELETE FROM pairs WHERE k1 = 8;
DELETE FROM swapped WHERE id IN (1, 2); INSERT INTO swapped VALUES (1, 2, 'y', 'z'), (2, 1, NULL, ''), (999, 999, '', '');
UPDATE made SET a = a + 1, mine = 'kept' WHERE id <= 10; DELETE FROM made WHERE id = 20; INSERT INTO made (id, a, mine) VALUES (777, 1, 'lost')
"""
SAME = [
    "SELECT count(*), a, b, c FROM whole GROUP BY a, b, c", "SELECT tableoid::regclass, * FROM parts", "SELECT k1, k2, n::numeric, at, j, xs, raw FROM pairs",
    "SELECT * FROM swapped", "SELECT id, a, twice FROM made",
]  # fmt: skip


@pytest.mark.slow
def test_tables_of_every_kind_are_reconciled_and_local_columns_stay(postgres: PostgresServer, node: NodeServer) -> None:
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql(KINDS.format(big="int", text="varchar(20)", scale="numeric(12,2)", extra="") + ";" + ROWS_THERE)
    subscriber.sql(KINDS.format(big="bigint", text="text", scale="numeric", extra=", mine text DEFAULT 'here'"))
    subscribe(subscriber, publisher, "s", "p")
    try:
        assert [subscriber.rows(query) for query in SAME] == [publisher.rows(query) for query in SAME]
        subscriber.sql(DRIFT.replace("ctid IN (SELECT ctid FROM whole WHERE a = 1 LIMIT 3)", "a = 1 AND b = '1'"))
        assert all(subscriber.rows(query) != publisher.rows(query) for query in SAME)
        subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION WITH (reconcile = true)")
        subscriber.wait(SETTLED, "0")
        assert [subscriber.rows(query) for query in SAME] == [publisher.rows(query) for query in SAME]
        mine = "SELECT string_agg(mine || ':' || id, ' ' ORDER BY id) FROM made WHERE id <= 12 OR id IN (20, 777)"
        assert subscriber.sql(mine) == " ".join([f"kept:{key}" for key in range(1, 11)] + ["here:11", "here:12", "here:20"])
    finally:
        subscriber.unsubscribe()


@pytest.mark.slow
def test_first_copy_with_reconcile_keeps_rows_and_writes_those_that_differ(pair: tuple[Database, Database]) -> None:
    publisher, subscriber = pair
    subscriber.sql("DROP SUBSCRIPTION s")
    subscriber.sql("DELETE FROM t WHERE id < 5; UPDATE t SET v = 'other' WHERE id = 77; INSERT INTO t VALUES (9000)")
    subscribe(subscriber, publisher, "s", "p", "copy_data = reconcile")
    subscriber.wait(SETTLED, "0")
    assert subscriber.sql(ROWS) == published(publisher)
    assert subscriber.sql("SELECT rows_copied FROM pg_stat_subscription_rel WHERE relname = 't'") == "5"
    publisher.sql("INSERT INTO t VALUES (9001, 'behind', 1)")
    arrived(publisher, "s")
    assert subscriber.sql(ROWS) == published(publisher)


@pytest.mark.slow
def test_reconcile_follows_a_changed_filter_and_writes_no_other_row(pair: tuple[Database, Database]) -> None:
    publisher, subscriber = pair
    query = "SELECT count(*) FROM t WHERE v = 'mine'"
    publisher.sql("ALTER PUBLICATION p SET TABLE t WHERE (id % 7 <> 0), other")
    subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION WITH (reconcile = true)")
    subscriber.wait(SETTLED, "0")
    assert subscriber.sql(ROWS) == published(publisher, "id % 7 <> 0")
    copied = "SELECT rows_copied FROM pg_stat_subscription_rel WHERE relname = 't'"
    entered = publisher.sql("SELECT count(*) FROM t WHERE id % 10 = 0 AND id % 7 <> 0")
    assert int(subscriber.sql(copied)) - int(publisher.sql("SELECT count(*) FROM t WHERE id % 10 <> 0")) == int(entered)
    assert subscriber.sql(query) == "0"


@pytest.mark.parametrize(
    ("function", "times"),
    [("reconcile", 1), pytest.param("reconcile", 3, marks=pytest.mark.slow), pytest.param("resync", 3, marks=pytest.mark.slow)],
)
def test_no_row_is_lost_or_duplicated_while_the_publisher_is_written_to(pair: tuple[Database, Database], function: str, times: int) -> None:
    publisher, subscriber = pair
    with psycopg.connect(publisher.conninfo, autocommit=True) as writer:

        def change(number: int) -> None:
            key = number * 37 % 3000
            writer.execute("UPDATE t SET v = %s, n = n + 1 WHERE id BETWEEN %s AND %s", (f"v{number}", key, key + 20))
            writer.execute("UPDATE t SET id = id + 100000 WHERE id = %s", (key,))
            writer.execute("DELETE FROM t WHERE id = %s", (key + 7,))
            writer.execute("INSERT INTO t VALUES (%s, 'new', 1)", (300_000 + number,))

        with meanwhile(change):
            for _ in range(times):
                subscriber.sql(f"DELETE FROM t WHERE id % 3 = 0; SELECT headgate.{function}('s', 't')")
                subscriber.wait(SETTLED, "0")
    arrived(publisher, "s")
    assert subscriber.sql(ROWS) == published(publisher)


def test_readers_see_the_old_rows_until_the_commit_and_writers_delay_it(pair: tuple[Database, Database], node: NodeServer) -> None:
    publisher, subscriber = pair
    subscriber.sql("DELETE FROM t WHERE id > 100")
    old = subscriber.sql("SELECT count(*) FROM t")
    with psycopg.connect(subscriber.conninfo) as writer:
        writer.execute("UPDATE t SET v = 'open' WHERE id = 3")
        subscriber.sql("SELECT headgate.resync('s', 't')")
        waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'logical replication worker' AND wait_event_type = 'Lock'"
        subscriber.wait(waiting, "t")
        assert subscriber.sql("SELECT count(*) FROM t") == old
        publisher.sql("INSERT INTO other VALUES (5000)")
        subscriber.wait("SELECT count(*) FROM other WHERE id = 5000", "1")  # other tables are not held up
        writer.rollback()
    subscriber.wait(SETTLED, "0")
    assert subscriber.sql(ROWS) == published(publisher)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["DISABLE", "DROP"])
def test_subscription_can_be_disabled_or_dropped_while_a_table_is_reconciled(postgres: PostgresServer, node: NodeServer, end: str) -> None:
    publisher, subscriber = Database.new(postgres), Database.new(node)
    publisher.sql(
        f"{MAKE}; INSERT INTO t SELECT i, md5(i::text), i FROM generate_series(1, 60000) i; CREATE PUBLICATION p FOR TABLE t, other"
    )
    subscriber.sql(MAKE)
    subscribe(subscriber, publisher, "s", "p")
    try:
        subscriber.sql("DELETE FROM t WHERE id % 2 = 0; SELECT headgate.reconcile('s', 't')")
        subscriber.wait("SELECT srsubstate FROM pg_stat_subscription_rel WHERE relname = 't' AND subname = 's'", "d")
        if end == "DROP":
            subscriber.sql("DROP SUBSCRIPTION s")
            assert subscriber.sql("SELECT count(*) FROM t") == "30000"
        else:
            subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
            assert subscriber.sql("SELECT count(*) FROM t") == "30000"
            subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
            subscriber.wait(SETTLED, "0")
            assert subscriber.sql("SELECT count(*), count(v) FROM t") == "60000|60000"
        slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%sync%' AND database = current_database()"
        publisher.wait(slots, "0")
    finally:
        subscriber.unsubscribe()
    orphaned_origins = "SELECT count(*) FROM pg_replication_origin o LEFT JOIN pg_subscription s ON roname ~ ('^pg_' || s.oid || '(_|$)') WHERE s.oid IS NULL"
    subscriber.wait(f"{orphaned_origins} AND roname ~ '^pg_'", "0")


class Meanwhile:
    """A cursor that runs a function after its first query."""

    def __init__(self, cursor: CatalogCursor, happens: Callable[[], object]) -> None:
        self._cursor, self._happens = cursor, happens

    def rows(self, query: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        answer = self._cursor.rows(query, parameters)
        self._happens()
        self._happens = lambda: None
        return answer


def test_table_whose_resync_starts_during_the_query_is_still_shown_as_resyncing(engine: Engine) -> None:
    """pg_stat_subscription_rel reads the running and the requested resyncs with two queries."""
    catalog = engine.catalog
    catalog.change(lambda cursor: subscription_resync.request(cursor, 5, 16400, 16500, Method.DIFFERENCE))
    take_request = lambda: catalog.change(lambda cursor: subscription_resync.take_difference(cursor, 5, 16400, 16500))  # noqa: E731
    assert _again(Meanwhile(catalog.cursor(), take_request), 16400) == {16500: "difference"}
    catalog.change(lambda cursor: subscription_resync.request(cursor, 5, 16400, 16500, Method.COPY))
    assert _again(catalog.cursor(), 16400) == {16500: "copy"}


def test_request_that_commits_after_the_one_before_it_was_taken_is_processed_later(engine: Engine) -> None:
    def request(cursor: CatalogCursor, method: Method) -> None:
        subscription_resync.request(cursor, 5, 16401, 16500, method)

    catalog = engine.catalog
    catalog.change(lambda cursor: request(cursor, Method.COPY))
    session = catalog.begin()
    request(session.cursor, Method.DIFFERENCE)
    catalog.change(lambda cursor: subscription_resync.take_difference(cursor, 5, 16401, 16500))
    session.commit()
    assert subscription_resync.taken(catalog.cursor(), 16401) == {16500: Method.COPY}
    assert subscription_resync.requested(catalog.cursor(), 16401) == {16500: Method.DIFFERENCE}
