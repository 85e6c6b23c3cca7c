"""A node on the newest version of Spark that Delta Lake has a jar for, beside one on the locked version."""

from __future__ import annotations

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


def test_a_node_on_the_newest_version_replicates_with_one_on_the_locked_version_and_returns_to_it(
    newest_spark: dict[str, str], node: Server, own_node: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, newest_node = node.new_database(), own_node(start=False, small_batch_rows="0")
    node.psql(source, f"{TABLE}; {ROWS}; ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t")
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", newest_spark["PYTHONPATH"])
        newest_node.start()
    newest_node.psql("postgres", f"{TABLE}; CREATE SUBSCRIPTION s CONNECTION '{node.conninfo(source)}' PUBLICATION p")
    until(lambda: newest_node.psql("postgres", "SELECT srsubstate FROM pg_subscription_rel") == "r", "the table is not copied", 240)
    assert f"spark-core_2.13-{NEWEST_SPARK}" in java_of(newest_node)
    node.psql(source, CHANGES)
    changed = node.psql(source, TOTALS)
    until(lambda: newest_node.psql("postgres", TOTALS) == changed, "the changes do not arrive", 240)
    newest_node.stop()
    newest_node.start()
    assert f"spark-core_2.13-{NEWEST_SPARK}" not in java_of(newest_node)
    node.psql(source, "DELETE FROM t WHERE a % 7 = 0")
    changed = node.psql(source, TOTALS)
    until(lambda: newest_node.psql("postgres", TOTALS) == changed, "the changes do not arrive at the locked version", 240)
    newest_node.psql("postgres", "DROP SUBSCRIPTION s")


def java_of(node: Server) -> str:
    """Return the names of the files that a node's Java has open, its jars among them."""
    [java] = [pid for pid in tree(node.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    return " ".join(str(handle.readlink()) for handle in Path(f"/proc/{java}/fd").iterdir())
