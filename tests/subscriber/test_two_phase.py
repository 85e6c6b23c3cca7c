"""Prepared and streamed transactions of a real publisher: invisible until they end, kept across a restart, gone when they are rolled back."""

from __future__ import annotations

import pytest
from tests.subscriber.test_errors import context, log  # noqa: F401
from tests.subscriber.test_stream import READY

from headgate.errors import PostgresError
from headgate.subscriber.prepared import all_prepared, commit_by_hand, rollback_by_hand

TABLE = "CREATE TABLE t(id int PRIMARY KEY, b text)"
HELD = "SELECT count(*) FROM hg.applied_prepare"


def held(subscriber) -> int:
    cursor = subscriber.catalog.cursor()
    try:
        return int(cursor.execute(HELD).fetchone()[0])
    finally:
        cursor.close()


def test_a_prepared_transaction_survives_a_restart_and_appears_when_it_is_committed(publisher, subscribers) -> None:
    publisher.sql(f"{TABLE}; INSERT INTO t VALUES (1, 'copied'); CREATE PUBLICATION p FOR TABLE t")
    first = subscribers()
    first.sql(TABLE)
    first.sql(publisher.subscription("two_phase = true, streaming = on"))
    first.wait("SELECT subtwophasestate FROM pg_subscription", "e", 120)
    gids = [f"{publisher.database}_{name}" for name in ("kept", "gone")]
    publisher.sql(f"BEGIN; INSERT INTO t VALUES (2, 'kept'); UPDATE t SET b = 'changed' WHERE id = 1; PREPARE TRANSACTION '{gids[0]}'")
    publisher.sql(f"BEGIN; INSERT INTO t VALUES (3, 'gone'); PREPARE TRANSACTION '{gids[1]}'; INSERT INTO t VALUES (4, 'plain')")
    publisher.wait_confirmed()
    assert held(first) == 2
    assert first.sql("SELECT * FROM t ORDER BY id") == "1|copied\n4|plain"
    first.stop()
    publisher.sql(f"ROLLBACK PREPARED '{gids[1]}'")
    second = subscribers()
    publisher.wait_confirmed()
    assert (held(second), second.sql("SELECT count(*) FROM t")) == (1, "2")
    publisher.sql(f"COMMIT PREPARED '{gids[0]}'")
    publisher.wait_confirmed()
    assert second.sql("SELECT * FROM t ORDER BY id") == "1|changed\n2|kept\n4|plain"
    assert held(second) == 0
    assert not list((second.node.data_dir / "pg_twophase").iterdir())


def test_a_prepared_transaction_of_a_subscription_can_be_ended_by_hand(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; INSERT INTO t VALUES (1, 'copied'); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("two_phase = true"))
    subscriber.wait("SELECT subtwophasestate FROM pg_subscription", "e", 120)
    for number in (2, 3):
        publisher.sql(f"BEGIN; INSERT INTO t VALUES ({number}, 'x'); PREPARE TRANSACTION '{publisher.database}_{number}'")
    publisher.wait_confirmed()
    subscriber.sql("DROP SUBSCRIPTION s")
    kept, gone = [each.gid for each in all_prepared(subscriber.catalog.cursor())]
    with pytest.raises(PostgresError, match="permission denied to finish prepared transaction"):
        commit_by_hand(subscriber.node, kept, 5, 16384)
    commit_by_hand(subscriber.node, kept, 5, None)
    rollback_by_hand(subscriber.node, gone, 5, None)
    assert (subscriber.sql("SELECT id FROM t ORDER BY id"), held(subscriber)) == ("1\n2", 0)
    for number in (2, 3):
        publisher.sql(f"ROLLBACK PREPARED '{publisher.database}_{number}'")


def test_prepared_transactions_wait_for_room_in_max_prepared_transactions(publisher, subscribers, log) -> None:  # noqa: F811
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    none = subscribers(max_prepared_transactions="0")
    none.sql(TABLE)
    none.sql(publisher.subscription("two_phase = true"))
    none.wait("SELECT subtwophasestate FROM pg_subscription", "e", 120)
    gids = [f"{publisher.database}_{number}" for number in (1, 2)]
    publisher.sql("".join(f"BEGIN; INSERT INTO t VALUES ({number}); PREPARE TRANSACTION '{gid}'; " for number, gid in enumerate(gids)))
    assert 'message type "PREPARE"' in context(log, "prepared transactions are disabled")
    none.stop()
    one = subscribers(max_prepared_transactions="1")
    context(log, "maximum number of prepared transactions reached")
    assert held(one) == 1
    one.stop()
    two = subscribers(max_prepared_transactions="2")
    publisher.wait_confirmed()
    assert held(two) == 2
    publisher.sql("".join(f"COMMIT PREPARED '{gid}'; " for gid in gids))
    publisher.wait_confirmed()
    assert (two.sql("SELECT count(*) FROM t"), held(two)) == ("2", 0)


def test_a_streamed_transaction_leaves_nothing_of_what_it_rolled_back(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t; ALTER DATABASE {publisher.database} SET logical_decoding_work_mem = '64kB'")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("streaming = on"))
    subscriber.wait(READY, "t")
    publisher.sql("""BEGIN; INSERT INTO t SELECT i, repeat('k', 50) FROM generate_series(1, 2000) i; SAVEPOINT s;
                     INSERT INTO t SELECT i, repeat('g', 50) FROM generate_series(2001, 4000) i; UPDATE t SET b = 'gone'; ROLLBACK TO s;
                     INSERT INTO t SELECT i, repeat('k', 50) FROM generate_series(4001, 6000) i; DELETE FROM t WHERE id = 7; COMMIT""")
    publisher.wait_confirmed()
    expected = publisher.sql("SELECT count(*), min(b), max(b), max(id) FROM t")
    assert subscriber.sql("SELECT count(*), min(b), max(b), max(id) FROM t") == expected
    slot = f"{publisher.database}_s"
    assert publisher.sql(f"SELECT stream_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = '{slot}'") == "t"
