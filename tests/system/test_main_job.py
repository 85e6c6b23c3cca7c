"""The main job replicates one filtered table PostgreSQL → node → node → PostgreSQL, also across restarts and crashes of the nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import duckdb
import psycopg
import pytest
from tests.system.chain import Database, arrived, subscribe

from headgate.storage.delta import delta_log
from headgate.storage.location import data_location

TABLE = "CREATE TABLE orders (id int, region text, amount numeric(10,2), placed timestamptz, {more} PRIMARY KEY (id, region))"
ROWS = """INSERT INTO orders SELECT g, (ARRAY['eu','us','ap'])[1 + g % 3], g * 0.5, timestamptz '2026-01-01 00:00:00+00' + g * interval '1 minute', 'n' || g
          FROM generate_series(1, 300) g"""
COLUMNS = "id, region, amount, placed"


@pytest.fixture(autouse=True)
def _nothing_goes_on_after_the_test() -> Iterator[None]:
    yield
    for database in Database.made:
        if database.server.running:
            database.unsubscribe()
    Database.made.clear()


@pytest.fixture
def source(postgres) -> Iterator[Database]:
    database = Database.new(postgres)
    database.sql(TABLE.format(more="note text,") + ";" + ROWS)
    database.sql(f"CREATE PUBLICATION eu FOR TABLE orders ({COLUMNS}) WHERE (region = 'eu')")
    return database


def lake(node, publication: str | None = None) -> Database:
    """A database of a node with the table, which it publishes too."""
    database = Database.new(node)
    database.sql(TABLE.format(more=""))
    if publication:
        database.sql("ALTER TABLE orders REPLICA IDENTITY FULL;" + publication)
    return database


def test_rows_that_match_the_filters_are_replicated_through_two_nodes(source, node, own_node, postgres):
    first = lake(node, "CREATE PUBLICATION large FOR TABLE orders WHERE (amount >= 50)")
    second = lake(own_node(), "CREATE PUBLICATION everything FOR TABLE orders")
    last = Database.new(postgres)
    last.sql(TABLE.format(more=""))
    subscribe(first, source, "a", "eu")
    subscribe(second, first, "b", "large")
    subscribe(last, second, "c", "everything")
    source.sql("""BEGIN; INSERT INTO orders VALUES (1001, 'eu', 10, now(), 'x'), (1002, 'eu', 500.50, now(), 'x'); COMMIT;
                  UPDATE orders SET region = 'eu' WHERE id IN (1, 3, 150);
                  UPDATE orders SET region = 'us' WHERE id IN (120, 123);
                  UPDATE orders SET amount = 49.99 WHERE id = 240; UPDATE orders SET amount = 60 WHERE id = 6;
                  DELETE FROM orders WHERE id = 300;""")
    arrived(source, "a")
    arrived(first, "b")
    arrived(second, "c")
    of_eu = source.rows(f"SELECT {COLUMNS} FROM orders WHERE region = 'eu'")
    large = source.rows(f"SELECT {COLUMNS} FROM orders WHERE region = 'eu' AND amount >= 50")
    assert first.rows(f"SELECT {COLUMNS} FROM orders") == of_eu
    assert second.rows(f"SELECT {COLUMNS} FROM orders") == large
    assert last.rows(f"SELECT {COLUMNS} FROM orders") == large


def test_table_is_an_ordinary_delta_table_for_another_engine(source, node, surroundings):
    first = lake(node)
    subscribe(first, source, "a", "eu")
    folder = surroundings.path(first.sql("SELECT path FROM headgate.snapshot() WHERE name = 'orders'"))
    assert delta_log.versions(folder)
    files = [str(data_location.local(folder / name)) for name in data_location.names(folder) if name.endswith(".parquet")]
    count = duckdb.sql(f"SELECT count(*) FROM read_parquet({files!r})").fetchall()
    assert count == [(100,)]


@pytest.mark.slow
def test_confirmed_changes_survive_a_restart_and_the_stream_continues(source, spare_node):
    node = spare_node()
    first = lake(node)
    subscribe(first, source, "a", "eu")
    source.sql("INSERT INTO orders VALUES (2001, 'eu', 1, now(), 'before')")
    arrived(source, "a")
    node.stop()
    source.sql("INSERT INTO orders VALUES (2002, 'eu', 1, now(), 'meanwhile'); UPDATE orders SET region = 'us' WHERE id = 2001")
    node.start()
    arrived(source, "a")
    assert first.rows(f"SELECT {COLUMNS} FROM orders") == source.rows(f"SELECT {COLUMNS} FROM orders WHERE region = 'eu'")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("times", [8])
def test_repeatedly_killed_node_ends_with_the_right_contents(source, spare_node, postgres, times):
    """The node is killed at random moments. Its subscriber loses no change and applies none twice."""
    node = spare_node()
    first = lake(node, "CREATE PUBLICATION everything FOR TABLE orders")
    last = Database.new(postgres)
    last.sql(TABLE.format(more=""))
    subscribe(first, source, "a", "eu")
    subscribe(last, first, "c", "everything")
    stop = threading.Event()

    def write() -> None:
        number = 5000
        with psycopg.connect(source.conninfo, autocommit=True) as session:
            while not stop.is_set():
                number += 1
                session.execute("INSERT INTO orders VALUES (%s, 'eu', 1, now(), 'k')", (number,))
                session.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (number - 7,))
                session.execute("DELETE FROM orders WHERE id = %s AND id %% 3 = 0", (number - 11,))
                stop.wait(0.02)  # a rate with which the node keeps up, so that it always has work and does not lag

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(times):
            rows = first.sql("SELECT count(*) FROM orders")
            first.wait(f"SELECT count(*) <> {rows} FROM orders", "t")  # the node applies changes
            node.kill()
            node.start()
    finally:
        stop.set()
        writer.join()
    arrived(source, "a")
    arrived(first, "c")
    expected = source.rows(f"SELECT {COLUMNS} FROM orders WHERE region = 'eu'")
    assert first.rows(f"SELECT {COLUMNS} FROM orders") == expected
    assert last.rows(f"SELECT {COLUMNS} FROM orders") == expected


@pytest.mark.slow
def test_postgresql_subscriber_of_a_node_continues_after_either_side_restarts(spare_node, cluster):
    node, server = spare_node(), cluster()
    first, last = lake(node, "CREATE PUBLICATION large FOR TABLE orders WHERE (amount >= 50)"), Database.new(server)
    last.sql(TABLE.format(more=""))
    first.sql("INSERT INTO orders VALUES (1, 'eu', 100, now()), (2, 'eu', 10, now())")
    subscribe(last, first, "c", "large")
    assert last.rows("SELECT id FROM orders") == ["1"]
    node.restart()
    first.sql("UPDATE orders SET amount = 70 WHERE id = 2")
    arrived(first, "c")
    server.stop()
    first.sql("UPDATE orders SET amount = 1 WHERE id = 1; INSERT INTO orders VALUES (3, 'us', 51, now())")
    server.start()
    arrived(first, "c")
    assert last.rows("SELECT id, amount FROM orders") == ["2|70.00", "3|51.00"]


def test_transaction_over_two_tables_becomes_visible_at_once(postgres, node):
    source, target = Database.new(postgres), Database.new(node)
    for database in (source, target):
        database.sql("CREATE TABLE debit (id int PRIMARY KEY, n int); CREATE TABLE credit (id int PRIMARY KEY, n int)")
    source.sql("CREATE PUBLICATION p FOR TABLE debit, credit")
    subscribe(target, source, "s", "p")
    counts = []
    finished = threading.Event()

    def watch() -> None:
        with psycopg.connect(target.conninfo, autocommit=True) as session:
            while not finished.is_set():
                counts.append(session.execute("SELECT (SELECT count(*) FROM debit), (SELECT count(*) FROM credit)").fetchone())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(20):
            source.sql(f"BEGIN; INSERT INTO debit VALUES ({number}, 1); INSERT INTO credit VALUES ({number}, 1); COMMIT")
        arrived(source, "s")
    finally:
        finished.set()
        watcher.join()
    assert {debited - credited for debited, credited in counts} == {0}, "no reader saw one table without the other"
    assert target.rows("SELECT id FROM credit") == source.rows("SELECT id FROM credit")


def test_filters_of_several_publications_are_ored_and_null_does_not_match(node, postgres):
    source, target = Database.new(node), Database.new(postgres)
    for database in (source, target):
        database.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    source.sql(
        "ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p1 FOR TABLE t WHERE (b > 10); CREATE PUBLICATION p2 FOR TABLE t WHERE (b < 3)"
    )
    source.sql("INSERT INTO t VALUES (1, 1), (2, 5), (3, 11), (4, NULL)")
    subscribe(target, source, "s", "p1, p2")
    assert target.rows("SELECT a FROM t") == ["1", "3"]
    source.sql(
        "INSERT INTO t VALUES (5, 2), (6, NULL); UPDATE t SET b = 20 WHERE a IN (2, 4); UPDATE t SET b = NULL WHERE a = 1; UPDATE t SET b = 12 WHERE a = 3"
    )
    arrived(source, "s")
    assert target.rows("SELECT a, b FROM t") == ["2|20", "3|12", "4|20", "5|2"]


@pytest.mark.slow
def test_large_transaction_is_replicated_completely(postgres, node):
    source, target = Database.new(postgres), Database.new(node)
    for database in (source, target):
        database.sql("CREATE TABLE big (id int PRIMARY KEY, filler text)")
    source.sql("CREATE PUBLICATION p FOR TABLE big")
    subscribe(target, source, "s", "p")
    source.sql("INSERT INTO big SELECT g, repeat('x', 200) FROM generate_series(1, 200000) g")
    arrived(source, "s", seconds=180)
    assert target.sql("SELECT count(*), count(DISTINCT id), min(length(filler)) FROM big") == "200000|200000|200"


@pytest.mark.slow
def test_changes_of_a_large_update_have_lsns_between_begin_and_commit(node, postgres):
    """An update is two rows of a change file, but its LSNs must not reach into the next transaction."""
    source, target = Database.new(node), Database.new(postgres)
    for database in (source, target):
        database.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    source.sql("CREATE PUBLICATION p FOR TABLE t; INSERT INTO t SELECT g, 0 FROM generate_series(1, 50) g")
    subscribe(target, source, "s", "p")
    target.sql("ALTER SUBSCRIPTION s DISABLE")
    source.wait("SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()", "0")
    source.sql("UPDATE t SET b = 1; UPDATE t SET b = 2; UPDATE t SET b = b + 1 WHERE a < 30; DELETE FROM t WHERE a = 7")
    logged = len(postgres.log())
    target.sql("ALTER SUBSCRIPTION s ENABLE")
    arrived(source, "s")
    assert target.rows("SELECT a, b FROM t") == source.rows("SELECT a, b FROM t")
    assert "out of order" not in postgres.log()[logged:]
