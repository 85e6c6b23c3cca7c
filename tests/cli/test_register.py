"""`headgate register`: the external tables of a Hive metastore and of AWS Glue follow the tables of a publication."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from tests.conftest import NodeServer, free_port, until

from headgate.cli.registration.external_catalog import DEFINITION, SOURCE, ExternalCatalog, ExternalTable
from headgate.cli.registration.glue import Glue
from headgate.cli.registration.hive_metastore import _JAVA, HiveMetastore
from headgate.storage.spark.application import jars

SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:memory:metastore;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}</value></property>
</configuration>"""
READ = """
import sys
from pyspark.sql import SparkSession
jars, uri, query = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false").enableHiveSupport()
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config("spark.hadoop.hive.metastore.uris", uri)
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate()
)
print(sorted(tuple(row) for row in spark.sql(query).collect()))
"""
"""A user's program that has Spark and the metastore, and does not use headgate."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Registered:
    """A database with a publication, and the catalog in which its tables are registered."""

    def __init__(self, node: NodeServer, kind: str, target: str | None, catalog: ExternalCatalog) -> None:
        self.node, self.kind, self.target, self.catalog = node, kind, target, catalog
        self.database = node.new_database()
        self.schema = f"{self.database}_public"
        self.sql("CREATE TABLE t (id int PRIMARY KEY, n numeric(10, 2), at timestamp, tags text[]); INSERT INTO t VALUES (1, 2.5)")
        self.sql("CREATE TABLE u (id bigint); CREATE PUBLICATION p FOR TABLE t")

    def sql(self, script: str) -> str:
        return str(self.node.psql(self.database, script))

    def run(self, *options: str) -> tuple[int, list[str], str]:
        """Run the command once. Return its exit code, its output and its errors."""
        command = [sys.executable, "-m", "headgate.cli.main", "register", "-D", str(self.node.data), "--catalog", self.kind, "--once"]
        command += ["--publication", "p", "-d", self.database, *(["--target", self.target] if self.target else []), *options]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
        return completed.returncode, completed.stdout.splitlines(), completed.stderr

    def names(self) -> set[str]:
        return set(self.catalog.tables(self.schema))


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive metastore. PySpark's jars contain it."""
    folder, port = tmp_path_factory.mktemp("metastore"), free_port()
    (folder / "hive-site.xml").write_text(SITE.format(folder=folder))
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    classpath = f"{folder}:{Path(spark.origin).parent}/jars/*"
    command = ["java", *_JAVA, "-cp", classpath, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    until(lambda: "Started the new metaserver" in (folder / "log").read_text() or accepts(port), "the metastore does not start", 120)
    yield f"thrift://127.0.0.1:{port}"
    server.kill()
    server.wait()


def accepts(port: int) -> bool:
    """Return whether a server accepts connections."""
    import socket

    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """AWS Glue's data catalog on moto. The environment variables point to it."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    )
    until(lambda: accepts(port), "moto does not start", 60)
    values = {
        "AWS_ENDPOINT_URL_GLUE": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield
    server.kill()
    server.wait()


@pytest.fixture(params=["hive", "glue"])
def registered(request: pytest.FixtureRequest, node: NodeServer) -> Iterator[Registered]:
    target = request.getfixturevalue("metastore" if request.param == "hive" else "glue")
    catalog: ExternalCatalog = HiveMetastore(target) if request.param == "hive" else Glue(None)
    yield Registered(node, request.param, target, catalog)
    catalog.close()


def test_tables_are_created_changed_and_removed_with_those_of_the_node(registered: Registered) -> None:
    assert registered.run() == (0, [f'registered table "{registered.schema}.t"'], "")
    assert registered.run() == (0, [], "")
    first = registered.catalog.tables(registered.schema)["t"]
    assert first["spark.sql.sources.provider"] == "delta"
    registered.sql("ALTER TABLE t ADD COLUMN later date; ALTER PUBLICATION p ADD TABLE u")
    assert registered.run()[:2] == (0, [f'changed table "{registered.schema}.t"', f'registered table "{registered.schema}.u"'])
    assert registered.catalog.tables(registered.schema)["t"][DEFINITION] != first[DEFINITION]
    registered.sql("ALTER TABLE u RENAME TO other; ALTER PUBLICATION p DROP TABLE t")
    assert registered.run()[:2] == (
        0, [f'registered table "{registered.schema}.other"', f'removed table "{registered.schema}.t"', f'removed table "{registered.schema}.u"']
    )  # fmt: skip
    assert registered.names() == {"other"}
    registered.sql("DROP TABLE other; INSERT INTO t VALUES (2, 1)")
    assert registered.run()[:2] == (0, [f'removed table "{registered.schema}.other"'])
    assert registered.sql("SELECT count(*) FROM t") == "2"


def test_table_that_the_command_has_not_registered_stays(registered: Registered, tmp_path: Path) -> None:
    registered.catalog.create_schema(registered.schema, "somebody")
    registered.catalog.put(ExternalTable(registered.schema, "t", tmp_path.as_uri(), (("a", "int"),), {}), exists=False)
    code, lines, errors = registered.run()
    assert (code, lines) == (0, [])
    assert "was not registered from this publication, skipping" in errors
    assert SOURCE not in registered.catalog.tables(registered.schema)["t"]
    registered.sql("ALTER PUBLICATION p SET TABLE u")
    assert registered.run()[:2] == (0, [f'registered table "{registered.schema}.u"'])
    registered.sql("ALTER PUBLICATION p SET TABLE t")
    assert registered.run()[:2] == (0, [f'removed table "{registered.schema}.u"'])
    assert registered.names() == {"t"}


def test_missing_publication_changes_nothing(registered: Registered) -> None:
    registered.run()
    registered.sql("DROP PUBLICATION p")
    assert registered.run() == (1, [], 'headgate: publication "p" does not exist\n')
    assert registered.names() == {"t"}


@pytest.mark.on_disk
def test_spark_reads_a_registered_table_by_its_name(node: NodeServer, metastore: str, tmp_path: Path) -> None:
    catalog = HiveMetastore(metastore)
    registered = Registered(node, "hive", metastore, catalog)
    registered.run()
    registered.sql("ALTER TABLE t ADD COLUMN later int; INSERT INTO t VALUES (7, 1.25, NULL, NULL, 9); DELETE FROM t WHERE id = 1")
    registered.run()
    catalog.close()
    delta = ",".join(str(jar) for jar in jars.find_jars() if "delta" in jar.name)
    query = f"SELECT id, n, later FROM {registered.schema}.t"
    completed = subprocess.run(
        [sys.executable, "-c", READ, delta, metastore, query], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert completed.stdout == "[(7, Decimal('1.25'), 9)]\n", completed.stderr[-2000:]


def test_columns_of_glue_have_hives_types(node: NodeServer, glue: None) -> None:
    catalog = Glue(None)
    registered = Registered(node, "glue", None, catalog)
    registered.run()
    client: Any = botocore.session.get_session().create_client("glue")
    table = client.get_table(DatabaseName=registered.schema, Name="t")["Table"]
    columns = {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]}
    assert columns == {"id": "int", "n": "decimal(10,2)", "at": "timestamp", "tags": "string"}
    path = registered.sql("SELECT path FROM headgate.snapshot() WHERE name = 't'")
    assert table["StorageDescriptor"]["Location"].endswith(path.removeprefix("s3a:"))
