"""Prepared and streamed transactions of a real publisher are invisible until they end, survive a restart and disappear when rolled back."""

from __future__ import annotations

import threading

import pytest
from psycopg.errors import InsufficientPrivilege, ObjectNotInPrerequisiteState, QueryCanceled, UndefinedObject
from tests.conftest import until
from tests.session import Session
from tests.subscriber.conftest import READY

TABLE = "CREATE TABLE t(id int PRIMARY KEY, b text)"


def held(subscriber) -> int:
    """Return how many prepared transactions the database's subscriptions hold."""
    return int(subscriber.sql("SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE 'pg_gid_%'"))


def enabled(subscriber) -> None:
    """Wait until the subscription streams with two_phase."""
    until(lambda: subscriber.of_subscription("subtwophasestate") == "e", "two_phase is not enabled", 60)


@pytest.mark.slow
def test_prepared_transaction_survives_a_restart_and_is_visible_after_its_commit(publisher, spare) -> None:
    publisher.sql(f"{TABLE}; INSERT INTO t VALUES (1, 'copied'); CREATE PUBLICATION p FOR TABLE t")
    subscriber = spare()
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("two_phase = true, streaming = on"))
    enabled(subscriber)
    gids = [f"{publisher.name}_{name}" for name in ("kept", "gone")]
    publisher.sql(f"BEGIN; INSERT INTO t VALUES (2, 'kept'); UPDATE t SET b = 'changed' WHERE id = 1; PREPARE TRANSACTION '{gids[0]}'")
    publisher.sql(f"BEGIN; INSERT INTO t VALUES (3, 'gone'); PREPARE TRANSACTION '{gids[1]}'; INSERT INTO t VALUES (4, 'plain')")
    publisher.wait_confirmed()
    assert held(subscriber) == 2
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == "1|copied\n4|plain"
    subscriber.stop()
    publisher.sql(f"ROLLBACK PREPARED '{gids[1]}'")
    subscriber.server.start()
    publisher.wait_confirmed()
    assert (held(subscriber), subscriber.sql("SELECT count(*) FROM t")) == (1, "2")
    publisher.sql(f"COMMIT PREPARED '{gids[0]}'")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == "1|changed\n2|kept\n4|plain"
    assert held(subscriber) == 0
    assert not list((subscriber.server.data / "pg_twophase").iterdir())


@pytest.mark.slow
def test_prepared_transaction_of_a_subscription_can_be_finished_by_hand(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; INSERT INTO t VALUES (1, 'copied'); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("two_phase = true"))
    enabled(subscriber)
    for number in (2, 3):
        publisher.sql(f"BEGIN; INSERT INTO t VALUES ({number}, 'x'); PREPARE TRANSACTION '{publisher.name}_{number}'")
    publisher.wait_confirmed()
    subscriber.sql("DROP SUBSCRIPTION s")
    committed, rolled_back = subscriber.sql(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared, gid"
    ).split("\n")
    role = f"other_in_{subscriber.name}"
    subscriber.sql(f"CREATE ROLE {role} LOGIN")
    plain = Session(subscriber.server.conninfo(subscriber.name, role))
    with pytest.raises(InsufficientPrivilege, match="permission denied to finish prepared transaction"):
        plain.sql(f"COMMIT PREPARED '{committed}'")
    plain.close()
    subscriber.sql(f"COMMIT PREPARED '{committed}'; ROLLBACK PREPARED '{rolled_back}'; DROP ROLE {role}")
    assert (subscriber.sql("SELECT id FROM t ORDER BY id"), held(subscriber)) == ("1\n2", 0)
    for number in (2, 3):
        publisher.sql(f"ROLLBACK PREPARED '{publisher.name}_{number}'")


def test_rows_around_a_prepared_transaction_have_the_columns_that_the_publisher_described(publisher, subscriber) -> None:
    tables = "CREATE TABLE t(id int PRIMARY KEY, b text, c text); CREATE TABLE renamed(id int, b text, c text)"
    publisher.sql(f"{tables}; CREATE PUBLICATION p FOR TABLE t (id, b); CREATE PUBLICATION r FOR TABLE renamed")
    subscriber.sql(tables)
    subscriber.sql(publisher.subscription("two_phase = true", publication="p, r"))
    enabled(subscriber)
    gid = f"{publisher.name}_g"
    publisher.sql(f"""INSERT INTO t VALUES (1, 'b', 'c'); INSERT INTO renamed VALUES (1, 'b', 'c');
                      BEGIN; INSERT INTO t VALUES (2, 'b', 'c'); INSERT INTO renamed VALUES (2, 'b', 'c');
                      ALTER TABLE renamed RENAME b TO x; ALTER TABLE renamed RENAME c TO b; ALTER TABLE renamed RENAME x TO c;
                      INSERT INTO renamed VALUES (3, 'c', 'b'); PREPARE TRANSACTION '{gid}'""")
    publisher.sql("ALTER PUBLICATION p SET TABLE t (id, c); INSERT INTO t VALUES (3, 'b', 'c')")
    publisher.wait_confirmed()
    publisher.sql(f"COMMIT PREPARED '{gid}'; INSERT INTO t VALUES (4, 'b', 'c')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t ORDER BY id") == "1|b|\n2|b|\n3||c\n4||c"
    assert subscriber.sql("SELECT * FROM renamed ORDER BY id") == "1|b|c\n2|b|c\n3|b|c"


def test_prepared_transaction_is_busy_while_a_session_waits_to_commit_it(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t(id int); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t(id int)")
    subscriber.sql(publisher.subscription("two_phase = true"))
    enabled(subscriber)
    publisher.sql(f"BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION '{publisher.name}_g'")
    publisher.wait_confirmed()
    subscriber.sql("DROP SUBSCRIPTION s")
    publisher.sql(f"ROLLBACK PREPARED '{publisher.name}_g'")
    gid = subscriber.sql("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
    first = Session(subscriber.conninfo)
    first.sql("SELECT 1")
    subscriber.sql("BEGIN; LOCK TABLE t")
    cancelled: list[str | None] = []

    def commit() -> None:
        try:
            first.sql(f"COMMIT PREPARED '{gid}'")
        except QueryCanceled as error:
            cancelled.append(error.sqlstate)

    committing = threading.Thread(target=commit, daemon=True)
    committing.start()
    waits = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {first.connection.info.backend_pid} AND wait_event_type = 'Lock'"
    second_session = Session(subscriber.conninfo)
    until(lambda: second_session.sql(waits) == "1", "COMMIT PREPARED does not wait for the lock")
    for word in ("COMMIT", "ROLLBACK"):
        with pytest.raises(ObjectNotInPrerequisiteState, match="is busy"):
            second_session.sql(f"{word} PREPARED '{gid}'")
    first.connection.cancel_safe()
    committing.join()
    assert cancelled == ["57014"]
    subscriber.sql("COMMIT")
    second_session.sql(f"COMMIT PREPARED '{gid}'")
    with pytest.raises(UndefinedObject, match="does not exist"):
        second_session.sql(f"COMMIT PREPARED '{gid}'")
    assert (subscriber.sql("SELECT count(*) FROM t"), held(subscriber)) == ("1", 0)
    first.close()
    second_session.close()


def test_prepared_transactions_wait_for_room_in_max_prepared_transactions(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("two_phase = true"))
    enabled(subscriber)
    room = int(subscriber.sql("SHOW max_prepared_transactions")) - int(subscriber.sql("SELECT count(*) FROM pg_prepared_xacts"))
    own = [f"{subscriber.name}_{number}" for number in range(room - 1)]
    subscriber.sql("".join(f"BEGIN; PREPARE TRANSACTION '{gid}'; " for gid in own))
    gids = [f"{publisher.name}_{number}" for number in (1, 2)]
    publisher.sql("".join(f"BEGIN; INSERT INTO t VALUES ({number}); PREPARE TRANSACTION '{gid}'; " for number, gid in enumerate(gids)))
    assert 'message type "PREPARE"' in subscriber.log.error("maximum number of prepared transactions reached").context
    assert held(subscriber) == 1
    subscriber.sql("".join(f"ROLLBACK PREPARED '{gid}'; " for gid in own))
    publisher.wait_confirmed()
    assert held(subscriber) == 2
    publisher.sql("".join(f"COMMIT PREPARED '{gid}'; " for gid in gids))
    publisher.wait_confirmed()
    assert (subscriber.sql("SELECT count(*) FROM t"), held(subscriber)) == ("2", 0)


def test_streamed_transaction_leaves_no_rows_of_a_savepoint_that_was_rolled_back(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR TABLE t; ALTER DATABASE {publisher.name} SET logical_decoding_work_mem = '64kB'")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription("streaming = on"))
    subscriber.wait(READY, "t")
    publisher.sql("""BEGIN; INSERT INTO t SELECT i, repeat('k', 50) FROM generate_series(1, 2000) i; SAVEPOINT s;
                     INSERT INTO t SELECT i, repeat('g', 50) FROM generate_series(2001, 4000) i; UPDATE t SET b = 'gone'; ROLLBACK TO s;
                     INSERT INTO t SELECT i, repeat('k', 50) FROM generate_series(4001, 6000) i; DELETE FROM t WHERE id = 7; COMMIT""")
    publisher.wait_confirmed()
    expected = publisher.sql("SELECT count(*), min(b), max(b), max(id) FROM t")
    assert subscriber.sql("SELECT count(*), min(b), max(b), max(id) FROM t") == expected
    slot = f"{publisher.name}_s"
    assert publisher.sql(f"SELECT stream_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = '{slot}'") == "t"
