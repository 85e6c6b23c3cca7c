"""An error stops the worker with PostgreSQL's message and context. The position stays, and the worker resumes after the cause is removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import until
from tests.storage.tables import relation
from tests.subscriber.conftest import READY, Publisher, Subscriber

from headgate.errors import PostgresError
from headgate.subscriber.rows.conversion import InputSettings
from headgate.subscriber.synchronization.copy_target import REFUSED, CopyTarget, CopyTask
from headgate.subscriber.synchronization.initial_copy import PARALLEL_SIZE
from headgate.walreceiver.remote import RemoteRelation

TABLE = "CREATE TABLE t(id int PRIMARY KEY, b text)"


def start(publisher, subscriber, local=TABLE, options="", remote=TABLE) -> None:
    publisher.sql(f"{remote}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(local)
    subscriber.sql(publisher.subscription(options))
    subscriber.wait(READY, "t")


def test_duplicate_key_stops_the_worker_at_that_transaction_until_the_key_is_free(publisher, subscriber) -> None:
    start(publisher, subscriber)
    subscriber.sql("INSERT INTO t VALUES (5, 'mine')")
    publisher.sql("".join(f"INSERT INTO t VALUES ({key}, 'theirs');" for key in range(1, 9)))
    error = subscriber.log.error('duplicate key value violates unique constraint "t_pkey"')
    pattern = (
        r'processing remote data for replication origin "pg_\d+" during message type "INSERT" for replication target relation'
        r' "public\.t" in transaction \d+, finished at [0-9A-F]+/[0-9A-F]+'
    )
    assert re.fullmatch(pattern, error.context), error
    assert error.detail == "Key (id)=(5) already exists."
    assert subscriber.sql("SELECT count(*) FROM t") == "5"
    subscriber.sql("DELETE FROM t WHERE id = 5")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT count(*), count(*) FILTER (WHERE b = 'theirs') FROM t") == "8|8"
    assert int(subscriber.counted("apply_error_count")) >= 1


def test_failing_transaction_can_be_skipped(publisher, subscriber) -> None:
    start(publisher, subscriber)
    subscriber.sql("INSERT INTO t VALUES (2, 'mine')")
    publisher.sql("INSERT INTO t VALUES (1, 'a'); BEGIN; INSERT INTO t VALUES (2, 'b'), (20, 'b'); COMMIT; INSERT INTO t VALUES (3, 'c')")
    finish = subscriber.log.error("duplicate key value").context.rsplit(" ", 1)[1]
    subscriber.sql(f"ALTER SUBSCRIPTION s SKIP (lsn = '{finish}')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT id, b FROM t ORDER BY id") == "1|a\n2|mine\n3|c"
    assert subscriber.log.matching(f"logical replication completed skipping transaction at LSN {finish}")
    assert subscriber.of_subscription("subskiplsn") == "0/0"


def test_sync_worker_skips_a_transaction_while_it_catches_up(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; INSERT INTO t VALUES (1, 'a'); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(f"{TABLE}; INSERT INTO t VALUES (2, 'mine')")
    with psycopg.connect(subscriber.conninfo) as blocker:
        blocker.execute("LOCK TABLE t")  # the copy waits, and the apply worker passes the transactions
        subscriber.sql(publisher.subscription())
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE '%_sync_%'"
        until(lambda: publisher.sql(slots) == "1", "the sync worker has no slot")
        publisher.sql("INSERT INTO t VALUES (2, 'theirs'); INSERT INTO t VALUES (3, 'c')")
        publisher.wait_confirmed()
    finish = subscriber.log.error("duplicate key value").context.rsplit(" ", 1)[1]
    subscriber.sql(f"ALTER SUBSCRIPTION s SKIP (lsn = '{finish}')")
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT id, b FROM t ORDER BY id") == "1|a\n2|mine\n3|c"
    assert subscriber.of_subscription("subskiplsn") == "0/0"
    assert not subscriber.log.matching('skip-LSN of subscription "s" cleared')


def test_skip_lsn_that_does_not_match_is_cleared_with_a_warning(publisher, subscriber) -> None:
    start(publisher, subscriber)
    subscriber.sql("ALTER SUBSCRIPTION s SKIP (lsn = 'F/0')")
    publisher.sql("INSERT INTO t VALUES (1, 'a')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT count(*) FROM t") == "1"
    until(lambda: subscriber.of_subscription("subskiplsn") == "0/0", "the skip LSN is not cleared")
    until(lambda: subscriber.log.matching('skip-LSN of subscription "s" cleared'), "no warning about the skip LSN")


def test_disable_on_error_disables_the_subscription(publisher, subscriber) -> None:
    start(publisher, subscriber, options="disable_on_error = true")
    subscriber.sql("INSERT INTO t VALUES (1, 'mine')")
    with psycopg.connect(subscriber.conninfo) as session:
        session.execute("ALTER SUBSCRIPTION s SET (binary = false)")
        publisher.sql("INSERT INTO t VALUES (1, 'theirs')")
        subscriber.wait("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", "1")
        assert subscriber.of_subscription("subenabled") == "t"
    until(lambda: subscriber.of_subscription("subenabled") == "f", "the subscription is not disabled")
    until(
        lambda: subscriber.log.matching('subscription "s" has been disabled because of an error'),
        "the log does not report the disabled subscription",
    )
    subscriber.sql("DELETE FROM t")
    subscriber.sql("ALTER SUBSCRIPTION s ENABLE")
    subscriber.wait("SELECT b FROM t", "theirs")


def test_missing_column_is_named_and_the_worker_resumes_after_it_is_added(publisher, subscriber) -> None:
    start(publisher, subscriber)
    publisher.sql("""ALTER TABLE t ADD newc int, ADD "New 2" int; INSERT INTO t VALUES (1, 'a', 2, 3)""")
    subscriber.log.error('logical replication target relation "public.t" is missing replicated columns: "newc", "New 2"')
    subscriber.sql('ALTER TABLE t ADD newc int, ADD "New 2" int')
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t") == "1|a|2|3"


@pytest.mark.slow
def test_missing_column_of_a_table_that_is_not_copied_yet_does_not_stop_other_tables(publisher: Publisher, subscriber: Subscriber) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, b int); CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t, u")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.log.error('logical replication target relation "public.t" is missing replicated column: "b"')
    publisher.sql("INSERT INTO t VALUES (1, 1); INSERT INTO u VALUES (1)")
    subscriber.wait("SELECT count(*) FROM u", "1")
    subscriber.sql("ALTER TABLE t ADD b int")
    subscriber.wait("SELECT count(*) FROM t", "1")


def test_missing_table_stops_the_worker_even_if_it_was_never_subscribed(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; CREATE PUBLICATION p FOR ALL TABLES")
    subscriber.sql(TABLE)
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql("CREATE TABLE other(a int PRIMARY KEY); INSERT INTO other VALUES (1); INSERT INTO t VALUES (1, 'a')")
    subscriber.log.error('logical replication target relation "public.other" does not exist')
    subscriber.sql("CREATE TABLE other(a int PRIMARY KEY)")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM other)") == "1|0"


@pytest.mark.parametrize(
    ("local", "value", "message", "column"),
    [
        pytest.param(
            "id int PRIMARY KEY, b smallint", "100000", 'value "100000" is out of range for type smallint', "b", marks=pytest.mark.slow
        ),
        ("id int PRIMARY KEY, b varchar(5)", "too long", "value too long for type character varying(5)", "b"),
        pytest.param("id int PRIMARY KEY, b date", "no date", 'invalid input syntax for type date: "no date"', "b", marks=pytest.mark.slow),
    ],
)
def test_value_that_the_local_type_rejects_is_reported_with_its_column(publisher, subscriber, local, value, message, column) -> None:
    start(publisher, subscriber, f"CREATE TABLE t({local})")
    publisher.sql(f"INSERT INTO t VALUES (1, NULL); INSERT INTO t VALUES (2, '{value}')")
    context = subscriber.log.error(message).context
    assert f'for replication target relation "public.t" column "{column}" in transaction' in context
    assert subscriber.sql("SELECT id FROM t") == "1"
    publisher.sql("SELECT 1")


def test_null_in_a_not_null_column_stops_the_worker(publisher, subscriber) -> None:
    start(publisher, subscriber, "CREATE TABLE t(id int PRIMARY KEY, b text NOT NULL)")
    publisher.sql("INSERT INTO t VALUES (1, NULL)")
    error = subscriber.log.error('null value in column "b" of relation "t" violates not-null constraint')
    assert error.detail == "Failing row contains (1, null)."


def test_updates_without_a_replica_identity_are_rejected_and_inserts_are_applied(publisher, subscriber) -> None:
    start(publisher, subscriber, "CREATE TABLE t(id int, b text)")
    publisher.sql("INSERT INTO t VALUES (1, 'a')")
    publisher.wait_confirmed()
    publisher.sql("UPDATE t SET b = 'c'")
    error = subscriber.log.error(
        'logical replication target relation "public.t" has neither REPLICA IDENTITY index nor PRIMARY KEY and published relation does not'
        " have REPLICA IDENTITY FULL"
    )
    assert 'during message type "UPDATE"' in error.context


@pytest.mark.parametrize(
    "local",
    [
        "CREATE TABLE t(id int PRIMARY KEY, b text NOT NULL CHECK (b <> 'x'))",
        "CREATE TABLE t(id int, b text NOT NULL CHECK (b <> 'x'))",
        """CREATE TABLE t(id int, b text) PARTITION BY RANGE (id);
        CREATE TABLE part PARTITION OF t (b NOT NULL CHECK (b <> 'x'), PRIMARY KEY (id)) FOR VALUES FROM (0) TO (9)""",
    ],
    ids=["key", "without key", "key of a partition"],
)
def test_update_or_delete_of_a_missing_row_is_skipped_even_if_a_constraint_would_reject_it(publisher, subscriber, local) -> None:
    identity = "" if "PRIMARY KEY" in local else "; ALTER TABLE t REPLICA IDENTITY FULL"
    start(publisher, subscriber, local, remote=TABLE + identity)
    publisher.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    publisher.wait_confirmed()
    subscriber.sql("DELETE FROM t WHERE id = 1")
    publisher.sql(
        """BEGIN; UPDATE t SET b = 'x' WHERE id = 1; UPDATE t SET b = 'y' WHERE id = 2; UPDATE t SET b = NULL WHERE id = 1; COMMIT;
        DELETE FROM t WHERE id = 1; UPDATE t SET b = 'z' WHERE id = 2"""
    )
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t") == "2|z"
    publisher.sql("UPDATE t SET b = NULL")
    assert 'during message type "UPDATE"' in subscriber.log.error('null value in column "b"').context


def test_failing_copy_is_retried_while_other_tables_stream(publisher, subscriber) -> None:
    tables = "CREATE TABLE good(a int PRIMARY KEY); CREATE TABLE bad(a int PRIMARY KEY, b {type})"
    publisher.sql(
        tables.format(type="text") + "; INSERT INTO good VALUES (1); INSERT INTO bad VALUES (1, 'x'); CREATE PUBLICATION p FOR ALL TABLES"
    )
    subscriber.sql(tables.format(type="int"))
    subscriber.sql(publisher.subscription())
    context = subscriber.log.error('invalid input syntax for type integer: "x"').context
    assert context == 'COPY bad, line 1, column b: "x"'
    publisher.sql("INSERT INTO good VALUES (2)")
    subscriber.wait("SELECT count(*) FROM good", "2")
    publisher.sql("UPDATE bad SET b = '7'")
    subscriber.wait(READY, "t")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM bad") == "1|7"
    assert int(subscriber.counted("sync_error_count")) >= 1


def test_existing_rows_that_conflict_with_the_copy_stop_it(publisher, subscriber) -> None:
    publisher.sql(f"{TABLE}; INSERT INTO t SELECT i, 'theirs' FROM generate_series(1, 10) i; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(TABLE)
    subscriber.sql("INSERT INTO t VALUES (3, 'mine')")
    subscriber.sql(publisher.subscription())
    subscriber.log.error('duplicate key value violates unique constraint "t_pkey"')
    assert subscriber.sql("SELECT count(*) FROM t") == "1"
    subscriber.sql("DELETE FROM t")
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT count(*) FROM t") == "10"


def test_copied_rows_whose_keys_are_equal_only_here_stop_the_copy(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE converted(a text PRIMARY KEY); INSERT INTO converted VALUES ('1'), ('01')")
    publisher.sql("CREATE TABLE narrowed(a int, b int, PRIMARY KEY (a, b)); INSERT INTO narrowed VALUES (1, 1), (1, 2)")
    publisher.sql("CREATE TABLE divided(a int, b int, PRIMARY KEY (a, b)); INSERT INTO divided VALUES (1, 1), (1, 2)")
    publisher.sql("CREATE TABLE changed(a int PRIMARY KEY); INSERT INTO changed VALUES (1), (2)")
    publisher.sql("CREATE PUBLICATION p FOR TABLE converted, narrowed (a), divided, changed WITH (publish = 'insert')")
    subscriber.sql("CREATE TABLE converted(a int PRIMARY KEY); CREATE TABLE narrowed(a int PRIMARY KEY)")
    subscriber.sql("CREATE TABLE divided(a int, b int) PARTITION BY LIST (b); CREATE TABLE leaf(a int PRIMARY KEY, b int)")
    subscriber.sql("ALTER TABLE divided ATTACH PARTITION leaf FOR VALUES IN (1, 2); CREATE TABLE changed(a int PRIMARY KEY)")
    subscriber.sql("CREATE FUNCTION one() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.a := 1; RETURN NEW; END'")
    subscriber.sql("CREATE TRIGGER one BEFORE INSERT ON changed FOR EACH ROW EXECUTE FUNCTION one()")
    subscriber.sql("ALTER TABLE changed ENABLE ALWAYS TRIGGER one")
    subscriber.sql(publisher.subscription())
    for key in ('"converted_pkey"', '"narrowed_pkey"', '"leaf_pkey"', '"changed_pkey"'):
        assert "duplicate key value" in subscriber.log.error(key).message


def test_worker_reconnects_after_its_walsender_is_terminated(publisher, subscriber) -> None:
    start(publisher, subscriber)
    pid = subscriber.sql("SELECT pid FROM pg_stat_subscription WHERE subname = 's' AND relid IS NULL AND pid IS NOT NULL")
    assert f'[{pid}] LOG:  logical replication apply worker for subscription "s" has started' in subscriber.server.log()
    publisher.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = current_database()")
    publisher.sql("INSERT INTO t VALUES (1, 'after')")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT b FROM t") == "after"


def test_second_unique_constraint_is_checked(publisher, subscriber) -> None:
    local = "CREATE TABLE t(id int PRIMARY KEY, b text UNIQUE)"
    start(publisher, subscriber, local)
    publisher.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    publisher.wait_confirmed()
    publisher.sql("UPDATE t SET b = 'one' WHERE id = 2")
    error = subscriber.log.error('duplicate key value violates unique constraint "t_b_key"')
    assert 'during message type "UPDATE"' in error.context
    assert error.detail == "Key (b)=(one) already exists."
    subscriber.sql("DELETE FROM t WHERE id = 1")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t") == "2|one"


def test_rejected_truncate_and_null_without_default_are_reported_as_in_postgresql(publisher, subscriber) -> None:
    start(publisher, subscriber, local="CREATE TABLE t(id int PRIMARY KEY, b text, x int DEFAULT 5, y int NOT NULL DEFAULT 0)")
    subscriber.sql("CREATE TABLE r(id int REFERENCES t); ALTER TABLE t ALTER y DROP DEFAULT")
    publisher.sql("INSERT INTO t VALUES (1, 'a')")
    error = subscriber.log.error('null value in column "y"')
    assert 'message type "INSERT" for replication target relation "public.t"' in error.context
    assert error.detail == "Failing row contains (1, a, 5, null)."
    subscriber.sql("ALTER TABLE t ALTER y DROP NOT NULL")
    publisher.sql("TRUNCATE t")
    error = subscriber.log.error("cannot truncate a table referenced in a foreign key constraint")
    assert 'during message type "TRUNCATE" in transaction' in error.context


def test_rows_are_not_matched_by_types_without_equality(publisher, subscriber) -> None:
    remote = "CREATE TABLE t(id int, b json); ALTER TABLE t REPLICA IDENTITY FULL"
    start(publisher, subscriber, local="CREATE TABLE t(id int, b json)", remote=remote)
    publisher.sql("INSERT INTO t VALUES (1, NULL), (2, '{}'); UPDATE t SET id = 3 WHERE id = 1; DELETE FROM t WHERE id = 2")
    assert '"DELETE"' in subscriber.log.error("could not identify an equality operator for type json").context
    subscriber.sql("ALTER TABLE t ADD PRIMARY KEY (id)")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT * FROM t") == "3|"


class _FailingTask(CopyTask):
    def _rows(self, condition: str, check: Callable[[], None] | None = None) -> Iterator[tuple[pa.Table, int]]:
        raise PostgresError("22P02", 'invalid input syntax for type integer: "secret"')
        yield


def test_error_of_a_copy_task_shows_no_value() -> None:
    remote = RemoteRelation(17, "public", "t", "d", "r", ())
    target = CopyTarget(relation(100, "t"), remote, (), InputSettings(), checked=False)
    with pytest.raises(RuntimeError, match=f"headgate:22P02:{REFUSED}") as refused:
        list(_FailingTask("", "", "", target, Path(), {}, {})("true", []))
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_failed_parallel_copy_names_the_column(publisher, subscriber) -> None:
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY, v text) WITH (fillfactor = 10)")  # pages that are nearly empty
    publisher.sql(
        "INSERT INTO t SELECT i, CASE i WHEN 7 THEN 'x' ELSE repeat('1', 5) || repeat(' ', 700) END FROM generate_series(1, 8000) i"
    )
    assert int(publisher.sql("SELECT pg_relation_size('t')")) >= PARALLEL_SIZE
    publisher.sql("CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    subscriber.sql(publisher.subscription())
    assert subscriber.log.error('invalid input syntax for type integer: "x"').context == "COPY t, column v"
