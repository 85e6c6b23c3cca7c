"""A node adopts and publishes the versions that another Spark job writes into its table."""

from __future__ import annotations

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from tests.conftest import Server, SqlError
from tests.publisher import slots
from tests.system.chain import Database

ROWS = "SELECT string_agg(a || ':' || b, ' ' ORDER BY a) FROM t"


class Table:
    """A published table of the node, and the Delta table that the other Spark job uses."""

    def __init__(self, node: Server, spark: SparkSession) -> None:
        self.node, self.database = node, node.new_database()
        node.psql(self.database, "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t;")
        node.psql(self.database, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        self.slot = slots.make(node, self.database, "s")
        self.path = node.psql(self.database, "SELECT path FROM headgate.snapshot() WHERE name = 't'")
        self.spark = spark.newSession()

    def delta(self) -> DeltaTable:
        """Return the Delta table."""
        return DeltaTable.forPath(self.spark, self.path)

    def append(self, *rows: tuple[int, str]) -> None:
        """Add rows."""
        self.spark.createDataFrame(list(rows), "a int, b string").write.format("delta").mode("append").save(self.path)

    def seen(self, rows: str) -> None:
        """Wait until the node shows these rows."""
        Database(self.node, self.database).wait(ROWS, rows)

    def version(self) -> int:
        """Return the newest version of the Delta table."""
        return int(self.delta().history(1).select("version").collect()[0][0])

    def published(self) -> list[str]:
        """Return the slot's new changes, without the messages around rows."""
        messages = slots.messages(self.node, self.database, self.slot)
        return [message for message in messages if not message.startswith(("Relation", "Begin", "Commit"))]


@pytest.fixture(scope="module")
def table(node: Server, spark: SparkSession) -> Table:
    return Table(node, spark)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_versions_of_another_job_are_published_as_separate_transactions(table: Table) -> None:
    table.append((3, "z"))
    table.seen("1:x 2:y 3:z")
    assert table.published() == ["Insert t (3, z)"]
    source = table.spark.createDataFrame([(2, "merged"), (4, "new")], "a int, b string").alias("s")
    merge = table.delta().alias("t").merge(source, "t.a = s.a")
    merge.whenMatchedUpdate(set={"b": "s.b"}).whenNotMatchedInsertAll().whenNotMatchedBySourceDelete("t.a = 3").execute()
    table.seen("1:x 2:merged 4:new")
    assert table.published() == ["Delete t (3, null)", "Update t (2, merged)", "Insert t (4, new)"]
    rows = table.spark.createDataFrame([(1, "x"), (2, "over")], "a int, b string")
    rows.write.format("delta").mode("overwrite").save(table.path)
    table.seen("1:x 2:over")
    assert table.published() == ["Delete t (4, null)", "Update t (2, over)"]


@pytest.mark.slow
def test_operations_that_change_no_row_publish_nothing_and_own_writes_continue(table: Table) -> None:
    rows_before, version = table.node.psql(table.database, ROWS), table.version()
    table.append((7, "seven"))
    table.delta().delete("a = 7")
    table.delta().optimize().executeCompaction()
    table.delta().restoreToVersion(version)
    table.node.psql(table.database, "INSERT INTO t VALUES (5, 'own')")
    table.seen(f"{rows_before} 5:own")
    assert table.published() == ["Insert t (7, seven)", "Delete t (7, null)", "Insert t (5, own)"]


@pytest.mark.slow
def test_deleting_a_row_of_a_file_without_statistics_keeps_the_other_rows(node: Server, spark: SparkSession) -> None:
    table = Table(node, spark)
    table.spark.conf.set("spark.databricks.delta.stats.collect", "false")
    rows = table.spark.createDataFrame([(number, "z") for number in range(3, 7)], "a int, b string").coalesce(1)
    rows.write.format("delta").mode("append").save(table.path)
    table.seen("1:x 2:y 3:z 4:z 5:z 6:z")
    node.psql(table.database, "DELETE FROM t WHERE a = 4; UPDATE t SET b = 'new' WHERE a = 5")
    assert node.psql(table.database, ROWS) == "1:x 2:y 3:z 5:new 6:z"
    node.psql(table.database, "DELETE FROM t WHERE a IN (3, 6)")
    assert node.psql(table.database, ROWS) == "1:x 2:y 5:new"
    assert table.delta().toDF().count() == 3


@pytest.mark.slow
def test_columns_added_by_another_writer_stop_the_table_until_they_are_removed(table: Table) -> None:
    rows_before = table.node.psql(table.database, ROWS)
    rows = table.spark.createDataFrame([(8, "w", 5)], "a int, b string, c int")
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(table.path)
    with pytest.raises(SqlError, match='was altered by another writer: column "c" was added'):
        table.node.psql(table.database, "INSERT INTO t VALUES (9, 'no')")
    assert table.node.psql(table.database, ROWS) == rows_before
    table.delta().restoreToVersion(table.version() - 1)
    table.node.psql(table.database, "INSERT INTO t VALUES (9, 'yes')")
    table.seen(f"{rows_before} 9:yes")
    assert table.published() == ["Insert t (9, yes)"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_arrays_written_by_another_job_are_published_as_by_postgresql(table: Table) -> None:
    table.node.psql(table.database, "CREATE TABLE a (id int PRIMARY KEY, n int[], t text[], z timestamptz[]) WITH (array_storage = array)")
    table.node.psql(table.database, "ALTER PUBLICATION p ADD TABLE a; INSERT INTO a VALUES (1, '{1,NULL}', '{\"a b\"}')")
    table.spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")  # Spark's default
    table.published()
    path = table.node.psql(table.database, "SELECT path FROM headgate.snapshot() WHERE name = 'a'")
    delta_table = DeltaTable.forPath(table.spark, path)
    rows = table.spark.createDataFrame([(2, [5, 6], [None, "x,y"])], "id int, n array<int>, t array<string>")
    rows = rows.selectExpr("*", "array(timestamp_seconds(0)) AS z")
    rows.write.format("delta").mode("append").save(path)
    delta_table.update("id = 1", {"n": "array_append(n, 9)"})
    Database(table.node, table.database).wait(
        "SELECT string_agg(id || n::text || t::text, ' ' ORDER BY id) FROM a", '1{1,NULL,9}{"a b"} 2{5,6}{NULL,"x,y"}'
    )
    assert table.published() == [
        'Insert a (2, {5,6}, {NULL,"x,y"}, {"1970-01-01 00:00:00+00"})',
        'Update a (1, {1,NULL,9}, {"a b"}, null)',
    ]
