"""The settings of the subscribing side limit workers, syncs, origins, time and disk space. A sync whose slot is missing copies its table again."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.conftest import until
from tests.session import Session
from tests.subscriber.conftest import READY
from tests.system.proxy import Proxy

from headgate.subscriber import apply_worker

TABLES = "CREATE TABLE a(i int PRIMARY KEY); CREATE TABLE b(i int PRIMARY KEY); CREATE TABLE c(i int PRIMARY KEY)"
FILLED = f"{TABLES}; INSERT INTO a SELECT generate_series(1, 3); INSERT INTO b SELECT generate_series(1, 3); CREATE PUBLICATION p FOR TABLE a, b, c"


STATES = "SELECT DISTINCT srsubstate FROM pg_subscription_rel"
NO_ROOM = {
    "max_logical_replication_workers": "1",
    "max_prepared_transactions": "0",
    "max_replication_slots": "1",
    "wal_retrieve_retry_interval": "1s",
}
"""Settings with the smallest limits."""


def of_slot(publisher, what: str, name: str = "s") -> str:
    """Return a column of the walsender or the slot of a subscription, empty if the slot is not in use."""
    return publisher.sql(
        "SELECT {} FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
        f" WHERE slot_name = '{publisher.name}_{name}'".format(what)
    )


def behind(subscriber) -> dict[str, Any]:
    """Return what `headgate status` shows for the database's subscription."""
    report = json.loads(subscriber.server.headgate("status", "--json").stdout)
    return next(subscription for subscription in report["subscriptions"] if subscription["database"] == subscriber.name)


def starved(subscriber) -> dict[str, list[str]]:
    """Return the pools that `headgate status` shows as starved, with the subscriptions that wait for a place."""
    pools = json.loads(subscriber.server.headgate("status", "--json").stdout)["pools"]
    assert all((pool["to_do"] is not None) == pool["starved"] for pool in pools)
    return {pool["name"]: sorted(pool["waiting"]) for pool in pools if pool["starved"]}


@pytest.mark.slow
def test_workers_beyond_the_limits_wait_and_log_one_warning_per_retry(publisher, spare) -> None:
    publisher.sql(FILLED)
    subscriber = spare(**NO_ROOM)
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription())
    no_room = "out of logical replication worker slots"
    until(lambda: len(subscriber.log.matching(no_room)) >= 6, "fewer than six warnings")
    moments = [entry.moment for entry in subscriber.log.matching(no_room)]
    assert (moments[3] - moments[2]).total_seconds() > 0.6  # three tables, and wal_retrieve_retry_interval is a second
    assert subscriber.sql(STATES) == "i"
    status = behind(subscriber)
    assert (status["state"], status["starved_of"], status["failing"]) == ("waiting for a worker", "max_logical_replication_workers", False)
    subscriber.sql(publisher.subscription("copy_data = false", name="other"))
    until(lambda: starved(subscriber).get("logical replication workers") == ["other", "s"], "the pool is not starved")
    status_text = subscriber.server.headgate("status").stdout
    assert "out of logical replication workers: 1 of 1 in use, waiting: " in status_text
    assert "On this node: ALTER SYSTEM SET max_logical_replication_workers = 2 (it is 1), and restart it" in status_text
    subscriber.session.close()
    subscriber.server.renewed(**NO_ROOM | {"max_logical_replication_workers": "6", "max_replication_slots": "6"})
    subscriber.session = Session(subscriber.conninfo)
    subscriber.wait(READY, "t")
    until(lambda: not starved(subscriber), "a pool is still starved")


@pytest.mark.slow
def test_prepared_transactions_are_rejected_if_max_prepared_transactions_is_zero(publisher, spare) -> None:
    publisher.sql("CREATE TABLE a(i int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE a")
    subscriber = spare(**NO_ROOM)
    subscriber.sql("CREATE TABLE a(i int PRIMARY KEY)")
    subscriber.sql(publisher.subscription("two_phase = true, copy_data = false"))
    until(lambda: subscriber.of_subscription("subtwophasestate") == "e", "two_phase is not enabled", 60)
    publisher.sql(f"BEGIN; INSERT INTO a VALUES (1); PREPARE TRANSACTION '{publisher.name}'")
    assert 'message type "PREPARE"' in subscriber.log.error("prepared transactions are disabled").context
    assert subscriber.sql("SELECT count(*) FROM pg_prepared_xacts") == "0"
    publisher.sql(f"ROLLBACK PREPARED '{publisher.name}'")


@pytest.mark.slow
def test_origins_beyond_max_replication_slots_are_an_error(publisher, spare) -> None:
    publisher.sql(FILLED)
    subscriber = spare(**NO_ROOM)
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription("copy_data = false"))
    until(lambda: of_slot(publisher, "state") == "streaming", "the subscription does not stream")
    subscriber.sql("ALTER SUBSCRIPTION s DISABLE")  # there is one worker, and the origin stays
    subscriber.sql(publisher.subscription("copy_data = false", name="other"))
    subscriber.log.error("could not find free replication state slot for replication origin with ID")
    until(lambda: starved(subscriber) == {"replication origins": ["other"]}, "the pool is not starved")
    subscriber.sql("DROP SUBSCRIPTION s")
    until(lambda: of_slot(publisher, "state", "other") == "streaming", "the second subscription gets no origin")


@pytest.mark.slow
def test_table_syncs_beyond_max_sync_workers_per_subscription_wait(publisher, subscriber, set_on_node) -> None:
    publisher.sql(FILLED)
    set_on_node(max_sync_workers_per_subscription="0")
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription())
    until(lambda: of_slot(publisher, "state") == "streaming", "the subscription does not stream")
    assert subscriber.sql(STATES) == "i"
    until(lambda: behind(subscriber)["starved_of"] == "max_sync_workers_per_subscription", "the status does not name the exhausted setting")
    assert starved(subscriber) == {"table syncs of a subscription": ["s"]}
    most = 0
    set_on_node(max_sync_workers_per_subscription="1")
    while subscriber.sql(READY) != "t":
        most = max(most, int(subscriber.sql("SELECT count(relid) FROM pg_stat_subscription WHERE subname = 's'")))
    assert most == 1
    assert (behind(subscriber)["starved_of"], starved(subscriber)) == (None, {})


@pytest.mark.slow
def test_worker_ends_after_wal_receiver_timeout_and_restarts_after_the_retry_interval(publisher, subscriber, set_on_node) -> None:
    publisher.sql(FILLED)
    set_on_node(wal_receiver_timeout="1s", wal_retrieve_retry_interval="2s")
    subscriber.sql(TABLES)
    with Proxy(publisher.server.port) as proxy:
        statement = publisher.subscription("copy_data = false").replace(f"port={publisher.server.port}", f"port={proxy.port}")
        subscriber.sql(statement)
        until(lambda: of_slot(publisher, "state") == "streaming", "the subscription does not stream")
        proxy.stalled = True
        subscriber.log.error("terminating logical replication worker due to timeout")
        proxy.stalled = False
        until(lambda: len(subscriber.log.matching("apply worker for subscription")) >= 2, "the apply worker is not started again")
        first, second, *_ = (entry.moment for entry in subscriber.log.matching("apply worker for subscription"))
        assert (second - first).total_seconds() > 1.9
        subscriber.unsubscribe()


@pytest.mark.slow
def test_status_is_sent_every_wal_receiver_status_interval(publisher, subscriber, set_on_node) -> None:
    publisher.sql(FILLED)
    set_on_node(wal_receiver_status_interval="1s")
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription("copy_data = false"))
    replied = "coalesce(extract(epoch FROM reply_time), 0)"
    first = until(lambda: float(of_slot(publisher, replied) or 0), "no first status update")
    until(lambda: float(of_slot(publisher, replied)) > first, "no second status update", seconds=8)  # by default it is 10 s


@pytest.mark.slow
def test_segment_disk_limit_holds_the_publisher_back_and_the_lag_is_reported(publisher, subscriber, set_on_node) -> None:
    table = "CREATE TABLE big(i int PRIMARY KEY, t text)"
    publisher.sql(f"{table}; ALTER TABLE big ALTER t SET STORAGE EXTERNAL; CREATE PUBLICATION p FOR TABLE big")
    set_on_node(segment_disk_limit="4MB", apply_batch_size="1MB")
    subscriber.sql(table)
    subscriber.sql(publisher.subscription("copy_data = false"))
    subscriber.wait(READY, "t")
    until(lambda: of_slot(publisher, "state") == "streaming", "the subscription does not stream")
    holder = Session(subscriber.conninfo)
    holder.sql("BEGIN; LOCK TABLE big IN SHARE ROW EXCLUSIVE MODE")
    publisher.sql(
        "DO $$ BEGIN FOR n IN 1..400 LOOP INSERT INTO big SELECT n * 10 + g, repeat('x', 10000) FROM generate_series(0, 9) g; COMMIT; END LOOP; END $$"
    )
    unsent = "pg_current_wal_lsn() - sent_lsn"
    unsent_bytes = [of_slot(publisher, unsent)]
    until(lambda: unsent_bytes.append(of_slot(publisher, unsent)) or unsent_bytes[-1] == unsent_bytes[-2])
    assert int(unsent_bytes[-1]) > 10 << 20
    silent = f"SELECT clock_timestamp() - last_msg_receipt_time > interval '{apply_worker.BEHIND} s' FROM pg_stat_subscription WHERE subname = 's'"
    subscriber.wait(silent, "t")
    status = behind(subscriber)
    assert (status["state"], status["lag_seconds"] > apply_worker.BEHIND) == ("behind", True)
    assert 4 << 20 < status["lag_bytes"] < 16 << 20
    holder.sql("INSERT INTO big VALUES (-1, 'holds the table'); COMMIT")
    holder.close()
    subscriber.wait("SELECT count(*) FROM big", "4001")
    until(lambda: subscriber.log.matching('subscription "s" is behind its publisher'), "the log does not report the lag")
    until(
        lambda: subscriber.log.matching('subscription "s" has caught up with its publisher'), "the log does not report the end of the lag"
    )


@pytest.mark.slow
def test_copied_table_whose_slot_is_missing_is_copied_again(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE a(i int PRIMARY KEY); CREATE TABLE b(i int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE a")
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    subscriber.sql("INSERT INTO a VALUES (1); INSERT INTO b VALUES (100)")
    publisher.sql("INSERT INTO a VALUES (1)")
    subscriber.log.error("duplicate key value")
    publisher.sql("INSERT INTO b SELECT generate_series(1, 5); ALTER PUBLICATION p ADD TABLE b")
    subscriber.sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION")
    subscriber.wait("SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = 'b'::regclass", "f")
    dropped = (
        "SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots"
        " WHERE NOT active AND slot_name LIKE 'pg_%_sync_%' AND database = current_database()"
    )
    subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    subscriber.wait("SELECT count(pid) FROM pg_stat_subscription WHERE subname = 's'", "0")
    until(lambda: publisher.sql(dropped) == "1")
    publisher.sql("INSERT INTO b VALUES (6); DELETE FROM b WHERE i = 2")
    # the subscription is ahead of the copy, and only the dropped slot had the changes between them
    subscriber.sql(f"SELECT pg_replication_origin_advance('pg_' || oid, '{publisher.end}') FROM pg_subscription WHERE subname = 's'")
    subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    subscriber.wait(READY, "t")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT string_agg(i::text, ',' ORDER BY i) FROM b") == "1,3,4,5,6,100"
    assert len(subscriber.log.matching("is copied afresh")) == 1
    expected = re.compile("duplicate|is active for PID")  # the walsender of the previous worker may not have ended yet
    assert not [entry for entry in subscriber.log.entries() if entry.severity == "ERROR" and not expected.search(entry.message)]


def test_repeatedly_failing_copy_does_not_block_the_copies_of_other_tables(publisher, subscriber, set_on_node) -> None:
    publisher.sql(FILLED)
    set_on_node(max_sync_workers_per_subscription="1", wal_retrieve_retry_interval="1ms")
    subscriber.sql(f"{TABLES}; INSERT INTO a VALUES (2)")
    subscriber.sql(publisher.subscription())
    subscriber.wait("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'", "2")
    assert subscriber.sql("SELECT srrelid::regclass, srsubstate FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "a|d"
    assert subscriber.log.error('duplicate key value violates unique constraint "a_pkey"').context == "COPY a, line 2"


def test_first_row_that_a_copy_rejects_is_named_with_its_line(publisher, subscriber) -> None:
    publisher.sql(
        "CREATE TABLE a(i int PRIMARY KEY, t text); INSERT INTO a SELECT i, nullif(i, 7)::text FROM generate_series(1, 9) i; CREATE PUBLICATION p FOR TABLE a"
    )
    subscriber.sql("CREATE TABLE a(i int PRIMARY KEY, t text NOT NULL, x int DEFAULT 5, CONSTRAINT a_check CHECK (i <> 4))")
    subscriber.sql(publisher.subscription())
    assert subscriber.log.error('new row for relation "a" violates check constraint "a_check"').context == 'COPY a, line 4: "4\t4"'
    subscriber.sql("ALTER TABLE a DROP CONSTRAINT a_check")
    error = subscriber.log.error('null value in column "t" of relation "a" violates not-null constraint')
    assert (error.context, error.detail) == ('COPY a, line 7: "7\t\\N"', "Failing row contains (7, null, 5).")


def test_sync_slot_that_could_not_be_dropped_is_dropped_later(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(a int PRIMARY KEY)")
    holder = Session(subscriber.conninfo)
    holder.sql("BEGIN; LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE")
    subscriber.sql(publisher.subscription())
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE 'pg_%_sync_%'"
    until(lambda: publisher.sql(slots) == "1", "no sync slot")
    origins = f"SELECT count(*) FROM pg_replication_origin WHERE roname LIKE 'pg_{subscriber.of_subscription('s.oid')}%'"
    administrator = Session(publisher.server.conninfo())
    administrator.sql(f"ALTER DATABASE {publisher.name} ALLOW_CONNECTIONS false")
    holder.sql("COMMIT")
    holder.close()
    subscriber.wait(READY, "t")
    until(lambda: len(subscriber.log.matching("is not currently accepting connections")) >= 2, "dropping the slot is not retried")
    assert (subscriber.sql(origins), publisher.sql(slots)) == ("2", "1")
    subscriber.sql("DROP TABLE t")
    administrator.sql(f"ALTER DATABASE {publisher.name} ALLOW_CONNECTIONS true")
    administrator.close()
    subscriber.wait(origins, "1")
    assert publisher.sql(slots) == "0"
