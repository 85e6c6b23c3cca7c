"""Delta tables hold a real publisher's rows after the copy, the stream, large transactions and restarts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from threading import Event

import psycopg
import pytest
from tests.conftest import until
from tests.publisher import slots
from tests.session import Session
from tests.subscriber.conftest import READY
from tests.subscriber.test_limits import behind
from tests.system.proxy import Proxy

from headgate.subscriber.apply import batch
from headgate.subscriber.synchronization import initial_copy

TABLE = "CREATE TABLE t(id int PRIMARY KEY, b text, n numeric(10,2))"


def contents(server) -> list[str]:
    return sorted(server.sql("SELECT * FROM t").split("\n"))


def replicate(publisher, subscriber, table=TABLE, rows="", options="") -> None:
    publisher.sql(f"{table}; CREATE PUBLICATION p FOR TABLE t; {rows}")
    subscriber.sql(table)
    subscriber.sql(publisher.subscription(options))
    subscriber.wait(READY, "t")


def test_copied_rows_and_later_changes_arrive(publisher, subscriber) -> None:
    replicate(publisher, subscriber, rows="INSERT INTO t SELECT i, 'row ' || i, i / 3.0 FROM generate_series(1, 2000) i")
    assert contents(subscriber) == contents(publisher)
    publisher.sql("INSERT INTO t VALUES (3001, NULL, 1.239), (3002, E'tab\\tnewline\\n\\\\', -0)")
    publisher.sql("UPDATE t SET b = upper(b) WHERE id % 7 = 0; UPDATE t SET id = id + 10000 WHERE id < 5; DELETE FROM t WHERE id % 10 = 3")
    publisher.sql("BEGIN; UPDATE t SET id = -1 WHERE id = 6; UPDATE t SET id = 6 WHERE id = 8; UPDATE t SET id = 8 WHERE id = -1; COMMIT")
    publisher.wait_confirmed()
    assert contents(subscriber) == contents(publisher)
    assert (
        publisher.sql("SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'pg_%_sync_%' AND database = current_database()")
        == "0"
    )


@pytest.mark.parametrize(
    ("pages", "workers", "cores", "count"),
    [
        (0, 2, 2, 1),
        (1023, 2, 2, 1),
        (1024, 2, 2, 2),
        (1024, 2, 16, 2),
        (8192, 2, 16, 16),
        (9216, 2, 2, 3),
        (33_000, 2, 2, 4),
        (33_000, 8, 2, 10),
        (200_000, 2, 2, 13),
    ],
)
def test_page_ranges_of_a_table_are_even_and_adjacent(pages: int, workers: int, cores: int, count: int) -> None:
    ranges = initial_copy.page_ranges(pages, workers, cores)
    borders = [int(border) for condition in ranges for border in re.findall(r"< '\((\d+),", condition)]
    assert [int(border) for condition in ranges for border in re.findall(r">= '\((\d+),", condition)] == borders
    assert len(ranges) == count == len(borders) + 1
    sizes = [end - start for start, end in zip([0, *borders], [*borders, pages], strict=True)]
    assert max(sizes) - min(sizes) <= 1 or not pages
    assert max(sizes) <= initial_copy.RANGE_PAGES[1]


def in_ranges(publisher, count: int) -> None:
    """Check that the table is large enough to be copied in this number of ranges on two cores."""
    pages = int(publisher.sql("SELECT pg_relation_size('t') / 8192"))
    assert pages * 8192 >= initial_copy.PARALLEL_SIZE
    assert len(initial_copy.page_ranges(pages, 2, 2)) == count


def test_large_table_is_copied_in_parallel(publisher, subscriber) -> None:
    columns = "id int PRIMARY KEY, b text, n numeric(10,2), f float8, d date, s timestamptz, x bytea, u uuid, l bool, v varchar(9)"
    publisher.sql(f"CREATE TABLE t({columns}) WITH (fillfactor = 10)")  # pages that are nearly empty: 8,000 rows take 10 MB
    publisher.sql("""INSERT INTO t SELECT i, repeat('x', i % 50), i / 3.0, i / 7.0, date '2000-01-01' + i % 9999, timestamptz '2020-01-01' + i * interval '1 s',
              decode(lpad(to_hex(i), 8, '0'), 'hex'), md5(i::text)::uuid, i % 2 = 0, CASE WHEN i % 3 > 0 THEN 'v' || i END FROM generate_series(1, 8000) i""")
    in_ranges(publisher, 2)
    publisher.sql("CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(f"CREATE TABLE t({columns})")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    assert contents(subscriber) == contents(publisher)


@pytest.mark.slow
def test_parallel_copy_reads_types_without_a_binary_form_as_text(publisher, subscriber) -> None:
    columns = (
        'id int PRIMARY KEY, a int[], j jsonb, i interval, n inet, c cidr, k "char", b boolean, p char(5), t time, e mood, o {}, m text[]'
    )
    publisher.sql("CREATE TYPE pair AS (x int, y int); CREATE TYPE mood AS ENUM ('sad', 'it''s')")
    publisher.sql(f"CREATE TABLE t({columns.format('pair')}) WITH (fillfactor = 10)")
    publisher.sql("""INSERT INTO t SELECT g, ARRAY[g, NULL], jsonb_build_object('a', g, 'bb', E'\\\n"'), make_interval(0, -g % 20, 0, g % 9, 0, 0, g / 7.0),
              '10.0.0.1', '10.0.0.0/8', 'x', g % 2 = 0, 'ab', time '00:00' + g * interval '1 s', 'it''s', CASE g % 3 WHEN 0 THEN ROW(g, NULL)::pair WHEN 1 THEN ROW(NULL, NULL)::pair END,
              ARRAY['a b', NULL, 'NULL', repeat('x', g % 3)] FROM generate_series(1, 8000) g""")
    publisher.sql(
        "UPDATE t SET a = NULL, j = NULL, i = NULL, n = NULL, c = NULL, k = NULL, b = NULL, p = NULL, t = NULL, e = NULL WHERE id = 7"
    )
    assert int(publisher.sql("SELECT pg_relation_size('t')")) >= initial_copy.PARALLEL_SIZE
    publisher.sql("CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TYPE mood AS ENUM ('sad', 'it''s')")
    subscriber.sql(f"CREATE TABLE t({columns.format('text').replace('b boolean', 'b text')})")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    assert contents(subscriber) == sorted(publisher.sql("SELECT id, a, j, i, n, c, k, b, p, t, e, o, m FROM t").split("\n"))


@pytest.mark.slow
def test_progress_of_a_parallel_copy_is_shown_after_each_range(publisher, subscriber) -> None:
    table = "CREATE TABLE t(id int PRIMARY KEY, b text)"
    publisher.sql(f"{table} WITH (fillfactor = 10); INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 40000) i")
    in_ranges(publisher, 4)
    publisher.sql("CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(table)
    subscriber.sql(publisher.subscription())
    query = "SELECT count(*) FROM pg_stat_progress_copy WHERE relid = 't'::regclass AND tuples_processed > 0 AND tuples_processed < 40000"
    until(lambda: subscriber.sql(query) == "1", "the progress shows no rows of the first ranges")
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT count(*), sum(id) FROM t") == publisher.sql("SELECT count(*), sum(id) FROM t")


@pytest.mark.slow
def test_table_is_not_rewritten_between_two_ranges_of_its_copy(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(id int PRIMARY KEY, b text); INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 80000) i")
    publisher.sql("DELETE FROM t WHERE id <= 40000; CREATE PUBLICATION p FOR TABLE t")
    in_ranges(publisher, 2)
    subscriber.sql("CREATE TABLE t(id int PRIMARY KEY, b text)")
    waits = "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted"
    rewrites: list[Future[str]] = []
    with Proxy(publisher.server.port) as proxy, ThreadPoolExecutor(1) as pool, closing(Session(publisher.conninfo)) as session:

        def rewrite(data: bytes) -> None:
            if b"ctid" in data and not rewrites:
                rewrites.append(pool.submit(session.sql, "VACUUM FULL t"))
                until(lambda: rewrites[0].done() or publisher.sql(waits) == "1", "nothing is rewritten")

        proxy.before = rewrite
        subscriber.sql(publisher.subscription().replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        subscriber.wait(READY, "t")
        rewrites[0].result()
        subscriber.unsubscribe()
    assert subscriber.sql("SELECT count(*), sum(id) FROM t") == publisher.sql("SELECT count(*), sum(id) FROM t")


def test_rewrite_hides_no_rows_from_a_copy_that_waits_for_a_table(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a numeric PRIMARY KEY)")
    rewrites = ["ALTER TABLE t ALTER a TYPE bigint"]

    def rewrite(message: bytes) -> None:
        if b"LIMIT 0" in message and rewrites:  # the copy, which has a snapshot, locks the publisher's table
            with closing(Session(publisher.conninfo)) as session:
                session.sql(rewrites.pop())

    with Proxy(publisher.server.port) as proxy, closing(Session(subscriber.conninfo)) as session:
        session.sql("BEGIN; LOCK TABLE t")
        proxy.before = rewrite
        subscriber.sql(publisher.subscription().replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'logical replication worker'"
        subscriber.wait(f"{waiting} AND datname = current_database()", "1")
        publisher.sql("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            publisher.sql("ALTER TABLE t ALTER a TYPE numeric")
        session.sql("COMMIT")
        subscriber.wait(READY, "t")
        subscriber.unsubscribe()
    assert (subscriber.sql("SELECT count(*) FROM t"), rewrites) == ("10", [])


@pytest.mark.slow
def test_running_copy_shows_its_rows_the_publishers_estimate_and_the_time_left(publisher, subscriber) -> None:
    publisher.sql(
        "CREATE TABLE t(id int PRIMARY KEY, b text); INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i; CREATE PUBLICATION p FOR TABLE t; ANALYZE t"
    )
    subscriber.sql("CREATE TABLE t(id int PRIMARY KEY, b text)")
    with Proxy(publisher.server.port) as proxy:
        proxy.rate = 400_000
        subscriber.sql(publisher.subscription().replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        [copy] = until(lambda: [progress for progress in behind(subscriber)["copies"] if progress["rows"]], "no copy shows its rows")
        assert (copy["table"], copy["estimated_rows"]) == ("public.t", 20000)
        assert 0 < copy["rows"] < 20000
        assert copy["seconds_left"] == pytest.approx((20000 - copy["rows"]) / copy["rows_per_second"])
        total, done, rows = map(
            int, subscriber.sql("SELECT bytes_total, bytes_processed, tuples_processed FROM pg_stat_progress_copy").split("|")
        )
        assert total == pytest.approx(done * 20000 / rows, rel=0.01)
        assert re.search(
            r"copying  public\.t: [0-9,]+ of about 20,000 rows, [0-9,]+ rows/s, [0-9.]+ s left", subscriber.server.headgate("status").stdout
        )
        proxy.rate = None
        subscriber.wait(READY, "t")
        assert (behind(subscriber)["copies"], behind(subscriber)["copied_rows"]) == ([], 20000)
        subscriber.unsubscribe()


def test_filters_and_column_lists_apply_to_copy_and_stream(publisher, subscriber) -> None:
    publisher.sql(
        f"{TABLE}; INSERT INTO t SELECT i, 'b' || i, i FROM generate_series(1, 100) i; CREATE PUBLICATION p FOR TABLE t (id, n) WHERE (id % 2 = 0)"
    )
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql("INSERT INTO t SELECT i, 'b' || i, i FROM generate_series(101, 110) i; DELETE FROM t WHERE id <= 50")
    publisher.wait_confirmed()
    assert contents(subscriber) == sorted(publisher.sql("SELECT id, '', n FROM t WHERE id % 2 = 0").split("\n"))


def test_table_without_key_with_full_identity_keeps_its_duplicates(publisher, subscriber) -> None:
    table = "CREATE TABLE t(a int, b text)"
    replicate(
        publisher, subscriber, table, "ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL), (2, NULL)"
    )
    publisher.sql(
        "DELETE FROM t WHERE ctid IN (SELECT min(ctid) FROM t WHERE a = 1); UPDATE t SET b = 'y' WHERE ctid IN (SELECT min(ctid) FROM t WHERE a = 2)"
    )
    publisher.wait_confirmed()
    assert contents(subscriber) == contents(publisher)


def test_unchanged_toast_value_keeps_the_stored_value(publisher, subscriber) -> None:
    table = "CREATE TABLE t(id int PRIMARY KEY, big text, n int)"
    replicate(
        publisher, subscriber, table, "ALTER TABLE t ALTER big SET STORAGE EXTERNAL; INSERT INTO t VALUES (1, repeat('abc', 5000), 1)"
    )
    publisher.sql(
        "UPDATE t SET n = 2; BEGIN; INSERT INTO t VALUES (2, repeat('xyz', 5000), 1); UPDATE t SET n = 5 WHERE id = 2; UPDATE t SET id = 3 WHERE id = 2; COMMIT"
    )
    publisher.wait_confirmed()
    assert contents(subscriber) == contents(publisher)


def test_truncate_empties_the_table_between_the_changes_around_it(publisher, subscriber) -> None:
    replicate(publisher, subscriber, rows="INSERT INTO t VALUES (1, 'a', 1)")
    publisher.sql("INSERT INTO t VALUES (2, 'b', 2); TRUNCATE t; INSERT INTO t VALUES (3, 'c', 3)")
    publisher.wait_confirmed()
    assert contents(subscriber) == ["3|c|3.00"]


def test_tables_are_published_as_truncated_together_as_they_were(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE child(id int PRIMARY KEY REFERENCES t)")
    publisher.sql("CREATE TABLE root(a int, b int); ALTER TABLE root REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t, child, root")
    subscriber.sql("CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE child(id int PRIMARY KEY REFERENCES t)")
    subscriber.sql("CREATE TABLE root(a int, b int) PARTITION BY LIST (b); CREATE TABLE leaf(a int PRIMARY KEY, b int)")
    subscriber.sql("ALTER TABLE root ATTACH PARTITION leaf FOR VALUES IN (1); CREATE TABLE rest PARTITION OF root DEFAULT")
    subscriber.sql("CREATE PUBLICATION q FOR TABLE t, child, root WITH (publish_via_partition_root = true)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    slot = slots.make(subscriber.server, subscriber.name, "q")
    publisher.sql("INSERT INTO t VALUES (1); INSERT INTO child VALUES (1); INSERT INTO root VALUES (1, 1)")
    publisher.sql("TRUNCATE t, child, root; INSERT INTO t VALUES (2); INSERT INTO root VALUES (2, 2)")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT (SELECT id FROM t), (SELECT count(*) FROM child), (SELECT a FROM root)") == "2|0|2"
    assert slots.messages(subscriber.server, subscriber.name, slot, "q").count("Truncate") == 1
    publisher.sql("TRUNCATE root")
    publisher.wait_confirmed()
    assert slots.messages(subscriber.server, subscriber.name, slot, "q").count("Truncate") == 1
    subscriber.sql(f"SELECT pg_drop_replication_slot('{slot}')")


def is_cut(publisher, count: str, change: str) -> None:
    """Run a transaction that is large enough to be applied in several parts."""
    end_before = publisher.end
    publisher.sql(f"BEGIN; {change}; COMMIT")
    assert int(publisher.sql(f"SELECT '{publisher.end}'::pg_lsn - '{end_before}'")) > int(count) * batch.PART_SIZE


@pytest.mark.slow
def test_large_transaction_is_applied_in_parts(publisher, subscriber) -> None:
    replicate(publisher, subscriber, rows="INSERT INTO t SELECT i, 'old', 0 FROM generate_series(1, 100) i")
    is_cut(publisher, "2", """INSERT INTO t SELECT i, repeat('x', 1000), i FROM generate_series(101, 90000) i; UPDATE t SET n = 1 WHERE id % 3 = 0;
                              UPDATE t SET id = -id WHERE id % 7 = 0; DELETE FROM t WHERE id % 5 = 0""")  # fmt: skip
    publisher.sql("INSERT INTO t VALUES (90001, 'last', 0)")
    publisher.wait_confirmed()
    assert contents(subscriber) == contents(publisher)


@pytest.mark.slow
def test_truncate_in_a_later_part_of_a_transaction_keeps_the_rows_after_it(publisher, subscriber) -> None:
    table = "CREATE TABLE t(id int PRIMARY KEY, b text, n serial)"
    publisher.sql(f"{table}; CREATE TABLE u(id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t (id, b), u")
    subscriber.sql(f"{table}; CREATE TABLE u(id int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    is_cut(publisher, "1", """INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 60000) i; INSERT INTO u VALUES (1);
                              UPDATE t SET b = 'x' WHERE id < 9; TRUNCATE t RESTART IDENTITY; INSERT INTO t VALUES (7, 'a'), (8, 'b');
                              UPDATE u SET id = 2""")  # fmt: skip
    publisher.wait_confirmed()
    assert contents(subscriber) == ["7|a|1", "8|b|2"]
    assert subscriber.sql("SELECT * FROM u") == "2"


@pytest.mark.slow
def test_deferred_keys_exchanged_between_two_parts_of_a_transaction_do_not_conflict(publisher, subscriber) -> None:
    table = "CREATE TABLE t(id int PRIMARY KEY, b text, n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    replicate(publisher, subscriber, table, "INSERT INTO t VALUES (1, '', 1), (2, '', 2)")
    is_cut(publisher, "1", """UPDATE t SET n = 2 WHERE id = 1; INSERT INTO t SELECT i, repeat('x', 1000), i FROM generate_series(3, 60000) i;
                              UPDATE t SET n = 1 WHERE id = 2""")  # fmt: skip
    publisher.wait_confirmed()
    assert contents(subscriber) == contents(publisher)


def test_changes_of_one_transaction_appear_together_in_all_tables(publisher, subscriber) -> None:
    tables = "CREATE TABLE t(id int PRIMARY KEY, v int); CREATE TABLE u(id int PRIMARY KEY, v int)"
    publisher.sql(f"{tables}; INSERT INTO t VALUES (1, 0); INSERT INTO u VALUES (1, 0); CREATE PUBLICATION p FOR TABLE t, u")
    subscriber.sql(tables)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    for value in range(1, 6):
        publisher.sql(f"BEGIN; UPDATE t SET v = {value}; UPDATE u SET v = {value}; COMMIT")
        assert subscriber.sql("SELECT t.v - u.v FROM t JOIN u USING (id)") == "0"
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT t.v, u.v FROM t JOIN u USING (id)") == "5|5"


@pytest.mark.slow
def test_no_change_is_lost_or_applied_twice_across_a_restart(publisher, spare) -> None:
    subscriber = spare()
    replicate(publisher, subscriber, rows="INSERT INTO t SELECT i, 'x', i FROM generate_series(1, 100) i")
    publisher.sql("INSERT INTO t SELECT i, 'y', i FROM generate_series(101, 200) i")
    subscriber.stop()
    publisher.sql("UPDATE t SET n = n + 1; DELETE FROM t WHERE id % 10 = 0")
    subscriber.server.start()
    publisher.wait_confirmed()
    assert contents(subscriber) == contents(publisher)


def test_subscription_follows_its_publications_and_can_be_disabled(publisher, subscriber) -> None:
    replicate(publisher, subscriber)
    subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    publisher.sql("INSERT INTO t VALUES (1, 'while disabled', 1)")
    subscriber.wait("SELECT count(*) FROM t", "0")
    subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    subscriber.wait("SELECT count(*) FROM t", "1")
    publisher.sql("CREATE TABLE u(a int PRIMARY KEY); INSERT INTO u VALUES (1), (2); ALTER PUBLICATION p ADD TABLE u")
    subscriber.sql("CREATE TABLE u(a int PRIMARY KEY)")
    subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
    subscriber.wait("SELECT count(*) FROM u", "2")
    subscriber.sql("DROP SUBSCRIPTION s")
    assert any(notice.startswith("NOTICE: dropped replication slot") for notice in subscriber.session.notices)
    assert publisher.sql("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == "0"


@pytest.mark.slow
def test_subscription_can_be_dropped_while_a_table_becomes_ready(publisher, spare) -> None:
    subscriber = spare(**{"headgate.failpoints": "'synchronization before=sleep'"})
    publisher.sql("CREATE TABLE u(a int PRIMARY KEY); INSERT INTO u VALUES (1), (2); CREATE PUBLICATION p FOR TABLE u")
    subscriber.sql("CREATE TABLE u(a int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait("SELECT count(*) FROM u", "2")
    subscriber.sql("DROP SUBSCRIPTION s")
    assert subscriber.sql("SELECT count(*) FROM pg_subscription_rel") == "0"


def test_table_can_leave_the_subscription_while_its_sync_commits(publisher, subscriber) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    publisher.sql("CREATE TABLE u(a int PRIMARY KEY); INSERT INTO u VALUES (1), (2); CREATE PUBLICATION p FOR TABLE u")
    subscriber.sql("CREATE TABLE u(a int PRIMARY KEY)")
    with (
        ThreadPoolExecutor(1) as executor,
        psycopg.connect(subscriber.conninfo, autocommit=True) as session,
        psycopg.connect(subscriber.conninfo) as copy_blocker,
        psycopg.connect(publisher.conninfo) as refresh_blocker,
    ):
        copy_blocker.execute("LOCK TABLE u")
        subscriber.sql(publisher.subscription())
        until(lambda: subscriber.sql(waiting) == "1", "the copy does not wait for its table")
        publisher.sql("ALTER PUBLICATION p DROP TABLE u")
        refresh_blocker.execute("LOCK TABLE pg_publication_rel")
        refresh = executor.submit(session.execute, "ALTER SUBSCRIPTION s REFRESH PUBLICATION")
        until(lambda: publisher.sql(waiting) == "1", "REFRESH does not read the publications")
        copy_blocker.commit()
        subscriber.wait(
            f"SELECT count(*) FROM pg_replication_origin WHERE roname LIKE 'pg\\_{subscriber.of_subscription('s.oid')}\\_%'", "0"
        )
        refresh_blocker.commit()
        refresh.result()
    assert subscriber.sql("SELECT count(*) FROM pg_subscription_rel") == "0"
    assert publisher.sql("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == "1"


def test_several_tables_are_synchronized_while_others_stream(publisher, subscriber) -> None:
    names = [f"t{number}" for number in range(6)]
    publisher.sql(
        "".join(f"CREATE TABLE {name}(a int PRIMARY KEY); INSERT INTO {name} SELECT generate_series(1, 50);" for name in names)
        + "CREATE PUBLICATION p FOR ALL TABLES"
    )
    subscriber.sql("".join(f"CREATE TABLE {name}(a int PRIMARY KEY);" for name in names))
    subscriber.sql(publisher.subscription())
    for value in range(51, 61):
        publisher.sql("".join(f"INSERT INTO {name} VALUES ({value});" for name in names))
    subscriber.wait(READY, "t", 120)
    publisher.wait_confirmed()
    for name in names:
        assert subscriber.sql(f"SELECT count(*), max(a) FROM {name}") == "60|60"


@contextmanager
def stalled(publisher, subscriber, query: bytes, options: str = "", *, is_ready: bool = False) -> Iterator[Callable[[], None]]:
    """Subscribe to a publisher that no longer answers after a query. Yield the function after which it answers again.

    `is_ready`: only after the table has been copied.
    """
    with Proxy(publisher.server.port) as proxy:

        def stall(data: bytes) -> None:
            proxy.stalled = proxy.stalled or query in data

        def release() -> None:
            proxy.before, proxy.stalled = None, False

        proxy.before = None if is_ready else stall
        subscriber.sql(publisher.subscription(options).replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        if is_ready:
            subscriber.wait(READY, "t")
            proxy.before = stall
        until(lambda: proxy.stalled, f"the subscriber does not send {query!r}", 60)
        yield release
        subscriber.unsubscribe()


def test_table_sync_can_be_terminated_while_the_publisher_does_not_answer(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    with stalled(publisher, subscriber, b"DROP_REPLICATION_SLOT") as release:
        sync = f"FROM pg_stat_subscription WHERE subid = {subscriber.of_subscription('s.oid')} AND relid IS NOT NULL"
        subscriber.sql(f"SELECT pg_terminate_backend(pid) {sync}")
        subscriber.wait(f"SELECT count(*) {sync}", "0", 20)
        release()
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE '%_sync_%'"
        until(lambda: publisher.sql(slots) == "0", "the slot of the copy stays", 60)


def test_dropped_subscription_leaves_no_slot_that_a_table_sync_could_not_drop(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    with Proxy(publisher.server.port) as proxy:

        def cut(data: bytes) -> None:
            if b"DROP_REPLICATION_SLOT" in data:
                raise ConnectionError

        proxy.before = cut
        subscriber.sql(publisher.subscription().replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        subscriber.wait("SELECT srsubstate IN ('s', 'r') FROM pg_subscription_rel", "t")
        subscriber.sql(f"ALTER SUBSCRIPTION s CONNECTION '{publisher.conninfo}'; DROP SUBSCRIPTION s")
    assert publisher.sql("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == "0"


def test_table_sync_that_is_terminated_has_no_error(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    with stalled(publisher, subscriber, b"pg_get_replica_identity_index", "disable_on_error = true") as release:
        sync = f"FROM pg_stat_subscription WHERE subid = {subscriber.of_subscription('s.oid')} AND relid IS NOT NULL"
        pid = subscriber.sql(f"SELECT pid {sync}")
        subscriber.sql(f"SELECT pg_terminate_backend({pid})")
        subscriber.wait(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}", "0", 20)
        release()
        subscriber.wait(READY, "t")
        assert (subscriber.counted("sync_error_count"), subscriber.of_subscription("subenabled")) == ("0", "t")


def test_table_sync_is_not_started_again_while_its_table_is_removed(publisher, subscriber, set_on_node) -> None:
    set_on_node(wal_retrieve_retry_interval="10ms")
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE TABLE u(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t, u")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE TABLE u(a int PRIMARY KEY)")
    is_copied, is_removed = Event(), Event()

    def wait(data: bytes) -> None:
        if b"COPY public.t" in data:
            is_copied.set()
            is_removed.wait(60)

    with Proxy(publisher.server.port) as proxy:
        proxy.before = wait
        options = "disable_on_error = true"
        subscriber.sql(publisher.subscription(options).replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        assert is_copied.wait(60)
        publisher.sql("ALTER PUBLICATION p DROP TABLE t")
        subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
        is_removed.set()
        subscriber.wait(READY, "t")
        assert (subscriber.counted("sync_error_count"), subscriber.of_subscription("subenabled")) == ("0", "t")
        subscriber.unsubscribe()


def test_table_that_is_added_again_is_not_copied_until_its_earlier_slot_is_dropped(publisher, subscriber, set_on_node) -> None:
    set_on_node(wal_retrieve_retry_interval="10ms")
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    is_waiting, is_copied_again, is_released = Event(), Event(), Event()
    drops, copies = itertools.count(), itertools.count()

    def interfere(data: bytes) -> None:
        if b"DROP_REPLICATION_SLOT" in data and (number := next(drops)) < 2:
            if number == 0:  # that of the table's sync worker
                raise ConnectionError
            is_waiting.set()
            is_released.wait(60)
        elif b"COPY public.t" in data and next(copies) == 1:
            is_copied_again.set()

    with Proxy(publisher.server.port) as proxy:
        proxy.before = interfere
        subscriber.sql(publisher.subscription().replace(f"port={publisher.server.port}", f"port={proxy.port}"))
        assert is_waiting.wait(60)
        subscriber.wait(READY, "t")
        publisher.sql("ALTER PUBLICATION p DROP TABLE t")
        subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION; TRUNCATE t")
        publisher.sql("ALTER PUBLICATION p ADD TABLE t")
        subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
        assert not is_copied_again.wait(1)
        is_released.set()
        subscriber.wait(READY, "t")
        assert is_copied_again.is_set()
        subscriber.unsubscribe()


def test_apply_worker_can_be_terminated_while_it_looks_for_tables_on_a_silent_publisher(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with stalled(publisher, subscriber, b"pg_publication_tables", "create_tables = true", is_ready=True) as release:
        pid = subscriber.sql(f"SELECT pid FROM pg_stat_subscription WHERE subid = {subscriber.of_subscription('s.oid')} AND relid IS NULL")
        subscriber.sql(f"SELECT pg_terminate_backend({pid})")
        subscriber.wait(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}", "0", 20)
        release()


@pytest.mark.parametrize("keys", ["int PRIMARY KEY", "int"], ids=["applied by tasks", "applied by the driver"])
def test_changes_of_a_table_outside_the_subscription_are_counted_once(publisher, subscriber, keys: str) -> None:
    publisher.sql(f"CREATE TABLE t(a {keys}); CREATE TABLE outside(a int); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(f"CREATE TABLE t(a {keys}); CREATE TABLE outside(a int)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    rows = int(subscriber.sql("SHOW small_batch_rows")) + 1
    publisher.sql("ALTER PUBLICATION p ADD TABLE outside")
    publisher.sql(f"BEGIN; INSERT INTO t SELECT generate_series(1, {rows}); INSERT INTO outside SELECT generate_series(1, 7); COMMIT")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT changes_left_out FROM pg_stat_subscription_rel WHERE relname = 'outside'") == "7"


def test_streaming_accepts_parallel_as_newer_pg_dump_writes_it(subscriber) -> None:
    create = "CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false, streaming = {})"
    with pytest.raises(psycopg.errors.SyntaxError, match='streaming requires a Boolean value or "parallel"'):
        subscriber.sql(create.format("some"))
    subscriber.sql(create.format("parallel"))
    assert [notice for notice in subscriber.session.notices if notice.startswith("WARNING")]
    assert subscriber.of_subscription("substream") == "t"


def test_session_that_blocks_the_apply_worker_is_shown(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    subscriber.sql("BEGIN; LOCK TABLE t")
    publisher.sql("UPDATE t SET a = 2")
    second_session = Session(subscriber.conninfo)
    blocked = f"SELECT pg_blocking_pids(pid) FROM pg_stat_activity WHERE datname = '{subscriber.name}' AND wait_event_type = 'Lock'"
    until(lambda: second_session.sql(blocked))
    assert second_session.sql(blocked) == f"{{{subscriber.session.connection.info.backend_pid}}}"
    second_session.close()
    subscriber.sql("COMMIT")
    publisher.wait_confirmed()


def test_subscription_without_slot_can_be_dropped_in_the_block_that_detaches_it(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="DROP SUBSCRIPTION cannot run inside a transaction block"):
        subscriber.sql("BEGIN; DROP SUBSCRIPTION s")
    subscriber.sql("ROLLBACK")
    subscriber.sql("BEGIN; ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s; COMMIT")
    assert subscriber.of_subscription("count(*)") == "0"
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert publisher.sql(slots) == "1"


@pytest.mark.slow
def test_copy_with_origin_none_warns_of_tables_that_subscriptions_of_the_publisher_write(publisher, subscriber) -> None:
    tables = "CREATE TABLE t(id int PRIMARY KEY); CREATE TABLE u(id int PRIMARY KEY)"
    publisher.sql(f"{tables}; CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE u")
    subscriber.sql(tables)
    upstream = "CREATE SUBSCRIPTION upstream CONNECTION 'dbname=none' PUBLICATION x WITH (connect = false, slot_name = NONE)"
    publisher.sql(
        f"{upstream}; INSERT INTO pg_subscription_rel SELECT oid, 't'::regclass, 'r', NULL FROM pg_subscription WHERE subname = 'upstream'"
    )
    try:
        subscriber.sql(publisher.subscription("origin = none", publication="q"))
        assert not any("origin" in notice for notice in subscriber.session.notices)
        subscriber.sql("ALTER SUBSCRIPTION s ADD PUBLICATION p")
        text = 'subscription "s" requested copy_data with origin = NONE but might copy data that had a different origin'
        assert f"WARNING: {text}" in subscriber.session.notices
        subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
        assert not any("origin" in notice for notice in subscriber.session.notices), "t is not copied again"
    finally:
        publisher.sql("DROP SUBSCRIPTION upstream")
