"""After a crash at any moment the tables contain the rows of the log, and the directory contains nothing else."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.storage.crash import A, B
from tests.storage.tables import DATABASE, change, contents, made, rows

from headgate.catalog.catalog import Catalog
from headgate.storage.delta.delta_log import newest_version
from headgate.storage.engine import Engine
from headgate.storage.location import data_location


def again(engine: Engine) -> Engine:
    """Start an engine on the directory that another one has left."""
    return Engine(engine.settings, engine.catalog, engine.data_dir, session=engine.spark)


def test_recovery_removes_uncommitted_writes_and_incomplete_tables(engine: Engine) -> None:
    made(engine, A, (1, "x"))
    lost = engine.begin(DATABASE)
    lost.append(A, rows(A, (2, "lost")))
    change(lost, A, "id = 1", v="'lost'")
    lost.ddl.create(B)
    begun = engine.tables.path((DATABASE, 22222)) / "_delta_log"
    data_location.make_folder(begun)
    data_location.write_new(begun / f"{0:020d}.crc", "{}")
    started = again(engine)
    assert started.recover() == [
        f"removed uncommitted relation {B.oid} of database {DATABASE}",
        f"removed uncommitted relation 22222 of database {DATABASE}",
    ]
    assert contents(started, A) == [(1, "x")]
    version = newest_version(started.tables.path((DATABASE, A.oid)))
    once_more = again(engine)
    assert once_more.recover() == []
    assert newest_version(once_more.tables.path((DATABASE, A.oid))) == version
    writer = once_more.begin(DATABASE)
    writer.append(A, rows(A, (3, "after")))
    writer.commit()
    assert contents(once_more, A) == [(1, "x"), (3, "after")]


def _written_until_killed(directory: Path, settings: dict[str, str], acknowledged: int, delay: float) -> int:
    """Run the writer, and kill it shortly after it has acknowledged `count` transactions.

    Return the number of the last acknowledged one.
    """
    command = [sys.executable, "-m", "tests.storage.crash", str(directory), json.dumps(settings)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    last, acknowledgements = 0, 0
    for line in process.stdout:
        if line.strip().isdigit():
            last, acknowledgements = int(line), acknowledgements + 1
            if acknowledgements == acknowledged:
                threading.Timer(delay, os.killpg, (process.pid, signal.SIGKILL)).start()
        elif line.startswith("ready"):
            last = int(line.split()[1])
    process.wait()
    process.stdout.close()
    return last


@pytest.mark.slow
def test_node_killed_while_it_writes_has_every_acknowledged_commit(
    spark: SparkSession, tmp_path: Path, engine_settings: dict[str, str]
) -> None:
    Catalog.create(tmp_path / "catalog.duckdb").close()
    rng = random.Random(15)
    acknowledged = 0
    for acks in (2, 4):
        acknowledged = _written_until_killed(tmp_path, engine_settings, acks, rng.uniform(0.05, 0.4))
    catalog = Catalog.open(tmp_path / "catalog.duckdb")
    engine = Engine(engine_settings, catalog, tmp_path, session=spark)
    engine.recover()
    ((_, last),) = contents(engine, B)
    assert last in (acknowledged, acknowledged + 1)
    assert contents(engine, A) == sorted(((number, "x") for number in range(1, last + 1)), key=repr)
    made_tables = {int(name) for name in data_location.names(engine.base / str(DATABASE))}
    assert made_tables == {A.oid, B.oid, *(30000 + number for number in range(3, last + 1, 3))}
    catalog.close()
