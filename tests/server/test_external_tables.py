"""CREATE TABLE … WITH (location = …): an existing Delta table becomes a table of the node, and keeps its location."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.conftest import Server, until
from tests.lake import COLUMNS, ROWS, Lake, create
from tests.publisher import slots
from tests.session import Session


@pytest.fixture
def lake(node: Server, spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(node, spark, tmp_path)


@pytest.fixture
def session(node: Server) -> Iterator[Session]:
    opened = Session(node.conninfo(node.new_database()))
    yield opened
    opened.close()


def fails(session: Session, script: str, sqlstate: str) -> str:
    """Run a script that fails with this SQLSTATE. Return the message."""
    with pytest.raises(psycopg.Error) as failure:
        session.sql(script)
    assert failure.value.sqlstate == sqlstate, (script, failure.value)
    return str(failure.value)


@pytest.fixture
def copied(session: Session, tmp_path: Path) -> Path:
    """Create a Delta table with the rows 1:x and 2:y, without Spark."""
    session.sql(f"CREATE TABLE original {COLUMNS}; INSERT INTO original VALUES (1, 'x'), (2, 'y')")
    path = session.sql("SELECT path FROM headgate.snapshot() WHERE name = 'original'")
    return Path(shutil.copytree(path, tmp_path / "lake" / "t"))


@pytest.mark.on_disk
def test_existing_table_is_read_and_written_where_it_is(session: Session, copied: Path) -> None:
    files = {file.name for file in copied.glob("*.parquet")}
    session.sql(create(copied))
    assert session.sql(ROWS + "t") == "1:x 2:y"
    session.sql("UPDATE t SET b = 'z' WHERE a = 2; INSERT INTO t VALUES (3, 'new')")
    assert session.sql(ROWS + "t") == "1:x 2:z 3:new"
    assert session.sql("SELECT path FROM headgate.snapshot() WHERE name = 't'") == str(copied)
    assert files < {file.name for file in copied.glob("*.parquet")}


@pytest.mark.on_disk
@pytest.mark.on_disk
def test_rows_of_an_external_partition_are_changed_and_moved(session: Session, copied: Path) -> None:
    session.sql(create(copied))
    session.sql("CREATE TABLE p (a int NOT NULL, b text) PARTITION BY LIST (a); CREATE TABLE o PARTITION OF p FOR VALUES IN (3, 4)")
    session.sql("ALTER TABLE p ATTACH PARTITION t FOR VALUES IN (1, 2)")
    session.sql("UPDATE p SET b = b || tableoid::regclass; UPDATE p SET a = 3 WHERE a = 1")
    assert (session.sql(ROWS + "t"), session.sql(ROWS + "o")) == ("2:yt", "3:xt")
    session.sql("SET headgate.small_write_rows = 0; UPDATE p SET a = a + 1")  # by Spark
    assert (session.sql(ROWS + "t"), session.sql(ROWS + "o")) == ("", "3:yt 4:xt")
    session.sql("INSERT INTO p VALUES (1, 'z'); DELETE FROM p")
    assert session.sql("SELECT count(*) FROM p") == "0"


def test_dropped_table_leaves_its_files_and_can_be_created_again(session: Session, copied: Path) -> None:
    session.sql(f"{create(copied)}; DELETE FROM t WHERE a = 1; DROP TABLE t")
    assert not (copied / "_headgate").exists()
    session.sql(create(copied))
    assert session.sql(ROWS + "t") == "2:y"


@pytest.mark.on_disk
def test_rolled_back_creation_leaves_the_table_as_it_was(session: Session, copied: Path) -> None:
    before = sorted(str(file) for file in copied.rglob("*"))
    session.sql(f"BEGIN; {create(copied)}; INSERT INTO t VALUES (3, 'no'); UPDATE t SET b = 'no'; ROLLBACK")
    assert sorted(str(file) for file in copied.rglob("*")) == before
    session.sql(f"BEGIN; SAVEPOINT s; {create(copied)}; ROLLBACK TO s; {create(copied)}; COMMIT")
    assert session.sql(ROWS + "t") == "1:x 2:y"


@pytest.mark.on_disk
def test_location_that_is_not_a_free_table_is_rejected(session: Session, copied: Path, tmp_path: Path) -> None:
    own = session.sql("SELECT path FROM headgate.snapshot() WHERE name = 'original'")
    (tmp_path / "link").symlink_to(copied)
    separated = Path(shutil.copytree(copied, tmp_path / "line\u2028separator"))
    inner = Path(shutil.copytree(copied, copied / "inner"))
    shutil.copytree(copied / "_delta_log", tmp_path / "logless" / "log")
    for location, sqlstate in (
        (tmp_path / "nothing", "58P01"), (tmp_path / "logless", "58P01"), (tmp_path / "link", "22023"), (inner, "22023"),
        (f"{copied}/", "22023"), (f"{copied}/../t", "22023"), ("lake/t", "22023"), (f"file://{copied}", "22023"), ("s3a://b/t", "22023"),
        ("", "22023"), (separated, "22023"), (own, "55006"), (Path(own).parents[1], "58P01"),
    ):  # fmt: skip
        fails(session, create(location), sqlstate)
    shutil.rmtree(inner)
    session.sql(create(copied))
    fails(session, create(copied, "u"), "55006")
    fails(session, "ALTER TABLE t SET (location = '/tmp')", "0A000")
    fails(session, "ALTER TABLE t RESET (location)", "0A000")


@pytest.mark.on_disk
def test_second_session_cannot_take_a_location_that_an_open_transaction_has(session: Session, copied: Path) -> None:
    session.sql(f"BEGIN; {create(copied)}")
    with contextlib.closing(Session(session.conninfo)) as second_session:
        fails(second_session, create(copied, "u"), "55006")
        session.sql("ROLLBACK")
        second_session.sql(create(copied, "u"))
        assert second_session.sql(ROWS + "u") == "1:x 2:y"


@pytest.mark.on_disk
def test_first_column_that_differs_is_named(session: Session, copied: Path) -> None:
    for columns, sqlstate, text in (
        ("(a int, b text, c text)", "42703", 'column "c" does not exist in the Delta table'),
        ("(a bigint, b text)", "42804", 'column "a" has another type in the Delta table'),
        ("(a int)", "42804", 'column "b" of the Delta table is not declared'),
        ("(a int, b jsonb)", "0A000", 'column "b" of an existing Delta table cannot have type jsonb'),
        ("(a int, b varchar(3))", "0A000", 'column "b" of an existing Delta table cannot have type character varying(3)'),
        ("(a int, b text CHECK (b <> 'y'))", "23514", 'check constraint "t_b_check" of relation "t" is violated by some row'),
    ):
        assert text in fails(session, create(copied, columns=columns), sqlstate)
    session.sql("UPDATE original SET b = 'x'")
    session.sql(create(copied, columns="(b text UNIQUE, a int)"))
    fails(session, "INSERT INTO t VALUES ('x', 3)", "23505")


@pytest.mark.on_disk
def test_only_members_of_both_file_roles_may_name_a_location(session: Session, copied: Path) -> None:
    role = f"r{uuid.uuid4().hex[:8]}"
    session.sql(f"CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO {role}; GRANT pg_read_server_files TO {role}")
    assert "pg_write_server_files" in fails(session, f"SET ROLE {role}; {create(copied)}", "42501")
    session.sql(f"RESET ROLE; GRANT pg_write_server_files TO {role}; SET ROLE {role}; {create(copied)}; RESET ROLE")
    assert session.sql("SELECT tableowner FROM pg_tables WHERE tablename = 't'") == role


EVERY_TYPE = "a int, s smallint, l bigint, f float, d double, n decimal(10,2), t string, b boolean, x binary, day date, at timestamp, bare timestamp_ntz"
"""Spark's types of the columns that an existing table can have."""
AS_DECLARED = (
    "(a int PRIMARY KEY, s smallint, l bigint, f real, d double precision, n numeric(10, 2) NOT NULL, t varchar, b boolean, x bytea,"
    " day date, at timestamptz, bare timestamp)"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_table_of_spark_is_continued_by_the_node_and_by_spark(session: Session, lake: Lake) -> None:
    values = [f"({n}, {n}S, {n}L, 1.5F, 2.5D, {n}.25BD, 'text', true, X'00FF', DATE'2024-01-0{n}', TIMESTAMP'2024-01-01 10:00:00.123456Z',"
              f" TIMESTAMP_NTZ'1582-01-01 00:00:00')" for n in (1, 2, 3)]  # fmt: skip
    names = ", ".join(field.split()[0] for field in EVERY_TYPE.split(", "))
    frame = lake.spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS v({names})").coalesce(1)
    location = lake.written("t", frame.to(StructType.fromDDL(EVERY_TYPE)))
    session.sql(create(location, columns=AS_DECLARED))
    session.sql("SET TimeZone = 'UTC'")
    row = "1|1|1|1.5|2.5|1.25|text|t|\\x00ff|2024-01-01|2024-01-01 10:00:00.123456+00|1582-01-01 00:00:00"
    assert session.sql("SELECT * FROM t WHERE a = 1") == row
    session.sql(
        "UPDATE t SET n = 7, at = at + '1 day' WHERE a = 2; DELETE FROM t WHERE a = 3; INSERT INTO t SELECT 4, s, l, f, d, n FROM t WHERE a = 1"
    )
    assert [row[0] for row in lake.rows(location)] == [1, 2, 4]
    assert session.sql("SELECT n, at FROM t WHERE a = 2") == "7.00|2024-01-02 10:00:00.123456+00"
    DeltaTable.forPath(lake.spark, location).delete("a = 1")
    until(
        lambda: session.sql("SELECT string_agg(a::text, ' ' ORDER BY a) FROM t") == "2 4", "the other writer's version is not adopted", 150
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_table_with_features_that_the_node_does_not_have_is_rejected(session: Session, lake: Lake) -> None:
    rows = lake.spark.createDataFrame([(1, "x")], "a int, b string")
    rows.write.format("delta").partitionBy("b").save(f"{lake.folder}/partitioned")
    assert "partition columns" in fails(session, create(f"{lake.folder}/partitioned"), "0A000")
    for name, properties, text in (
        ("only", {"delta.appendOnly": "true"}, "the property delta.appendOnly"),
        ("tracked", {"delta.enableRowTracking": "true"}, "rowTracking"),
        ("by_id", {"delta.columnMapping.mode": "id"}, "column mapping by id"),
    ):
        location = lake.written(name, rows, **properties)
        assert text in fails(session, create(location), "0A000")
    checked = lake.table("checked", [(1, "x")])
    lake.spark.sql(f"ALTER TABLE delta.`{checked}` ADD CONSTRAINT low CHECK (a < 10)")
    assert "delta.constraints.low" in fails(session, create(checked), "0A000")
    null = lake.table("null", [(1, None)])
    assert "contains null values" in fails(session, create(null, columns="(a int, b text NOT NULL)"), "23502")
    double = lake.table("double", [(1, "x"), (1, "y")])
    assert "could not create unique index" in fails(session, create(double), "23505")
    session.sql(create(double, columns="(a int, b text)"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_later_changes_are_published_and_existing_rows_are_copied(session: Session, lake: Lake, node: Server) -> None:
    session.sql("CREATE PUBLICATION p FOR ALL TABLES")
    database = session.sql("SELECT current_database()")
    slot = slots.make(node, database, "s")
    location = lake.table("t", [(1, "x"), (2, "y")], **{"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "name"})
    session.sql(create(location))
    session.sql("UPDATE t SET b = 'z' WHERE a = 2; BEGIN; INSERT INTO t VALUES (3, 'q'); DELETE FROM t WHERE a = 1; COMMIT")
    changes = [message for message in slots.messages(node, database, slot) if message.startswith(("Insert", "Update", "Delete"))]
    assert changes == ["Update t (2, z)", "Insert t (3, q)", "Delete t (1, null)"]
    assert lake.rows(location) == [(2, "z"), (3, "q")]
