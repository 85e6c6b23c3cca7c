"""A node whose tasks run on a Spark cluster, whose tables lie in an object store: executors see neither its disk nor its Python.

The suite has one course of it, with tables on the disk and one executor, whose master and worker are in the Java of the tests' session.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conftest import NodeServer, Server, free_port, until
from tests.object_store import ObjectStore
from tests.publisher import slots
from tests.spark_cluster import ClusterInJava, SparkCluster

ROWS = 130_000
"""Of 400 bytes: a table that is copied by tasks, in ranges."""
TOTALS = "SELECT count(*), sum(id), sum(n), max(v), count(DISTINCT v) FROM big"
FILTERED = "SELECT count(*), sum(id), sum(n), max(v), count(DISTINCT v) FROM big WHERE n > 100000 AND v ~ '^[0-9]'"
ARRIVED = TOTALS
"""The same of the rows that have passed."""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers of one core each."""
    found = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.end()


def on(cluster: SparkCluster, store: ObjectStore) -> dict[str, str]:
    """Settings of a node that has its tables in the store and its work done by the cluster, every batch of it."""
    return {
        "spark_master": f"'{cluster.master}'",
        "spark.driver.host": "'127.0.0.1'",
        "small_batch_rows": "0",
        "warm_up": "on",
        **store.settings(),
    }


def published(postgres: Server) -> str:
    """A database with a large table that is published."""
    database = postgres.new_database()
    postgres.psql(
        database,
        "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2));"
        f" INSERT INTO big SELECT i, repeat(md5(i::text), 12), i * 1.25 FROM generate_series(1, {ROWS}) i; CREATE PUBLICATION pub FOR TABLE big",
    )
    return database


def subscribe(node: NodeServer, postgres: Server, source: str, name: str) -> None:
    """A subscription of the node to it, whose copy has begun."""
    node.psql("postgres", "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
    node.psql("postgres", f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")


def filtered_onward(node: NodeServer, postgres: Server) -> str:
    """A database of the PostgreSQL that subscribes to the rows that a filter lets pass, which is one for Spark."""
    target = postgres.new_database()
    postgres.psql(target, "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
    node.psql("postgres", "ALTER TABLE big REPLICA IDENTITY FULL")
    node.psql("postgres", "CREATE PUBLICATION out FOR TABLE big WHERE (n > 100000 AND v ~ '^[0-9]')")
    postgres.psql(target, f"CREATE SUBSCRIPTION onward CONNECTION '{node.conninfo('postgres')}' PUBLICATION out")
    return target


def spark_of(node: NodeServer) -> dict[str, int]:
    """What the status says of tasks."""
    found: dict[str, int] = json.loads(node.headgate("status", "--json").stdout)["spark"]
    return found


def same(node: NodeServer, postgres: Server, source: str, seconds: float = 180) -> None:
    """Waits for a change that is made behind all others, and compares the table with the publisher's."""
    mark = postgres.psql(source, "UPDATE big SET v = gen_random_uuid()::text WHERE id = 6 RETURNING v")
    until(lambda: node.psql("postgres", "SELECT v FROM big WHERE id = 6") == mark, "the changes do not come", seconds)
    assert node.psql("postgres", TOTALS) == postgres.psql(source, TOTALS)


@pytest.mark.timeout(600)
def test_an_executor_copies_merges_and_judges(
    spare_node: Callable[..., Server], spark: SparkSession, tmp_path: Path, postgres: Server
) -> None:
    cluster = ClusterInJava(spark, tmp_path / "worker")
    source = postgres.new_database()
    postgres.psql(  # few rows of many pages: a copy is cut into ranges by pages
        source,
        "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2)) WITH (fillfactor = 10);"
        " INSERT INTO big SELECT i, repeat(md5(i::text), 12), i * 1.25 FROM generate_series(1, 14000) i; CREATE PUBLICATION pub FOR TABLE big",
    )
    settings = {"spark_master": f"'{cluster.master}'", "spark.driver.host": "'127.0.0.1'", "spark.executor.memory": "'512m'"}
    try:
        node = spare_node(**settings, small_batch_rows="0")
        assert isinstance(node, NodeServer)
        here = node.new_database()
        node.psql(here, "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
        node.psql(here, f"CREATE SUBSCRIPTION executed CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")
        until(lambda: node.psql(here, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 240)
        copied = cluster.finished_tasks()
        node.psql(here, "ALTER TABLE big REPLICA IDENTITY FULL; CREATE PUBLICATION out FOR TABLE big WHERE (n > 17000)")
        slot = slots.make(node, here, "judged")

        changes = "BEGIN; UPDATE big SET v = 'x' WHERE id % 1000 = 0; DELETE FROM big WHERE id % 1000 = 1;"
        mark = postgres.psql(source, f"{changes} INSERT INTO big VALUES (0, gen_random_uuid(), 20000) RETURNING v; COMMIT")
        until(lambda: node.psql(here, "SELECT v FROM big WHERE id = 0") == mark, "the changes do not come", 240)

        assert node.psql(here, TOTALS) == postgres.psql(source, TOTALS)
        merged = cluster.finished_tasks()
        sent = [each.split()[0] for each in slots.messages(node, here, slot, "out")]
        assert sent.count("Update") == 1
        assert sent.count("Delete") == 0
        assert sent.count("Insert") == 1
        assert 1 < copied < merged < cluster.finished_tasks()
        assert spark_of(node)["executors"] == 1
        assert spark_of(node)["spark_batches"] >= 1
        assert spark_of(node)["driver_batches"] == 0
        assert list(cluster.folder.glob("app-*/*/node/headgate/__init__.py"))
        node.psql(here, f"SELECT pg_drop_replication_slot('{slot}')")
        node.psql(here, "DROP SUBSCRIPTION executed")
        node.stop()
    finally:
        cluster.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_has_its_work_done_by_a_cluster(
    own_node: Callable[..., Server], spark_cluster: SparkCluster, object_store: ObjectStore, postgres: Server
) -> None:
    source = published(postgres)
    node = own_node(**on(spark_cluster, object_store))
    assert isinstance(node, NodeServer)

    subscribe(node, postgres, source, "work")
    until(lambda: node.psql("postgres", "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 180)
    postgres.psql(source, "BEGIN; UPDATE big SET v = 'changed ' || id WHERE id % 3 = 0; DELETE FROM big WHERE id % 70 = 0; COMMIT")
    same(node, postgres, source)

    assert spark_of(node)["executors"] == 2
    assert spark_of(node)["spark_batches"] >= 1
    assert spark_of(node)["driver_batches"] == 0
    assert spark_of(node)["spark_segments"] >= 1
    assert spark_of(node)["driver_segments"] == 0
    assert list(spark_cluster.folder.glob("worker*/app-*/*/node/headgate/__init__.py"))
    assert node.psql("postgres", FILTERED) == postgres.psql(source, FILTERED)
    copied = "COPY (SELECT * FROM big ORDER BY id) TO STDOUT"
    assert node.psql("postgres", copied) == postgres.psql(source, copied)
    assert [
        name for name in object_store.files.find(node.conf["data_location"].strip("'").removeprefix("s3a://")) if "_headgate/tmp" in name
    ] == []

    target = filtered_onward(node, postgres)
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the filtered rows do not come", 60)
    postgres.psql(source, "UPDATE big SET n = n + 100000 WHERE id % 20 = 3")
    same(node, postgres, source)
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the rows that now pass do not come", 60)
    postgres.psql(target, "DROP SUBSCRIPTION onward")
    node.psql("postgres", "DROP SUBSCRIPTION work")


def test_a_node_says_that_its_master_does_not_answer(own_node: Callable[..., Server]) -> None:
    node = own_node(start=False, spark_master=f"'spark://127.0.0.1:{free_port()}'")
    assert isinstance(node, NodeServer)

    with pytest.raises(AssertionError):
        node.start()

    assert 'FATAL:  could not connect to Spark master "spark://127.0.0.1:' in node.log()
    assert "HINT:  Start the cluster, or set spark_master to an address where one answers." in node.log()


def kill_at_work(cluster: SparkCluster, times: int) -> None:
    """Kills executors, each while it runs a task, and the next one when there is another that does."""
    for _ in range(times):
        os.kill(until(cluster.at_work, "no executor has a task", 300)[0], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_executors_that_are_killed_lose_nothing(
    own_node: Callable[..., Server], spark_cluster: SparkCluster, object_store: ObjectStore, postgres: Server
) -> None:
    source = published(postgres)
    node = own_node(**on(spark_cluster, object_store))
    assert isinstance(node, NodeServer)

    subscribe(node, postgres, source, "killed")
    kill_at_work(spark_cluster, 2)
    until(lambda: node.psql("postgres", "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 300)
    assert node.psql("postgres", TOTALS) == postgres.psql(source, TOTALS)

    target = filtered_onward(node, postgres)
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the filtered rows do not come", 300)
    for number in range(4):
        postgres.psql(source, f"UPDATE big SET v = v || '{number}', n = n + 1 WHERE id % 3 = {number % 3}")
        postgres.psql(source, f"DELETE FROM big WHERE id % 11 = {number}")
    kill_at_work(spark_cluster, 3)
    same(node, postgres, source, 600)
    assert node.psql("postgres", "SELECT count(*) = count(DISTINCT id) FROM big") == "t"
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the rows that pass do not come", 300)

    # nobody asks for the rows while they are merged: what runs behind that, and is killed, is the filter
    postgres.psql(target, "ALTER SUBSCRIPTION onward DISABLE")
    node.await_release("onward")
    postgres.psql(source, "UPDATE big SET n = n + 100000 WHERE id % 20 = 3")
    same(node, postgres, source, 300)
    postgres.psql(target, "ALTER SUBSCRIPTION onward ENABLE")
    kill_at_work(spark_cluster, 2)
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the rows that now pass do not come", 300)
    postgres.psql(target, "DROP SUBSCRIPTION onward")
    node.psql("postgres", "DROP SUBSCRIPTION killed")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_that_was_lost_and_is_back_is_worked_on_again(
    own_node: Callable[..., Server], tmp_path: Path, object_store: ObjectStore, postgres: Server
) -> None:
    cluster = SparkCluster(tmp_path / "cluster")
    source = published(postgres)
    node = own_node(**on(cluster, object_store))
    assert isinstance(node, NodeServer)
    try:
        subscribe(node, postgres, source, "lost")
        same(node, postgres, source)

        cluster.lose()
        until(lambda: "does not answer" in node.log(), "the node has not seen that its master is away", 60)
        assert node.psql("postgres", "SELECT v FROM big WHERE id = 5") == postgres.psql(source, "SELECT v FROM big WHERE id = 5")
        postgres.psql(source, "UPDATE big SET v = 'while it was away' WHERE id % 5 = 0")
        cluster.come_back()

        until(lambda: "is not known to its master" in node.log(), "the node does not start again", 180)
        until(lambda: node.log().count("ready to accept connections") == 2, "the node does not come back", 120)
        same(node, postgres, source, 300)
        node.psql("postgres", "DROP SUBSCRIPTION lost")
    finally:
        cluster.end()
