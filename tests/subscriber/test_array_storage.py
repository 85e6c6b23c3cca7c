"""Arrays of tables WITH (array_storage = array) are PostgreSQL's arrays in subscriptions and sessions, and lists in the Delta files."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import unquote

import psycopg
import pyarrow.parquet as pq
import pytest
from tests.place import Surroundings
from tests.subscriber.conftest import READY

from headgate.storage.delta import delta_log
from headgate.storage.location import data_location
from headgate.storage.location.data_location import DataPath

COLUMNS = """id int PRIMARY KEY, b boolean[], i int[], n numeric(8,2)[], f float8[], t text[], d date[], z timestamptz[], y bytea[], u uuid[],
    j jsonb[], v varchar(5)[]"""
ROW = """'{t,f,NULL}', ARRAY[1, i, NULL], ARRAY[1.5, NULL], '{NaN,-0,1e-10}', ARRAY['a b', 'NULL', NULL, '', 'q"\\', 'é' || i],
    '{2024-02-29,infinity,"0044-03-15 BC"}', '{"2024-01-01 00:00:00+00"}', '{"\\\\x00ff"}', ARRAY[md5(i::text)::uuid], ARRAY['{"k": [1]}'::jsonb],
    '{abc,""}'"""
SHOWN = "SELECT r::text FROM t r ORDER BY id"


def lists(path: DataPath) -> list[list[int | None] | None]:
    """Return column i of the files that the newest version names, including deleted rows."""
    newest = delta_log.newest_version(path)
    assert newest is not None
    metadata, _, files = delta_log.read_state(path, newest)
    kinds = {field["name"]: field["type"] for field in json.loads(metadata["schemaString"])["fields"]}
    assert kinds["i"] == {"type": "array", "elementType": "integer", "containsNull": True}
    assert kinds["n"]["elementType"] == "decimal(8,2)"
    return [row for name in files for row in pq.read_table(data_location.local(path / unquote(name))).column("i").to_pylist()]


@pytest.fixture
def place(subscriber, surroundings: Surroundings) -> Callable[..., DataPath]:
    """Return the folder of a table."""
    return lambda table="t": surroundings.path(subscriber.sql(f"SELECT path FROM headgate.snapshot() WHERE name = '{table}'"))


@pytest.mark.parametrize("count", [20, pytest.param(3_000, marks=pytest.mark.slow)])
def test_subscribed_table_with_list_storage_equals_its_publisher(publisher, subscriber, place, count: int) -> None:
    publisher.sql(
        f"CREATE TABLE t ({COLUMNS}); INSERT INTO t SELECT i, {ROW} FROM generate_series(1, {count}) i; CREATE PUBLICATION p FOR TABLE t"
    )
    publisher.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    subscriber.sql(f"CREATE TABLE t ({COLUMNS}) WITH (array_storage = array)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    assert subscriber.rows(SHOWN) == publisher.rows(SHOWN)
    publisher.sql("UPDATE t SET i = i || 7, t = NULL WHERE id % 10 = 0; DELETE FROM t WHERE id % 7 = 0; UPDATE t SET id = -id WHERE id = 3")
    publisher.sql(
        f"INSERT INTO t SELECT i, {ROW} FROM generate_series(10001, 10003) i; INSERT INTO t (id, i, t) VALUES (0, '{{}}', '{{NULL}}')"
    )
    publisher.wait_confirmed()
    assert subscriber.rows(SHOWN) == publisher.rows(SHOWN)
    assert [1, 10, None, 7] in lists(place())
    query = "SELECT id, i[2], t[1], cardinality(n), 7 = ANY (i), i @> '{7}', unnest(v) FROM t WHERE i && '{7}' OR n IS NULL ORDER BY 1, 7"
    assert subscriber.rows(query) == publisher.rows(query)
    subscriber.sql("ALTER SUBSCRIPTION s DISABLE")
    for side in (publisher, subscriber):
        side.sql("UPDATE t SET i = array_append(i, 8), d = d[1:1] WHERE id BETWEEN 11 AND 15; DELETE FROM t WHERE i[4] = 7")
    assert subscriber.rows(SHOWN) == publisher.rows(SHOWN)


def test_node_publishes_lists_as_postgresql_publishes_arrays(publisher, subscriber) -> None:
    subscriber.sql(f"CREATE TABLE t ({COLUMNS}) WITH (array_storage = array); CREATE PUBLICATION q FOR TABLE t WHERE (id > 0)")
    subscriber.sql(f"INSERT INTO t SELECT i, {ROW} FROM generate_series(-5, 50) i")
    publisher.sql(f"CREATE TABLE t ({COLUMNS})")
    publisher.sql(f"CREATE SUBSCRIPTION back CONNECTION '{subscriber.conninfo}' PUBLICATION q WITH (slot_name = '{subscriber.name}_back')")
    try:
        publisher.wait("SELECT count(*) FROM t", "50")
        subscriber.sql("UPDATE t SET i = '{9}' WHERE id = 7; DELETE FROM t WHERE id = 8; UPDATE t SET id = 100 WHERE id = -1")
        publisher.wait("SELECT count(*) FROM t WHERE id = 100", "1")
        assert publisher.rows(SHOWN) == subscriber.rows("SELECT r::text FROM t r WHERE id > 0 ORDER BY id")
    finally:
        publisher.sql("DROP SUBSCRIPTION back")


@pytest.mark.slow
def test_array_that_is_not_a_list_is_rejected_with_its_column(publisher, subscriber) -> None:
    definition = "CREATE TABLE t (id int PRIMARY KEY, i int[])"
    publisher.sql(f"{definition}; CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(f"{definition} WITH (array_storage = array); CREATE TABLE copied (id int, i int[])")
    for wrong in ("{{1,2},{3,4}}", "[0:1]={1,2}"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match='column "i" holds Delta arrays') as refused:
            subscriber.sql(f"INSERT INTO t VALUES (1, '{{1}}'), (2, '{wrong}')")
        assert (
            refused.value.diag.message_hint
            == "Store the column as text: ALTER TABLE … SET (array_storage = text), then ALTER COLUMN … TYPE with its type again."
        )
        with pytest.raises(psycopg.errors.FeatureNotSupported, match='column "i" holds Delta arrays'):
            subscriber.sql(
                f"INSERT INTO t SELECT g, CASE g WHEN 15000 THEN '{wrong}'::int[] ELSE ARRAY[g] END FROM generate_series(1, 20000) g"
            )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match='column "i" holds Delta arrays'):
        subscriber.sql("BEGIN; INSERT INTO t VALUES (1, '{1}'); SAVEPOINT s; INSERT INTO t VALUES (2, '{{2}}')")
    subscriber.sql("ROLLBACK TO s; INSERT INTO t VALUES (3, '{3}'); COMMIT")
    assert subscriber.sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM t") == "1 3"
    subscriber.sql("DELETE FROM t")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql("INSERT INTO t VALUES (1, '{{1,2},{3,4}}')")
    subscriber.wait("SELECT apply_error_count > 0 FROM pg_stat_subscription_stats WHERE subname = 's'", "t")
    assert subscriber.log.error('column "i" holds Delta arrays')
    subscriber.sql("ALTER TABLE t SET (array_storage = text); ALTER TABLE t ALTER COLUMN i TYPE int[] USING i")
    subscriber.wait("SELECT i::text FROM t", "{{1,2},{3,4}}")


@pytest.mark.slow
def test_column_keeps_the_array_storage_of_its_creation(subscriber) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        subscriber.sql("CREATE TABLE t (i int[]) WITH (array_storage = json)")
    assert refused.value.diag.message_detail == 'Valid values are "text" and "array".'
    subscriber.sql(
        "CREATE TABLE t (id int PRIMARY KEY, i int[], n numeric(8,2)[]) WITH (array_storage = array); INSERT INTO t VALUES (1, '{1}', '{2}')"
    )
    subscriber.sql("ALTER TABLE t RESET (array_storage); ALTER TABLE t ADD COLUMN k int[] DEFAULT '{{1},{2}}'")
    subscriber.sql("ALTER TABLE t RENAME n TO price; UPDATE t SET price = price || 2.5, i = i || 2")
    assert subscriber.sql("SELECT * FROM t") == "1|{1,2}|{2.00,2.50}|{{1},{2}}"
    subscriber.sql("ALTER TABLE t ALTER COLUMN i TYPE bigint[]; UPDATE t SET i = '[0:0]={1}'")
    subscriber.sql("BEGIN; TRUNCATE t; INSERT INTO t VALUES (2, NULL, '{3}', NULL); SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; COMMIT")
    assert subscriber.sql("SELECT * FROM t") == "2||{3.00}|"


@pytest.mark.slow
def test_rows_are_found_by_keys_that_are_lists(publisher, subscriber) -> None:
    definition = "CREATE TABLE t (k text[] PRIMARY KEY, n int[])"
    publisher.sql(
        f"{definition}; INSERT INTO t SELECT ARRAY['a', i::text, NULL, 'x y'], ARRAY[i] FROM generate_series(1, 3000) i; CREATE PUBLICATION p FOR TABLE t"
    )
    subscriber.sql(f"{definition} WITH (array_storage = array)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    publisher.sql("UPDATE t SET n = NULL WHERE k[2] = '7'; DELETE FROM t WHERE k[2]::int > 10")
    publisher.wait_confirmed()
    query = "SELECT k, n FROM t ORDER BY k"
    assert subscriber.rows(query) == publisher.rows(query)
    with pytest.raises(psycopg.errors.UniqueViolation):
        subscriber.sql("INSERT INTO t VALUES ('{a,7,NULL,\"x y\"}', NULL)")


@pytest.mark.slow
def test_column_declared_with_several_dimensions_is_stored_as_text(publisher, subscriber, place) -> None:
    subscriber.sql("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    publisher.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t (id int PRIMARY KEY, i int[], m int[][], e mood[][], n numeric(4,1)[3][3])"
    )
    publisher.sql("INSERT INTO t VALUES (1, '{1}', '{{1,2},{3,4}}', '{{sad},{ok}}', '{{1},{2}}'); CREATE PUBLICATION p FOR TABLE t")
    subscriber.sql(
        "CREATE TABLE o (id int PRIMARY KEY, i int[], m int[][]) WITH (array_storage = array); INSERT INTO o VALUES (1, '{1}', '{{2}}')"
    )
    subscriber.sql(publisher.subscription("create_tables = true"))
    subscriber.wait(READY, "t")
    assert subscriber.rows(SHOWN) == publisher.rows(SHOWN)
    declared = "SELECT string_agg(attndims::text, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnum > 0"
    assert subscriber.sql(declared.format("t")) == publisher.sql(declared.format("t")) == "0 1 2 2 2"
    newest = delta_log.newest_version(place("o"))
    fields = json.loads(delta_log.read_state(place("o"), newest)[0]["schemaString"])["fields"]
    assert [field["type"] if isinstance(field["type"], str) else field["type"]["elementType"] for field in fields] == [
        "integer",
        "integer",
        "string",
    ]
    subscriber.sql("ALTER TABLE o ALTER COLUMN m TYPE int[] USING m[1:1][1:1][1]; DELETE FROM o; INSERT INTO o VALUES (2, '{2}', '{3}')")
    assert subscriber.sql(declared.format("o")) == "0 1 1"
