"""The settings of the subscribing side, each by what it does, and a table sync whose slot is gone."""

from __future__ import annotations

import logging
import time

from tests.conftest import until
from tests.subscriber.test_errors import context, log  # noqa: F401
from tests.subscriber.test_stream import READY
from tests.system.proxy import Proxy

from headgate.catalog import origin as origins
from headgate.subscriber import applyworker

TABLES = "CREATE TABLE a(i int PRIMARY KEY); CREATE TABLE b(i int PRIMARY KEY); CREATE TABLE c(i int PRIMARY KEY)"
FILLED = f"{TABLES}; INSERT INTO a SELECT generate_series(1, 3); INSERT INTO b SELECT generate_series(1, 3); CREATE PUBLICATION p FOR TABLE a, b, c"


def said(log, text: str) -> int:  # noqa: F811
    return sum(text in record.getMessage() for record in log.records)


def test_workers_beyond_the_limits_wait_for_room_and_are_warned_of_once_per_retry(publisher, subscribers, log) -> None:  # noqa: F811
    publisher.sql(FILLED)
    one = subscribers(max_logical_replication_workers="1", wal_retrieve_retry_interval="1s")
    one.sql(TABLES)
    one.sql(publisher.subscription())
    until(lambda: said(log, "out of logical replication worker slots") >= 3)
    began = time.monotonic()
    until(lambda: said(log, "out of logical replication worker slots") >= 6)
    assert time.monotonic() - began > 0.6
    assert one.sql("SELECT DISTINCT srsubstate FROM pg_subscription_rel") == "i"
    one.stop()
    two = subscribers(max_logical_replication_workers="8", max_sync_workers_per_subscription="0")
    until(lambda: two.launcher.workers() and two.launcher.workers()[0].position is not None)
    assert two.sql("SELECT DISTINCT srsubstate FROM pg_subscription_rel") == "i"
    two.stop()
    most = 0
    three = subscribers(max_sync_workers_per_subscription="1")
    while three.sql(READY) != "t":
        most = max(most, sum(worker.relation is not None for worker in three.launcher.workers()))
    assert most == 1


def test_origins_beyond_max_replication_slots_are_an_error(publisher, subscribers, log) -> None:  # noqa: F811
    publisher.sql(FILLED)
    one = subscribers(max_replication_slots="1")
    one.sql(TABLES)
    one.sql(publisher.subscription("copy_data = false"))
    one.sql(publisher.subscription("copy_data = false", name="other"))
    context(log, "could not find free replication state slot for replication origin with ID")


def test_silence_ends_a_worker_after_wal_receiver_timeout_and_the_next_comes_after_the_retry_interval(publisher, subscribers, log) -> None:  # noqa: F811
    publisher.sql(FILLED)
    one = subscribers(wal_receiver_timeout="1s", wal_retrieve_retry_interval="2s")
    one.sql(TABLES)
    with Proxy(publisher.server.port) as proxy:
        made = publisher.subscription("copy_data = false").replace(f"port={publisher.server.port}", f"port={proxy.port}")
        one.sql(made)
        until(lambda: one.launcher.workers() and one.launcher.workers()[0].position is not None)
        proxy.stalled = True
        context(log, "terminating logical replication worker due to timeout")
        proxy.stalled = False
        until(lambda: said(log, "apply worker for subscription") >= 2)
        started = [record.created for record in log.records if "apply worker for subscription" in record.getMessage()]
        assert started[1] - started[0] > 1.9
        one.launcher.stop()


def test_a_status_is_sent_every_wal_receiver_status_interval(publisher, subscribers) -> None:
    publisher.sql(FILLED)
    one = subscribers(wal_receiver_status_interval="1s")
    one.sql(TABLES)
    one.sql(publisher.subscription("copy_data = false"))
    replied = f"SELECT coalesce(max(extract(epoch FROM reply_time)), 0) FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE slot_name = '{publisher.database}_s'"
    until(lambda: float(publisher.sql(replied)) > 0)
    first = float(publisher.sql(replied))
    until(lambda: float(publisher.sql(replied)) > first, seconds=3)


def test_the_disk_limit_holds_the_publisher_back_and_who_is_behind_says_so(publisher, subscribers, log, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr(applyworker, "BEHIND", 0.5)
    table = "CREATE TABLE big(i int PRIMARY KEY, t text)"
    publisher.sql(f"{table}; ALTER TABLE big ALTER t SET STORAGE EXTERNAL; CREATE PUBLICATION p FOR TABLE big")
    one = subscribers(segment_disk_limit="4MB", apply_batch_size="1MB")
    one.sql(table)
    one.sql(publisher.subscription("copy_data = false"))
    one.wait(READY, "t")
    until(lambda: one.launcher.workers() and one.launcher.workers()[0].position is not None)
    one.sql("BEGIN")
    one.sql("INSERT INTO big VALUES (-1, 'holds the table')")
    publisher.sql(
        "DO $$ BEGIN FOR n IN 1..400 LOOP INSERT INTO big SELECT n * 10 + g, repeat('x', 10000) FROM generate_series(0, 9) g; COMMIT; END LOOP; END $$"
    )
    [worker] = one.launcher.workers()
    until(lambda: worker.spool.outstanding > 4 << 20)
    unsent = (
        f"SELECT pg_current_wal_lsn() - sent_lsn FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
        f" WHERE slot_name = '{publisher.database}_s'"
    )
    sent = [publisher.sql(unsent)]
    until(lambda: sent.append(publisher.sql(unsent)) or sent[-1] == sent[-2])
    assert int(sent[-1]) > 10 << 20
    assert worker.spool.outstanding < 16 << 20
    until(lambda: worker.progress.lag()[1] > 1)
    one.sql("COMMIT")
    one.wait("SELECT count(*) FROM big", "4001")
    until(lambda: said(log, 'subscription "s" is behind its publisher') >= 1)
    until(lambda: said(log, 'subscription "s" has caught up with its publisher') >= 1)


def test_a_copied_table_whose_slot_is_gone_is_copied_afresh(publisher, subscriber, log) -> None:  # noqa: F811
    publisher.sql("CREATE TABLE a(i int PRIMARY KEY); CREATE TABLE b(i int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE a")
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    subscriber.sql("INSERT INTO a VALUES (1); INSERT INTO b VALUES (100)")
    publisher.sql("INSERT INTO a VALUES (1)")
    context(log, "duplicate key value")
    publisher.sql("INSERT INTO b SELECT generate_series(1, 5); ALTER PUBLICATION p ADD TABLE b")
    subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
    subscriber.wait("SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = 'b'::regclass", "f")
    dropped = (
        "SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE NOT active AND slot_name LIKE 'pg_%_sync_%'"
    )
    until(lambda: publisher.sql(dropped) == "1")
    publisher.sql("INSERT INTO b VALUES (6); DELETE FROM b WHERE i = 2")
    subscriber.sql("DELETE FROM a")
    subscriber.wait(READY, "t")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT string_agg(i::text, ',' ORDER BY i) FROM b") == "1,3,4,5,6,100"
    assert said(log, "is copied afresh") == 1
    assert not [r for r in log.records if r.levelno >= logging.ERROR and "duplicate" not in r.getMessage()]


def test_a_table_whose_copy_fails_again_and_again_does_not_keep_others_from_theirs(publisher, subscribers, log) -> None:  # noqa: F811
    publisher.sql(FILLED)
    one = subscribers(max_sync_workers_per_subscription="1", wal_retrieve_retry_interval="1ms")
    one.sql(f"{TABLES}; INSERT INTO a VALUES (2)")
    one.sql(publisher.subscription())
    one.wait("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'", "2", 60)
    assert one.sql("SELECT srrelid::regclass, srsubstate FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "a|d"
    assert context(log, 'duplicate key value violates unique constraint "a_pkey"') == "COPY a, line 2"


def test_the_first_row_that_a_copy_cannot_take_is_named_with_its_line(publisher, subscriber, log) -> None:  # noqa: F811
    publisher.sql(
        "CREATE TABLE a(i int PRIMARY KEY, t text); INSERT INTO a SELECT i, nullif(i, 7)::text FROM generate_series(1, 9) i; CREATE PUBLICATION p FOR TABLE a"
    )
    subscriber.sql("CREATE TABLE a(i int PRIMARY KEY, t text NOT NULL, x int DEFAULT 5, CONSTRAINT a_check CHECK (i <> 4))")
    subscriber.sql(publisher.subscription())
    assert context(log, 'new row for relation "a" violates check constraint "a_check"') == 'COPY a, line 4: "4\t4"'
    subscriber.sql("ALTER TABLE a DROP CONSTRAINT a_check")
    assert context(log, 'null value in column "t" of relation "a" violates not-null constraint') == 'COPY a, line 7: "7\t\\N"'
    assert any(record.__dict__.get("detail") == "Failing row contains (7, null, 5)." for record in log.records)


def test_a_sync_slot_that_could_not_be_dropped_was_left_on_the_publisher(publisher, subscribers, log) -> None:  # noqa: F811
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    subscriber = subscribers(wal_retrieve_retry_interval="200ms")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    oid, relation = (int(each) for each in subscriber.sql("SELECT srsubid, srrelid FROM pg_subscription_rel").split("|"))
    slot = subscriber.launcher.sync_slot_name(oid, relation)
    publisher.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    subscriber.catalog.change(lambda cursor: origins.create(cursor, f"pg_{oid}_{relation}"))
    asked = "SELECT count(*) FROM pg_replication_origin"
    publisher.server.psql("postgres", f"ALTER DATABASE {publisher.database} ALLOW_CONNECTIONS false")
    subscriber.launcher.clean_again(oid)
    until(lambda: said(log, "is not currently accepting connections") >= 2)
    assert subscriber.sql(asked) == "2"
    publisher.server.psql("postgres", f"ALTER DATABASE {publisher.database} ALLOW_CONNECTIONS true")
    subscriber.wait(asked, "1")
    assert publisher.sql(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}'") == "0"
