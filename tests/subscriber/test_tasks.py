"""A subscriber equals its publisher after batches that Spark's tasks decode and apply."""

from __future__ import annotations

import json

import pytest
from tests.conftest import until

TABLES = """CREATE TABLE a (id int PRIMARY KEY, n int, v text); CREATE TABLE b (k text, m numeric, n int, PRIMARY KEY (k, m));
CREATE TABLE c (id int PRIMARY KEY, big text, n int); CREATE TABLE d (id int PRIMARY KEY, n int UNIQUE DEFERRABLE INITIALLY DEFERRED)"""
ROWS = """INSERT INTO a SELECT i, i, 'row ' || i FROM generate_series(1, 2000) i;
INSERT INTO b SELECT 'k' || i, i / 7.0, i FROM generate_series(1, 1000) i;
INSERT INTO c SELECT i, string_agg(md5(random()::text), ''), i FROM generate_series(1, 60) i, generate_series(1, 120) GROUP BY i;
INSERT INTO d SELECT i, i FROM generate_series(1, 1002) i"""
CHANGES = """UPDATE a SET n = n + 1; UPDATE a SET id = id + 10000 WHERE id % 3 = 0; DELETE FROM a WHERE id % 5 = 0;
INSERT INTO a SELECT i, i, 'new' FROM generate_series(3001, 4000) i; UPDATE a SET v = 'again' WHERE id > 3500;
UPDATE b SET n = n + 1; UPDATE b SET m = -m WHERE n % 2 = 0; DELETE FROM b WHERE n % 11 = 0;
UPDATE c SET n = n + 1; UPDATE c SET n = n * 2 WHERE id < 30; UPDATE c SET big = 'short' WHERE id = 3"""
EMPTIED = (
    "UPDATE a SET n = 0; TRUNCATE b; INSERT INTO b SELECT 'later', i, i FROM generate_series(1, 1500) i; UPDATE b SET n = -1 WHERE n < 9"
)


def all_rows(table: str) -> str:
    return f"SELECT count(*), md5(string_agg(t::text, ' ' ORDER BY t::text COLLATE \"C\")) FROM {table} t"


@pytest.mark.slow
def test_tasks_apply_keys_unsent_values_key_updates_and_truncates_of_several_tables(spare, publisher) -> None:
    subscriber = spare(small_batch_rows="1000")
    publisher.sql(f"{TABLES}; ALTER TABLE c ALTER big SET STORAGE EXTERNAL; {ROWS}; CREATE PUBLICATION p FOR ALL TABLES")
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription())
    until(lambda: subscriber.sql("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "0", "the copies do not end")
    for changes in (CHANGES, EMPTIED, "UPDATE a SET n = n + 1; DELETE FROM a WHERE id % 2 = 0"):
        publisher.sql(f"BEGIN; {changes}; COMMIT")
        publisher.wait_confirmed()
        for table in "abc":
            assert subscriber.sql(all_rows(table)) == publisher.sql(all_rows(table))
    subscriber.sql("CREATE PUBLICATION p FOR TABLE d; SELECT pg_create_logical_replication_slot('exchange', 'pgoutput', true)")
    publisher.sql("UPDATE d SET n = CASE WHEN id <= 1000 THEN 1001 - id ELSE id END")
    publisher.wait_confirmed()
    assert subscriber.sql(all_rows("d")) == publisher.sql(all_rows("d"))
    options = "NULL, NULL, 'proto_version', '1', 'publication_names', 'p'"
    tags = f"SELECT string_agg(chr(get_byte(data, 0)), '') FROM pg_logical_slot_get_binary_changes('exchange', {options})"
    assert subscriber.sql(tags) == f"BOR{'D' * 1000}UU{'I' * 1000}C"
    spark = json.loads(subscriber.server.headgate("status", "--json").stdout)["spark"]
    assert spark["driver_changes"] == 0
    assert spark["spark_changes"] > 8000


@pytest.mark.slow
def test_batch_that_tasks_cannot_net_is_applied_by_the_driver(spare, publisher) -> None:
    subscriber = spare(small_batch_rows="100")
    publisher.sql(f"{TABLES}; ALTER TABLE c ALTER big SET STORAGE EXTERNAL; {ROWS}; CREATE PUBLICATION p FOR TABLE c")
    subscriber.sql(TABLES)
    subscriber.sql(publisher.subscription())
    until(lambda: subscriber.sql("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "0", "the copies do not end")
    publisher.sql("BEGIN; UPDATE c SET n = n + 1; UPDATE c SET id = id + 100; UPDATE c SET n = n + 1; COMMIT")
    publisher.wait_confirmed()
    assert subscriber.sql(all_rows("c")) == publisher.sql(all_rows("c"))
    subscriber.sql("DELETE FROM c WHERE id < 110")
    publisher.sql("BEGIN; UPDATE c SET big = 'short'; UPDATE c SET id = id + 100; UPDATE c SET n = n + 1; COMMIT")
    publisher.wait_confirmed()
    assert subscriber.sql("SELECT min(id), count(*) FROM c") == "210|51"


@pytest.mark.slow
def test_new_rows_are_inserted_whether_or_not_the_keys_of_tasks_are_apart(spare, publisher) -> None:
    tables = """CREATE TABLE one (id int8 PRIMARY KEY, v text); CREATE TABLE two (at timestamptz PRIMARY KEY, v text);
    CREATE TABLE halves (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF halves FOR VALUES FROM (0) TO (3000);
    CREATE TABLE high PARTITION OF halves FOR VALUES FROM (3000) TO (100000)"""
    subscriber = spare(small_batch_rows="1000")
    publisher.sql(f"{tables}; CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = true)")
    subscriber.sql(tables)
    subscriber.sql(publisher.subscription())
    until(lambda: subscriber.sql("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "0", "the copies do not end")
    for order in ("id", "id", "md5(id::text)", "id"):
        publisher.sql(f"""BEGIN; CREATE TEMP TABLE ids ON COMMIT DROP AS SELECT (SELECT count(*) FROM one) + i AS id FROM generate_series(1, 20000) i;
        INSERT INTO one SELECT id, 'row ' || id FROM ids ORDER BY {order};
        INSERT INTO two SELECT to_timestamp(id), 'row ' || id FROM ids ORDER BY {order};
        INSERT INTO halves SELECT id, 'row ' || id FROM ids ORDER BY {order}; COMMIT""")
        publisher.wait_confirmed()
        for table in ("one", "two", "halves", "low"):
            assert subscriber.sql(all_rows(table)) == publisher.sql(all_rows(table))
    spark = json.loads(subscriber.server.headgate("status", "--json").stdout)["spark"]
    assert (spark["driver_changes"], spark["spark_changes"]) == (0, 240_000)


@pytest.mark.slow
def test_new_row_with_the_key_of_a_local_row_stops_the_worker(spare, publisher) -> None:
    subscriber = spare(small_batch_rows="1000")
    publisher.sql("CREATE TABLE one (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR ALL TABLES")
    subscriber.sql("CREATE TABLE one (id int PRIMARY KEY, v text)")
    subscriber.sql(publisher.subscription())
    until(lambda: subscriber.sql("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == "0", "the copies do not end")
    subscriber.sql("INSERT INTO one VALUES (1500, 'local')")
    publisher.sql("INSERT INTO one SELECT i, 'row ' || i FROM generate_series(1, 3000) i")
    until(lambda: "Key (id)=(1500) already exists." in subscriber.server.log(), "the worker does not fail")
    assert subscriber.sql("SELECT count(*) FROM one") == "1"
    subscriber.sql("DELETE FROM one")
    publisher.wait_confirmed()
    assert subscriber.sql(all_rows("one")) == publisher.sql(all_rows("one"))
