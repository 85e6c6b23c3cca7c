"""A node on the newest version of Spark that Delta Lake has a jar for, and one on Java 21, beside one on the locked version and Java 17."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.memory import tree
from tests.conftest import NEWEST_SPARK, Server, until

pytestmark = [pytest.mark.slow, pytest.mark.one_java, pytest.mark.on_disk, pytest.mark.timeout(1500)]
FACADES = ("tests/storage/test_spark_internals.py", "tests/storage/test_delta_internals.py")
ROOT = Path(__file__).parents[2]
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text, c numeric(12,2), d timestamptz, e int[]) WITH (array_storage = array)"
ROWS = """INSERT INTO t SELECT i, 'row ' || i, i / 4.0, timestamptz '2026-01-01 00:00:00+02' + i * interval '1 minute', ARRAY[i, NULL]
    FROM generate_series(1, 30000) i"""
CHANGES = """UPDATE t SET b = upper(b), c = c + 1 WHERE a % 3 = 0; DELETE FROM t WHERE a % 100 = 1; UPDATE t SET a = -a WHERE a % 50 = 0;
    INSERT INTO t VALUES (100001, NULL, 1.5, NULL, NULL)"""
TOTALS = "SELECT count(*), sum(a), sum(c), min(d), max(b), count(e) FROM t"


def test_the_private_classes_behind_the_facades_are_in_the_newest_version(newest_spark: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *FACADES]
    completed = subprocess.run(command, cwd=ROOT, env=newest_spark, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout


@pytest.fixture(params=[f"spark {NEWEST_SPARK}", "java 21"])
def runtime(request: pytest.FixtureRequest) -> tuple[dict[str, str], str]:
    """The variables by which a node finds another Spark or another Java, and a part of a path that its Java then has open."""
    if request.param == "java 21":
        home = java_21()
        return {"JAVA_HOME": str(home)}, f"{home}/lib/modules"
    variables = request.getfixturevalue("newest_spark")
    return {"PYTHONPATH": variables["PYTHONPATH"]}, f"spark-core_2.13-{NEWEST_SPARK}"


def java_21() -> Path:
    """Return the home of a Java 21: `JAVA_21_HOME`, or that of Debian's package."""
    homes = [*map(Path, filter(None, [os.environ.get("JAVA_21_HOME")])), *Path("/usr/lib/jvm").glob("java-21-openjdk-*")]
    if not homes:
        pytest.skip("JAVA_21_HOME does not name a Java 21, and openjdk-21-jre-headless is not installed")
    return homes[0]


def test_a_node_on_another_spark_or_java_replicates_with_a_usual_one_and_returns_to_it(
    runtime: tuple[dict[str, str], str], node: Server, own_node: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables, file = runtime
    source, other_node = node.new_database(), own_node(start=False, small_batch_rows="0")
    node.psql(source, f"{TABLE}; {ROWS}; ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t")
    with monkeypatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        other_node.start()
    other_node.psql("postgres", f"{TABLE}; CREATE SUBSCRIPTION s CONNECTION '{node.conninfo(source)}' PUBLICATION p")
    until(lambda: other_node.psql("postgres", "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 240)
    assert file in java_of(other_node)
    node.psql(source, CHANGES)
    changed = node.psql(source, TOTALS)
    until(lambda: other_node.psql("postgres", TOTALS) == changed, "the changes do not arrive", 240)
    other_node.stop()
    other_node.start()
    assert file not in java_of(other_node)
    node.psql(source, "DELETE FROM t WHERE a % 7 = 0")
    changed = node.psql(source, TOTALS)
    until(lambda: other_node.psql("postgres", TOTALS) == changed, "the changes do not arrive at the usual version", 240)
    other_node.psql("postgres", "DROP SUBSCRIPTION s")


def java_of(node: Server) -> str:
    """Return the names of the files that a node's Java has open, its jars among them."""
    [java] = [pid for pid in tree(node.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    return " ".join(str(handle.readlink()) for handle in Path(f"/proc/{java}/fd").iterdir())
