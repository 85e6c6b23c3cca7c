"""A node with `spark_master = yarn`: executors of Hadoop's own mini cluster copy a table, apply batches and evaluate a query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tests.conftest import NodeServer, Server, until
from tests.spark_cluster import SPARK_HOME
from tests.yarn_cluster import YarnCluster

pytestmark = [pytest.mark.slow, pytest.mark.one_java, pytest.mark.timeout(900)]
TABLE = "CREATE TABLE big (id int PRIMARY KEY, v text, n numeric(12,2))"
TOTALS = "SELECT count(*), sum(id), sum(n), max(v), count(DISTINCT v) FROM big"


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"))
    yield cluster
    cluster.end()


def spark_of(node: NodeServer) -> dict[str, int]:
    """Return the counters of Spark in the node's status."""
    answer: dict[str, int] = json.loads(node.headgate("status", "--json").stdout)["spark"]
    return answer


def test_executors_of_yarn_copy_a_table_and_apply_batches(
    yarn: YarnCluster, own_node: Callable[..., Server], postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = postgres.new_database()
    postgres.psql(source, f"{TABLE}; INSERT INTO big SELECT i, repeat(md5(i::text), 12), i * 1.25 FROM generate_series(1, 30000) i")
    postgres.psql(source, "CREATE PUBLICATION pub FOR TABLE big")
    node = own_node(
        start=False,
        small_batch_rows="0",
        driver_query_memory="0",
        spark_master="'yarn'",
        **{
            "spark.driver.host": "'127.0.0.1'",
            "spark.executor.instances": "1",
            "spark.executor.memory": "'512m'",
            "spark.yarn.jars": f"'local:{SPARK_HOME}/jars/*'",
        },
    )
    assert isinstance(node, NodeServer)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    node.headgate("start", "-l", str(node.logfile), "-t", "300", timeout=320)  # YARN starts its own container first
    try:
        node.psql("postgres", TABLE)
        node.psql("postgres", f"CREATE SUBSCRIPTION s CONNECTION '{postgres.conninfo(source)}' PUBLICATION pub")
        until(lambda: node.psql("postgres", "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 300)
        postgres.psql(source, "UPDATE big SET v = 'changed ' || id WHERE id % 3 = 0; DELETE FROM big WHERE id % 100 = 1")
        expected = postgres.psql(source, TOTALS)
        until(lambda: node.psql("postgres", TOTALS) == expected, "the changes do not arrive", 300)
        counted = spark_of(node)
        assert counted["spark_changes"] >= 10_000
        assert "Finished task" in yarn.logs()
        node.psql("postgres", "DROP SUBSCRIPTION s")
    finally:
        if node.running:
            node.stop()
