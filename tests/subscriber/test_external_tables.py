"""An existing Delta table as the start of a subscription, and its state after a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.conftest import Server, until
from tests.lake import COLUMNS, ROWS, Lake, create
from tests.subscriber.conftest import READY, Publisher, Subscriber
from tests.subscriber.test_history import is_alive


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_reconcile_of_an_existing_table_writes_only_rows_that_differ(
    publisher: Publisher, subscriber: Subscriber, node: Server, spark: SparkSession, tmp_path: Path
) -> None:
    publisher.sql(
        f"CREATE TABLE t {COLUMNS}; INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 20000) n; CREATE PUBLICATION p FOR TABLE t"
    )
    lake = Lake(node, spark, tmp_path)
    stale = lake.spark.range(3, 20002).selectExpr("CAST(id AS int) AS a", "IF(id = 7, 'stale', concat('v', id)) AS b")
    location = lake.written("t", stale)
    subscriber.sql(create(location))
    subscriber.sql(publisher.subscription("copy_data = reconcile"))
    subscriber.wait(READY, "t")
    assert subscriber.sql("SELECT count(*), count(*) FILTER (WHERE b = 'v' || a), min(a), max(a) FROM t") == "20000|20000|1|20000"
    until(
        lambda: any("2 to insert" in entry.message or "rows to insert" in entry.message for entry in subscriber.log.entries()), "no report"
    )
    changes = lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(location)
    assert changes.where("_change_type <> 'update_preimage'").count() == 4
    publisher.sql("INSERT INTO t VALUES (0, 'streamed')")
    subscriber.wait("SELECT b FROM t WHERE a = 0", "streamed")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["staged before", "staged behind", "intent before", "intent behind", "version behind", "entry before"])
def test_node_that_is_killed_while_it_opens_a_table_has_it_or_gives_it_back(
    spare: Callable[..., Subscriber], spark: SparkSession, tmp_path: Path, fault: str
) -> None:
    subscriber = spare()
    node = subscriber.server
    lake = Lake(node, spark, tmp_path)
    location = lake.table("t", [(1, "x"), (2, "y")])
    conf = node.data / "headgate.conf"
    before = conf.read_text()
    conf.write_text(f"{before}headgate.failpoints = '{fault}=kill'\n")
    subscriber.sql("SELECT pg_reload_conf()")
    subscriber.wait("SHOW headgate.failpoints", f"{fault}=kill")
    pid = node.pid
    with pytest.raises(psycopg.Error):
        subscriber.sql(create(location))
    until(lambda: not is_alive(pid), "the node was not killed")
    conf.write_text(before)
    subscriber.session.close()
    node.start()
    if subscriber.sql("SELECT count(*) FROM pg_class WHERE relname = 't'") == "0":
        subscriber.sql(create(location))
    assert subscriber.sql(ROWS + "t") == "1:x 2:y"
    subscriber.sql("INSERT INTO t VALUES (3, 'z')")
    subscriber.stop()
    node.start()
    assert subscriber.sql(ROWS + "t") == "1:x 2:y 3:z"
    assert lake.rows(location) == [(1, "x"), (2, "y"), (3, "z")]
    subscriber.sql("DROP TABLE t")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["version behind", "entry before"])
def test_rows_of_a_creation_that_fails_half_way_are_undone(
    spare: Callable[..., Subscriber], spark: SparkSession, tmp_path: Path, fault: str
) -> None:
    subscriber = spare(**{"headgate.failpoints": f"'{fault}=error'"})
    lake = Lake(subscriber.server, spark, tmp_path)
    location = lake.table("t", [(1, "x")])
    for _ in range(2):
        subscriber.sql("BEGIN")
        subscriber.sql(f"{create(location)}; INSERT INTO t VALUES (2, 'no')")
        with pytest.raises(psycopg.Error):
            subscriber.sql("COMMIT")
        assert lake.rows(location) == [(1, "x")]
    subscriber.sql(f"BEGIN; {create(location)}; INSERT INTO t VALUES (2, 'yes'); COMMIT")
    assert lake.rows(location) == [(1, "x"), (2, "yes")]
    subscriber.sql("DROP TABLE t")


@pytest.mark.slow
@pytest.mark.on_disk
@pytest.mark.timeout(300)
def test_backup_contains_the_table(spare: Callable[..., Subscriber], spark: SparkSession, tmp_path: Path) -> None:
    subscriber = spare()
    lake = Lake(subscriber.server, spark, tmp_path)
    location = lake.table("t", [(1, "x"), (2, "y")])
    subscriber.sql(create(location))
    subscriber.sql("DELETE FROM t WHERE a = 1")
    subscriber.server.headgate("backup", str(tmp_path / "copy"))
    number = subscriber.sql(
        "SELECT d.oid || '/' || c.oid FROM pg_class c, pg_database d WHERE relname = 't' AND datname = current_database()"
    )
    assert lake.rows(f"{tmp_path}/copy/base/{number}") == [(2, "y")]
    subscriber.sql("DROP TABLE t")
