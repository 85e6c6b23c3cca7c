"""A node runs its tasks on a Spark cluster, with tables in an object store. Executors see neither its disk nor its Python.

One test runs with the suite, with tables on the disk and one executor, whose master and worker are in the Java of the tests' session.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import spark_pages
from tests.conftest import NodeServer, Server, SqlError, free_port, until
from tests.object_store import ObjectStore
from tests.publisher import slots
from tests.spark_cluster import ClusterInJava, SparkCluster
from tests.spark_pages import SparkPages

ROWS = 130_000
"""Rows of 400 bytes. Tasks copy the table in ranges."""
TOTALS = "SELECT count(*), sum(id), sum(n), max(v), count(DISTINCT v) FROM big"
FILTERED = "SELECT count(*), sum(id), sum(n), max(v), count(DISTINCT v) FROM big WHERE n > 100000 AND v ~ '^[0-9]'"
ARRIVED = TOTALS
"""The same totals of the rows that pass the filter."""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers with one core each."""
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()


def on(cluster: SparkCluster, store: ObjectStore) -> dict[str, str]:
    """Return the settings of a node whose tables are in the store and whose batches all run on the cluster."""
    return {
        "spark_master": f"'{cluster.master}'",
        "spark.driver.host": "'127.0.0.1'",
        "small_batch_rows": "0",
        "warm_up": "on",
        **store.settings(),
    }


def published(postgres: Server) -> str:
    """Return a database with a large published table."""
    database = postgres.new_database()
    postgres.psql(
        database,
        "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2));"
        f" INSERT INTO big SELECT i, repeat(md5(i::text), 12), i * 1.25 FROM generate_series(1, {ROWS}) i; CREATE PUBLICATION pub FOR TABLE big",
    )
    return database


def subscribe(node: NodeServer, postgres: Server, source: str, name: str) -> None:
    """Create a subscription of the node to the database, which starts the copy."""
    node.psql("postgres", "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
    node.psql("postgres", f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")


def filtered_onward(node: NodeServer, postgres: Server) -> str:
    """Return a PostgreSQL database that subscribes to the node through a filter that Spark evaluates."""
    target = postgres.new_database()
    postgres.psql(target, "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
    node.psql("postgres", "ALTER TABLE big REPLICA IDENTITY FULL")
    node.psql("postgres", "CREATE PUBLICATION out FOR TABLE big WHERE (n > 100000 AND v ~ '^[0-9]')")
    postgres.psql(target, f"CREATE SUBSCRIPTION onward CONNECTION '{node.conninfo('postgres')}' PUBLICATION out")
    return target


def spark_of(node: NodeServer) -> dict[str, int]:
    """Return the counters of Spark in the node's status."""
    counts: dict[str, int] = json.loads(node.headgate("status", "--json").stdout)["spark"]
    return counts


def same(node: NodeServer, postgres: Server, source: str, seconds: float = 180) -> None:
    """Make a last change, wait until it arrives, and compare the table with the publisher's."""
    mark = postgres.psql(source, "UPDATE big SET v = gen_random_uuid()::text WHERE id = 6 RETURNING v")
    until(lambda: node.psql("postgres", "SELECT v FROM big WHERE id = 6") == mark, "the changes do not arrive", seconds)
    assert node.psql("postgres", TOTALS) == postgres.psql(source, TOTALS)


@pytest.mark.slow
def test_executor_copies_merges_and_filters(
    spare_node: Callable[..., Server], spark: SparkSession, tmp_path: Path, postgres: Server
) -> None:
    cluster = ClusterInJava(spark, tmp_path / "worker")
    source = postgres.new_database()
    postgres.psql(  # few rows on many pages, because a copy is divided into ranges of pages
        source,
        "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2)) WITH (fillfactor = 10);"
        " INSERT INTO big SELECT i, repeat(md5(i::text), 12), i * 1.25 FROM generate_series(1, 14000) i; CREATE PUBLICATION pub FOR TABLE big",
    )
    settings = {"spark_master": f"'{cluster.master}'", "spark.driver.host": "'127.0.0.1'", "spark.executor.memory": "'512m'"}
    try:
        node = spare_node(**settings, small_batch_rows="0")
        assert isinstance(node, NodeServer)
        database = node.new_database()
        node.psql(database, "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
        node.psql(database, f"CREATE SUBSCRIPTION executed CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")
        until(lambda: node.psql(database, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 240)
        copied = cluster.finished_tasks()
        node.psql(database, "ALTER TABLE big REPLICA IDENTITY FULL; CREATE PUBLICATION out FOR TABLE big WHERE (n > 17000)")
        slot = slots.make(node, database, "judged")

        changes = "BEGIN; UPDATE big SET v = 'x' WHERE id % 1000 = 0; DELETE FROM big WHERE id % 1000 = 1;"
        mark = postgres.psql(source, f"{changes} INSERT INTO big VALUES (0, gen_random_uuid(), 20000) RETURNING v; COMMIT")
        until(lambda: node.psql(database, "SELECT v FROM big WHERE id = 0") == mark, "the changes do not arrive", 240)

        assert node.psql(database, TOTALS) == postgres.psql(source, TOTALS)
        merged = cluster.finished_tasks()
        messages = [message.split()[0] for message in slots.messages(node, database, slot, "out")]
        assert messages.count("Update") == 1
        assert messages.count("Delete") == 0
        assert messages.count("Insert") == 1
        assert 1 < copied < merged < cluster.finished_tasks()
        assert spark_of(node)["executors"] == 1
        assert spark_of(node)["spark_batches"] >= 1
        assert spark_of(node)["driver_batches"] == 0
        assert list(cluster.folder.glob("app-*/*/node/headgate/__init__.py"))
        node.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")

        query = "SELECT count(*) FROM big a, big b, big c WHERE a.n + b.n + c.n < 0"
        with pytest.raises(SqlError, match="canceling statement due to statement timeout"):
            node.psql(database, f"SET statement_timeout = '3s'; {query}", timeout=60)
        # the only executor has one core, so the cancelled statement no longer runs
        assert node.psql(database, "SELECT count(*), sum(n) FROM big", timeout=60) == postgres.psql(
            source, "SELECT count(*), sum(n) FROM big"
        )
        node.psql(database, "DROP SUBSCRIPTION executed")
        node.stop()
    finally:
        cluster.end()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_node_stopped_while_an_executor_merges_applies_the_batch_once(
    spare_node: Callable[..., Server], spark: SparkSession, tmp_path: Path, postgres: Server
) -> None:
    cluster = ClusterInJava(spark, tmp_path / "worker")
    source = postgres.new_database()
    postgres.psql(
        source,
        "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2));"
        " INSERT INTO big SELECT i, md5(i::text), i FROM generate_series(1, 20000) i; CREATE PUBLICATION pub FOR TABLE big",
    )
    settings = {"spark_master": f"'{cluster.master}'", "spark.driver.host": "'127.0.0.1'", "spark.executor.memory": "'512m'"}
    try:
        node = spare_node(**settings, small_batch_rows="0")
        database = node.new_database()
        node.psql(database, "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))")
        node.psql(database, f"CREATE SUBSCRIPTION stopped CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")
        until(lambda: node.psql(database, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 240)
        for _ in range(2):
            begun = cluster.finished_tasks()
            postgres.psql(source, "UPDATE big SET n = n + 1, v = v || 'x' WHERE id % 2 = 0")
            until(lambda: cluster.finished_tasks() > begun, "the batch has not begun", 240)  # noqa: B023
            node.stop()
            node.start()
        mark = postgres.psql(source, "UPDATE big SET v = gen_random_uuid() WHERE id = 1 RETURNING v")
        until(lambda: node.psql(database, "SELECT v FROM big WHERE id = 1") == mark, "the changes do not arrive", 240)
        assert node.psql(database, TOTALS) == postgres.psql(source, TOTALS)
        node.psql(database, "DROP SUBSCRIPTION stopped")
        node.stop()
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def no_executors(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the settings of a node whose cluster has no workers. Every batch is for executors."""
    cluster = ClusterInJava(spark, tmp_path_factory.mktemp("no_worker"), workers=0)
    yield {"spark_master": f"'{cluster.master}'", "spark.driver.host": "'127.0.0.1'", "small_batch_rows": "0", "driver_query_memory": "0"}
    cluster.end()


def small(server: Server, database: str, name: str = "small") -> None:
    """Create a table that is too large for the driver to scan, and that the driver has written."""
    lines = "".join(f"{number}\tv{number}\n" for number in range(3000))
    server.psql(database, f"CREATE TABLE {name} (id int PRIMARY KEY, v text);\nCOPY {name} FROM STDIN;\n{lines}\\.\n")


def workers(node: Server, name: str) -> str:
    """Return how many workers of the subscriptions with this name run."""
    return node.psql("postgres", f"SELECT count(pid) FROM pg_stat_subscription WHERE subname = '{name}'")


def senders(node: Server) -> set[str]:
    """Return the process ids of the walsenders."""
    return set(node.psql("postgres", "SELECT pid FROM pg_stat_replication").split())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_statement_that_waits_for_executors_does_not_block_the_cancellation_of_others(
    spare_node: Callable[..., Server], no_executors: dict[str, str]
) -> None:
    node = spare_node(**no_executors)
    database = node.new_database()
    small(node, database)
    small(node, database, "other")
    node.psql(database, "ALTER TABLE small REPLICA IDENTITY FULL; CREATE PUBLICATION out FOR TABLE small WHERE (length(v) > 2)")
    slot = slots.make(node, database, "judged")
    node.psql(database, "UPDATE small SET v = 'changed' WHERE id = 5")
    active = f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND state = 'active' AND query LIKE '%{{}}%' AND pid <> pg_backend_pid()"
    statements = {
        "FROM small": "SELECT count(*), max(v) FROM small",
        "SET v": "UPDATE small SET v = v || 'x'",
        "COPY": "COPY (SELECT v, count(*) FROM small GROUP BY v) TO STDOUT",
        "min": "SELECT min(v) FROM other",  # it waits for the first statement, which reads the state of the same table
        "slot_get": f"SELECT * FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, 'proto_version', '1', 'publication_names', 'out')",
    }
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(node.psql, database, "SELECT count(*), max(v) FROM other", timeout=600)
        holder = until(lambda: node.psql(database, active.format("other")))
        for word, statement in statements.items():
            with pytest.raises(SqlError, match="canceling statement due to statement timeout"):
                node.psql(database, f"SET statement_timeout = '1s'; {statement}", timeout=60)
            answer = pool.submit(node.psql, database, statement, timeout=60)
            pid = until(partial(node.psql, database, active.format(word)))
            assert node.psql(database, f"SELECT pg_cancel_backend({pid})") == "t"
            with pytest.raises(SqlError, match="canceling statement due to user request"):
                answer.result()
        assert node.psql(database, "SELECT v FROM small WHERE id = 5") == "changed"
        node.psql(database, f"SELECT pg_cancel_backend({holder})")
        with pytest.raises(SqlError, match="canceling statement due to user request"):
            first.result()
    node.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")


COMMANDS = (
    "ALTER TABLE small ALTER v SET NOT NULL",
    "ALTER TABLE small ADD CHECK (length(v) > 0)",
    "ALTER TABLE small ADD COLUMN n serial",
    "ALTER TABLE small ALTER id TYPE bigint",
    "ALTER TABLE small ADD FOREIGN KEY (id) REFERENCES other",
    "ALTER TABLE small ADD UNIQUE (v)",
    "ALTER TABLE split ATTACH PARTITION small FOR VALUES FROM (0) TO (10000)",
    "CREATE TABLE part PARTITION OF split FOR VALUES FROM (5000) TO (6000)",
    "ALTER DOMAIN word ADD CHECK (VALUE <> 'x')",
    "ALTER DOMAIN word SET NOT NULL",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
)
"""Commands that let Spark check all rows of a table."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_command_that_waits_for_executors_to_check_all_rows_can_be_cancelled(
    spare_node: Callable[..., Server], no_executors: dict[str, str]
) -> None:
    node = spare_node(**no_executors)
    database = node.new_database()
    node.psql(database, "CREATE DOMAIN word AS text; CREATE TYPE mood AS ENUM ('sad', 'ok')")
    node.psql(
        database, "CREATE TABLE split (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE rest PARTITION OF split DEFAULT"
    )
    small(node, database)
    small(node, database, "other")
    lines = "".join(f"{number}\tsad\n" for number in range(3000))
    node.psql(database, f"CREATE TABLE words (id int PRIMARY KEY, m mood, w word);\nCOPY words (id, m) FROM STDIN;\n{lines}\\.\n")
    node.psql(database, f"COPY rest FROM STDIN;\n{lines}\\.\n")
    for command in COMMANDS:
        with pytest.raises(SqlError, match="canceling statement due to statement timeout"):
            node.psql(database, f"SET statement_timeout = '1s'; {command}", timeout=60)
    locked = "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid <> pg_backend_pid()"
    assert node.psql(database, locked) == "0"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_checkpoint_does_not_wait_for_executors(spare_node: Callable[..., Server], no_executors: dict[str, str]) -> None:
    node = spare_node(**no_executors)
    database = node.new_database()
    node.psql(
        database, "CREATE TABLE often (id int);" + "INSERT INTO often VALUES (1);" * 120
    )  # as many commits as between two checkpoints of a Delta log
    node.psql(database, "CHECKPOINT", timeout=60)


def wait_for_executors(pages: SparkPages, *whose: str) -> bool:
    """Return whether this number of workers and walsenders have started jobs."""
    return Counter(whose) <= Counter(group.split("-")[0] for group in pages.groups_at_work())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_worker_that_waits_for_executors_can_be_terminated_and_its_node_stopped(
    spare_node: Callable[..., NodeServer], no_executors: dict[str, str], postgres: Server
) -> None:
    source, target = postgres.new_database(), postgres.new_database()
    small(postgres, source)
    postgres.psql(  # few rows on many pages, because a copy is divided into ranges of pages
        source,
        "CREATE TABLE big (id int PRIMARY KEY, v text) WITH (fillfactor = 10);"
        " INSERT INTO big SELECT i, repeat(md5(i::text), 12) FROM generate_series(1, 14000) i;"
        " CREATE PUBLICATION batches FOR TABLE small; CREATE PUBLICATION copies FOR TABLE big",
    )
    node = spare_node(**no_executors, **spark_pages.SETTINGS)
    database, name = node.new_database(), target
    node.psql(database, "CREATE TABLE small (id int PRIMARY KEY, v text); CREATE TABLE big (id int PRIMARY KEY, v text)")
    node.psql(database, f"CREATE SUBSCRIPTION b_{name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION batches")
    until(lambda: node.psql(database, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 60)
    node.psql(database, f"CREATE SUBSCRIPTION c_{name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION copies")
    definition = "CREATE TABLE sent (id int PRIMARY KEY, v text)"
    node.psql(
        database, f"{definition}; ALTER TABLE sent REPLICA IDENTITY FULL; CREATE PUBLICATION judged FOR TABLE sent WHERE (length(v) > 2)"
    )
    postgres.psql(target, definition)
    postgres.psql(
        target, f"CREATE SUBSCRIPTION j_{name} CONNECTION '{node.conninfo(database)}' PUBLICATION judged WITH (copy_data = false)"
    )
    streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
    until(lambda: node.psql(database, streams) == "1", "no walsender", 60)
    # a batch, a copy and a filter, for which there are no executors
    changed = postgres.psql(source, "UPDATE small SET v = 'changed' WHERE id = 5; SELECT pg_current_wal_lsn()")
    received = f"SELECT received_lsn >= '{changed}' FROM pg_stat_subscription WHERE subname = 'b_{name}'"
    until(lambda: node.psql(database, received) == "t", "the change has not arrived", 60)
    node.psql(database, "INSERT INTO sent VALUES (1, 'passes')")
    until(
        partial(wait_for_executors, SparkPages(node), "worker", "worker", "walsender"),
        "the worker, the copy and the walsender do not wait for executors",
        60,
    )

    senders_before = senders(node)
    node.psql(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
    until(lambda: senders(node).isdisjoint(senders_before), "the walsender does not end")
    node.psql(database, f"ALTER SUBSCRIPTION b_{name} DISABLE")
    node.psql(database, f"SELECT pg_terminate_backend(pid) FROM pg_stat_subscription WHERE subname = 'b_{name}'")
    until(lambda: workers(node, f"b_{name}") == "0", "the worker that merges does not end")
    node.psql(database, f"DROP SUBSCRIPTION c_{name}", timeout=60)
    assert workers(node, f"c_{name}") == "0"

    node.psql(database, f"ALTER SUBSCRIPTION b_{name} ENABLE")
    node.psql(database, f"CREATE SUBSCRIPTION c_{name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION copies")
    until(partial(wait_for_executors, SparkPages(node), "worker", "worker"), "the workers have not begun", 60)
    node.stop("smart")
    assert "some sessions did not end in time" not in node.log()
    node.start()
    assert node.psql(database, "SELECT v FROM small WHERE id = 5") == "v5"
    node.psql(database, f"DROP SUBSCRIPTION c_{name}", timeout=60)
    node.psql(database, f"DROP SUBSCRIPTION b_{name}", timeout=60)
    postgres.psql(target, f"DROP SUBSCRIPTION j_{name}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_worker_whose_table_waits_for_executors_to_follow_its_publisher_can_be_terminated(
    spare_node: Callable[..., NodeServer], no_executors: dict[str, str], postgres: Server
) -> None:
    source = postgres.new_database()
    small(postgres, source)
    postgres.psql(source, "CREATE PUBLICATION p FOR TABLE small")
    node = spare_node(**no_executors, **spark_pages.SETTINGS)
    database, name = node.new_database(), f"f_{source}"
    node.psql(database, "CREATE TABLE small (id int PRIMARY KEY, v text)")
    node.psql(
        database, f"CREATE SUBSCRIPTION {name} CONNECTION '{postgres.conninfo(source)}' PUBLICATION p WITH (schema_evolution = add_columns)"
    )
    until(lambda: node.psql(database, "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 60)
    postgres.psql(source, "ALTER TABLE small ADD COLUMN w text DEFAULT 'wide'; INSERT INTO small VALUES (-1)")
    until(partial(wait_for_executors, SparkPages(node), "worker"), "the table does not begin to follow", 60)
    node.psql(database, f"DROP SUBSCRIPTION {name}", timeout=60)
    assert workers(node, name) == "0"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_node_runs_its_tasks_on_a_cluster(
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
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the filtered rows do not arrive", 60)
    postgres.psql(source, "UPDATE big SET n = n + 100000 WHERE id % 20 = 3")
    same(node, postgres, source)
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the rows that pass the filter now do not arrive", 60)
    postgres.psql(target, "DROP SUBSCRIPTION onward")
    node.psql("postgres", "DROP SUBSCRIPTION work")


def test_node_reports_a_master_that_does_not_answer(own_node: Callable[..., Server]) -> None:
    node = own_node(start=False, spark_master=f"'spark://127.0.0.1:{free_port()}'")
    assert isinstance(node, NodeServer)

    with pytest.raises(AssertionError):
        node.start()

    assert 'FATAL:  could not connect to Spark master "spark://127.0.0.1:' in node.log()
    assert "HINT:  Start the cluster, or set spark_master to the address of a running cluster." in node.log()


def kill_at_work(cluster: SparkCluster, times: int) -> None:
    """Kill executors, each while it runs a task, and the next one when another executor runs a task."""
    for _ in range(times):
        os.kill(until(cluster.at_work, "no executor has a task", 300)[0], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_executors_lose_nothing(
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
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the filtered rows do not arrive", 300)
    for number in range(4):
        postgres.psql(source, f"UPDATE big SET v = v || '{number}', n = n + 1 WHERE id % 3 = {number % 3}")
        postgres.psql(source, f"DELETE FROM big WHERE id % 11 = {number}")
    kill_at_work(spark_cluster, 3)
    same(node, postgres, source, 600)
    assert node.psql("postgres", "SELECT count(*) = count(DISTINCT id) FROM big") == "t"
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the rows that pass the filter do not arrive", 300)

    # no filter runs while the rows are merged; it runs after that, and executors that run it are killed
    postgres.psql(target, "ALTER SUBSCRIPTION onward DISABLE")
    node.await_release("onward")
    postgres.psql(source, "UPDATE big SET n = n + 100000 WHERE id % 20 = 3")
    same(node, postgres, source, 300)
    postgres.psql(target, "ALTER SUBSCRIPTION onward ENABLE")
    kill_at_work(spark_cluster, 2)
    until(lambda: postgres.psql(target, ARRIVED) == node.psql("postgres", FILTERED), "the rows that pass the filter now do not arrive", 300)
    postgres.psql(target, "DROP SUBSCRIPTION onward")
    node.psql("postgres", "DROP SUBSCRIPTION killed")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_node_uses_a_lost_cluster_again_after_it_is_back(
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
        until(lambda: node.log().count("ready to accept connections") == 2, "the node does not start again", 120)
        same(node, postgres, source, 300)
        node.psql("postgres", "DROP SUBSCRIPTION lost")
    finally:
        cluster.end()
