"""The sensors for Airflow and Dagster wait until the node has every commit up to a time, in an environment without Spark and without the node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.clients import installation
from tests.subscriber.conftest import READY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
AIRFLOW, DAGSTER = Path(__file__).with_name("airflow_report.py"), Path(__file__).with_name("dagster_partitions.py")
PACKAGE = Path(__file__).parents[2] / "pyspark-headgate"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Return a function that runs a program with the wheel, and returns its output."""
    folder = tmp_path_factory.mktemp("orchestrators")
    dags = folder / "dags"
    dags.mkdir()
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, PACKAGE]
    subprocess.run(build, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("pyspark_headgate-*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    python = installation.python("orchestrators")
    homes = {
        "AIRFLOW_HOME": folder,
        "AIRFLOW__CORE__DAGS_FOLDER": dags,
        "DAGSTER_HOME": folder,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": folder / "site",
    }
    own = {**installation.environment(), **{name: str(value) for name, value in homes.items()}}
    own["PATH"] = f"{python.parent}:{os.environ['PATH']}"

    def run(source: Path, *arguments: str, **more: str) -> list[str]:
        completed = subprocess.run(
            [python, shutil.copy(source, dags), *arguments], cwd=folder, env={**own, **more}, capture_output=True, text=True, timeout=300
        )
        lines = [line for line in completed.stdout.splitlines() if line.startswith("SAID")]
        assert lines, f"{completed.stdout[-3000:]}\n{completed.stderr[-3000:]}"
        return lines[0].split("\t")[1:]

    subprocess.run([python.with_name("airflow"), "db", "migrate"], cwd=folder, env=own, check=True, capture_output=True)
    return run


@pytest.fixture
def subscribed(publisher, subscriber) -> str:
    """The address of the node, whose table t has a subscription."""
    publisher.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1)")
    subscriber.sql("CREATE TABLE t (id int PRIMARY KEY)")
    subscriber.sql(publisher.subscription())
    subscriber.wait(READY, "t")
    return f"postgresql://postgres@127.0.0.1:{subscriber.server.port}/{subscriber.name}"


def test_airflow_waits_until_the_table_is_complete(subscribed: str, program: Callable[..., list[str]]) -> None:
    until = datetime.now(UTC) + timedelta(seconds=20)
    state, complete = program(AIRFLOW, UNTIL=until.isoformat(), AIRFLOW_CONN_NODE=subscribed)
    assert state == "success"
    assert until + timedelta(seconds=1) <= datetime.fromisoformat(complete) <= datetime.now(UTC)


def test_dagster_requests_each_partition_of_time_once(subscribed: str, program: Callable[..., list[str]]) -> None:
    today = datetime.now(UTC).date()
    days = [str(today - timedelta(days=count)) for count in (2, 1)]
    assert program(DAGSTER, days[0], subscribed) == [str(days), "[]"]


def test_dagster_skips_while_the_node_is_not_reachable(program: Callable[..., list[str]]) -> None:
    assert program(DAGSTER, "2026-01-01", "host=127.0.0.1 port=1 user=postgres") == ["[]", "[]"]
