"""`headgate register`: the external tables of Unity Catalog, a Hive metastore and AWS Glue follow the tables of a publication."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import botocore.session
import pytest
from tests.conftest import NodeServer, free_port, until

from headgate.cli.registration.external_catalog import DEFINITION, SOURCE, ExternalCatalog, ExternalTable
from headgate.cli.registration.glue import Glue
from headgate.cli.registration.hive_metastore import _JAVA, HiveMetastore
from headgate.cli.registration.unity import API, UnityCatalog
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

ROOT = Path(__file__).parents[2]
ID = {"name": "id", "type": "integer", "nullable": True, "metadata": {}}
"""A column as Delta's schema has it."""

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


@pytest.fixture(scope="module")
def unity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a catalog of Unity Catalog. Its server is built from sources, because it is not published as an artifact."""
    checkout = os.environ.get("UNITY_CATALOG_CHECKOUT")
    if checkout is None:
        pytest.skip("UNITY_CATALOG_CHECKOUT does not name a checkout of Unity Catalog v0.5.1")
    folder, port = tmp_path_factory.mktemp("unity"), free_port()
    # not ~/.m2: Spark's resolver of packages looks there, and fails for an artifact of which only the POM is there
    properties = {"checkout": checkout, "output": folder / "built", "maven.repo.local": ROOT / ".setup/unity-maven"}
    build = ["mvn", "-q", "-B", "-f", str(ROOT / "tests/cli/unity/pom.xml"), *(f"-D{name}={value}" for name, value in properties.items())]
    classpath = folder / "classpath"
    subprocess.run([*build, "compile", "dependency:build-classpath", f"-Dmdep.outputFile={classpath}"], check=True, stdout=sys.stderr)
    shutil.copytree(Path(checkout) / "etc", folder / "etc")  # its settings, relative to its working folder
    command = ["java", "-cp", f"{folder / 'built/classes'}:{classpath.read_text()}", "io.unitycatalog.server.UnityCatalogServer"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([*command, "-p", str(port)], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    until(lambda: accepts(port), "Unity Catalog does not start", 120)
    yield f"http://127.0.0.1:{port}/lake"
    server.kill()
    server.wait()


def ask_unity(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to Unity Catalog and return its answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address.removesuffix("/lake") + API + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def plain_node() -> Iterator[NodeServer]:
    """A node in a folder without a space. Unity Catalog rejects locations with spaces."""
    with TemporaryDirectory(prefix="headgate-test-", ignore_cleanup_errors=True) as folder:
        node = NodeServer(Path(folder))
        node.create()
        node.start()
        yield node
        node.stop("immediate")


@pytest.fixture(params=["hive", "glue", "unity"])
def registered(request: pytest.FixtureRequest) -> Iterator[Registered]:
    node = request.getfixturevalue("plain_node" if request.param == "unity" else "node")
    target = request.getfixturevalue({"hive": "metastore"}.get(request.param, request.param))
    catalog: ExternalCatalog
    if request.param == "unity":
        if all(found["name"] != "lake" for found in ask_unity(target, "/catalogs")["catalogs"]):
            ask_unity(target, "/catalogs", {"name": "lake"})
        catalog = UnityCatalog(target)
    else:
        catalog = HiveMetastore(target) if request.param == "hive" else Glue(None)
    yield Registered(node, request.param, target, catalog)
    catalog.close()


def test_tables_are_created_changed_and_removed_with_those_of_the_node(registered: Registered) -> None:
    assert registered.run() == (0, [f'registered table "{registered.schema}.t"'], "")
    assert registered.run() == (0, [], "")
    first = registered.catalog.tables(registered.schema)["t"]
    assert registered.kind == "unity" or first["spark.sql.sources.provider"] == "delta"
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
    registered.catalog.put(ExternalTable(registered.schema, "t", tmp_path.as_uri(), (ID,), {}), exists=False)
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
    assert registered.run()[0] == 0
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


@pytest.mark.parametrize("registered", ["unity"], indirect=True)
def test_unity_catalog_has_the_location_and_the_columns_as_spark_spells_them(registered: Registered) -> None:
    registered.sql("ALTER TABLE t ADD COLUMN small smallint, ADD COLUMN zoned timestamptz, ADD COLUMN raw bytea")
    assert registered.run()[0] == 0
    assert registered.target is not None
    table = ask_unity(registered.target, f"/tables/lake.{registered.schema}.t")
    assert (table["table_type"], table["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert table["storage_location"].endswith(registered.sql("SELECT path FROM headgate.snapshot() WHERE name = 't'"))
    assert {column["name"]: (column["type_text"], column["type_name"]) for column in table["columns"]} == {
        "id": ("int", "INT"),
        "n": ("decimal(10,2)", "DECIMAL"),
        "at": ("timestamp_ntz", "TIMESTAMP_NTZ"),
        "tags": ("string", "STRING"),
        "small": ("smallint", "SHORT"),
        "zoned": ("timestamp", "TIMESTAMP"),
        "raw": ("binary", "BINARY"),
    }
    assert all(json.loads(column["type_json"])["name"] == column["name"] for column in table["columns"])


@pytest.mark.parametrize("registered", ["unity"], indirect=True)
def test_missing_catalog_and_wrong_address_are_reported(registered: Registered) -> None:
    assert registered.target is not None
    for target, report in (
        (registered.target.replace("/lake", "/nosuch"), "headgate: Unity Catalog reports: Catalog not found: nosuch\n"),
        ("127.0.0.1", "headgate: the address of Unity Catalog must have the form https://host:port/catalog, without a user name\n"),
        (f"http://127.0.0.1:{free_port()}/lake", "headgate: could not call Unity Catalog: [Errno 111] Connection refused\n"),
    ):
        registered.target = target
        assert registered.run() == (1, [], report)
    assert registered.names() == set()
