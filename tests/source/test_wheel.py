"""The wheel of pyspark-headgate works without the node: its own copy of the decoder reads the changes of a PostgreSQL server."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2] / "pyspark-headgate"
READ = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "headgate":
            raise ImportError("the node is not installed")
sys.meta_path.insert(0, Nothing())
sys.path.insert(0, sys.argv[1])
import pyspark_headgate
from pyspark_headgate.connection import Range
from pyspark_headgate.options import SourceOptions
from pyspark_headgate.postgresql import PostgresConnection
options = SourceOptions(sys.argv[2], "p", "public.t", sys.argv[3])
with PostgresConnection(options.url) as server:
    position = server.slot(options.slot).position
    rows = [row for batch in server.batches(options, Range(position, server.current())) for row in batch.to_pylist()]
print(pyspark_headgate.__file__, [(row["_op"], row["id"]) for row in rows])
"""


@pytest.mark.slow
def test_the_wheel_reads_changes_without_the_node(postgres: Any, tmp_path: Path) -> None:
    database = postgres.new_database()
    slot = f"{database}_s"
    postgres.psql(
        database,
        "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;"
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput'); INSERT INTO t VALUES (1); DELETE FROM t",
    )
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, PROJECT]
    subprocess.run(build, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("pyspark_headgate-*.whl"))) as wheel:
        assert not [name for name in wheel.namelist() if name.startswith("headgate/")]
        wheel.extractall(tmp_path / "site")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", READ, tmp_path / "site", postgres.conninfo(database), slot]
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == f"{tmp_path}/site/pyspark_headgate/__init__.py [('I', 1), ('D', 1)]\n"
    postgres.drop_slot(database, slot)
