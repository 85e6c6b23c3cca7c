"""Each reader in docs/readers.md reads a node's tables as SELECT does, or rejects them as the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from tests.conftest import Server
from tests.system.chain import Database, arrived, subscribe
from tests.system.reader import plain

from headgate.cli.tables import statements

pytestmark = pytest.mark.on_disk  # the readers have no credentials for an object store
LOCK = Path(__file__).parents[2] / "requirements-readers.txt"
SCENE = """
CREATE TABLE t (id bigint PRIMARY KEY, price numeric(12,2), digits numeric, at timestamp, atz timestamptz, d date, tags text[], nums int[],
    u uuid, j jsonb, b bytea, ok boolean, f float8, name text);
INSERT INTO t SELECT i, i * 1.25, i, timestamp '2024-01-01' + i * interval '1 hour', timestamptz '2024-01-01 00:00+00' + i * interval '1 hour',
    date '2024-01-01' + i::int, ARRAY['a', NULL, 'c' || i], ARRAY[i::int, 2], md5(i::text)::uuid, '{"k": [1, 2]}', '\\x00ff', i % 2 = 0, i / 4.0,
    'row ' || i FROM generate_series(1, 1000) i;
UPDATE t SET name = 'changed', price = -1 WHERE id % 10 = 0;
DELETE FROM t WHERE id % 7 = 0;
ALTER TABLE t ADD COLUMN extra int;
UPDATE t SET extra = id WHERE id < 50;
CREATE TABLE mapped (id bigint PRIMARY KEY, a text, b text);
INSERT INTO mapped SELECT i, 'x', 'y' FROM generate_series(1, 100) i;
ALTER TABLE mapped DROP COLUMN a;
ALTER TABLE mapped RENAME COLUMN b TO c;
UPDATE mapped SET c = 'z' WHERE id = 3;
CREATE TABLE plain (id bigint PRIMARY KEY, price numeric(12,2), atz timestamptz, name text) WITH (deletion_vectors = off, column_mapping = off);
INSERT INTO plain SELECT i, i * 1.25, timestamptz '2024-01-01 00:00+00' + i * interval '1 hour', 'row ' || i FROM generate_series(1, 1000) i;
UPDATE plain SET name = 'changed' WHERE id % 10 = 0;
DELETE FROM plain WHERE id % 7 = 0;
CREATE TABLE lists (id bigint PRIMARY KEY, i int[], n numeric(12,2)[], t text[], d date[]) WITH (array_storage = array);
INSERT INTO lists SELECT i, ARRAY[i::int, NULL], ARRAY[i * 1.25], ARRAY['a b', NULL, '', 'NULL'], '{}' FROM generate_series(1, 3000) i;
UPDATE lists SET i = NULL, t = '{changed}', d = '{2024-02-29}' WHERE id % 10 = 0;
DELETE FROM lists WHERE id % 7 = 0;
"""
SELECT = {
    "t": "SELECT id, price, digits::text, at, atz, d, tags::text, nums::text, u::text, j::text, b, ok, f, name, extra FROM t ORDER BY id",
    "mapped": "SELECT id, c FROM mapped ORDER BY id",
    "plain": "SELECT id, price, atz, name FROM plain ORDER BY id",
    "lists": "SELECT id, i, n, t, d FROM lists ORDER BY id",
}
REFUSED = {
    "query_builder": {}, "duckdb": {}, "polars": {"mapped"}, "to_arrow": {"t", "mapped", "lists"}, "to_pandas": {"t", "mapped", "lists"},
}  # fmt: skip
"""The tables that a reader rejects."""
OPEN = """INSERT INTO t (id) SELECT generate_series(5000, 25000); UPDATE t SET name = 'open' WHERE id < 100; DELETE FROM t WHERE id > 900;
    ALTER TABLE mapped ADD COLUMN late int; UPDATE mapped SET c = 'open'; UPDATE plain SET name = 'open' WHERE id < 100; DELETE FROM plain WHERE id > 900"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the readers."""
    folder = tmp_path_factory.mktemp("readers")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, env=environment)
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK]
    subprocess.run(install, check=True, env=environment)
    return folder / "bin" / "python"


def read(python: Path, reader: str, path: str, version: int | str) -> list[dict[str, Any]] | str:
    """Return the rows that a reader returns, or the name of its error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, Path(__file__).with_name("reader.py"), reader, path, str(version)]
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert completed.returncode == 0, completed.stderr[-1000:]
    answer = json.loads(completed.stdout.splitlines()[-1])
    return sorted(answer["rows"], key=lambda row: row.get("id") or 0) if "rows" in answer else str(answer["refused"])


def selected(connection: psycopg.Connection[Any], table: str) -> list[dict[str, Any]]:
    cursor = connection.execute(SELECT[table])
    names = [column.name for column in cursor.description or ()]
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in cursor]


REAL = (Path(__file__).parent / "real_database.sql").read_text()
TABLES = """SELECT s.schema, s.name, s.path, s.version, array_agg(a.attname::text ORDER BY a.attnum),
    array_agg(format_type(a.atttypid, NULL) ORDER BY a.attnum) FROM headgate.snapshot() s JOIN pg_attribute a
    ON a.attrelid = s.oid AND a.attnum > 0 AND NOT a.attisdropped GROUP BY 1, 2, 3, 4 ORDER BY 1, 2"""
OTHER_FORMS = ("timestamp", "date", "bytea", "boolean", "double", "real", "[]")
"""Types that readers print in different ways. Only their NULLs are compared here."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_real_database_is_read_at_one_lsn_by_every_reader(own_node: Callable[..., Server], postgres: Server, python: Path) -> None:
    node = own_node(array_storage="array")
    publisher, lake = Database.new(postgres), Database.new(node)
    postgres.psql(publisher.name, REAL)
    subscribe(lake, publisher, "s", "everything", "create_tables = true")
    publisher.sql("UPDATE public.customers SET tags = '{}', seen = NULL WHERE id % 3 = 0")
    arrived(publisher, "s")
    with closing(psycopg.connect(node.conninfo(lake.name))) as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TimeZone = 'UTC'")
        tables = session.execute(TABLES).fetchall()
        assert len(tables) >= 25
        publisher.sql("UPDATE public.customers SET tags = '{late}'; DELETE FROM sales.order_lines")
        arrived(publisher, "s")
        for schema, name, path, version, columns, types in tables:
            listed = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column_name)) for column_name in columns)
            selected_rows = session.execute(sql.SQL("SELECT {} FROM ONLY {}").format(listed, sql.Identifier(schema, name))).fetchall()
            for engine in ("query_builder", "duckdb", "polars"):
                result = read(python, engine, path, version)
                if engine == "polars" and any(set(" ,;{}()=") & set(column) for column in columns):
                    assert result == "DeltaProtocolError"  # it does not support column mapping
                    continue
                assert not isinstance(result, str), (engine, schema, name, result)
                for place, (column, kind) in enumerate(zip(columns, types, strict=True)):
                    values = Counter(None if row[column] is None else str(row[column]) for row in result)
                    expected = Counter(row[place] for row in selected_rows)
                    same = (
                        values[None] == expected[None]
                        if kind == "character" or any(word in kind for word in OTHER_FORMS)
                        else values == expected
                    )
                    assert same, (engine, schema, name, column)
        session.rollback()
    lake.unsubscribe()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_reader_sees_what_select_sees(node: Server, spark: SparkSession, python: Path) -> None:
    database = node.new_database()
    node.psql(database, SCENE)
    with closing(psycopg.connect(node.conninfo(database))) as writer, closing(psycopg.connect(node.conninfo(database))) as reader:
        writer.execute(OPEN)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TimeZone = 'UTC'")
        tables = {row[1]: (row[3], row[4]) for row in reader.execute("SELECT * FROM headgate.snapshot()")}
        expected = {table: selected(reader, table) for table in SELECT}
        assert len(expected["t"]) == len(expected["plain"]) == 858
        _compare(python, tables, expected, newest=True)
        _compare_spark(spark, tables, expected)
        writer.commit()
        _compare(python, tables, expected, newest=False)
        reader.rollback()
    folder = {table: path for table, (path, _) in tables.items()}
    versions_before = {table: _versions(path) for table, path in folder.items()}
    _register(spark, database, folder)
    assert {table: _versions(path) for table, path in folder.items()} == versions_before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_delta_rs_reads_the_change_feed_of_a_table_without_column_mapping(node: Server, python: Path) -> None:
    database = node.new_database()
    node.psql(database, SCENE)
    with closing(psycopg.connect(node.conninfo(database))) as session:
        tables = {row[1]: (row[3], row[4]) for row in session.execute("SELECT * FROM headgate.snapshot()")}
        expected = selected(session, "plain")
    changes = read(python, "load_cdf", *tables["plain"])
    assert not isinstance(changes, str)
    net: Counter[str] = Counter()
    for change in changes:
        row = json.dumps({name: value for name, value in change.items() if not name.startswith("_")})
        net[row] += 1 if change["_change_type"] in ("insert", "update_postimage") else -1
    assert sorted(+net) == sorted(json.dumps(row) for row in expected)
    assert not -net
    assert read(python, "load_cdf", *tables["mapped"]) == "DeltaError"


def _compare(python: Path, named: dict[str, tuple[str, int]], expected: dict[str, Any], *, newest: bool) -> None:
    for reader, refused in REFUSED.items():
        for table, (path, version) in named.items():
            result = read(python, reader, path, "newest" if newest else version)
            if table in refused:
                assert result == "DeltaProtocolError", (reader, table)
            else:
                assert result == expected[table], (reader, table)


def _compare_spark(spark: SparkSession, named: dict[str, tuple[str, int]], expected: dict[str, Any]) -> None:
    for table, (path, version) in named.items():
        for frame in (spark.read.format("delta"), spark.read.format("delta").option("versionAsOf", version)):
            rows = frame.load(path).orderBy("id").toArrow().to_pylist()
            assert [{name: plain(value) for name, value in row.items()} for row in rows] == expected[table]


def _versions(path: str) -> int:
    return len(list((Path(path) / "_delta_log").glob("*.json")))


def _register(spark: SparkSession, database: str, folder: dict[str, str]) -> None:
    """Run the output of `headgate tables --sql`. It registers the tables by name, and writes nothing to them."""
    run_sql: Callable[[str], Any] = spark.sql
    try:
        for text in statements([(database, "public", table, path) for table, path in folder.items()]):
            run_sql(text.rstrip(";"))
        for table, path in folder.items():
            assert spark.table(f"{database}_public.{table}").count() == spark.read.format("delta").load(path).count()
    finally:
        run_sql(f"DROP SCHEMA IF EXISTS {database}_public CASCADE")
