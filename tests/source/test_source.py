"""pyspark_headgate in a separate Spark session, with a real node and a real PostgreSQL: streams, reads, errors, and kills."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import NEWEST_SPARK, until
from tests.repo.page import blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("query.py")
MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(10, 2)); CREATE PUBLICATION p FOR TABLE t WHERE (id % 10 <> 0)"


class Program:
    """A process that runs `query`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.environment = environment
        self.is_newest = environment["TESTED_SPARK"] == NEWEST_SPARK
        self._errors = folder / "stderr"
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, PROGRAM, class_path(environment)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip

    def ask(self, wanted: dict[str, Any]) -> None:
        """Send a request without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if line.startswith("SAID ")), None)
        assert line is not None, self._errors.read_text()[-3000:]
        answer: dict[str, Any] = json.loads(line[5:])
        return answer

    def kill(self) -> None:
        """Kill the process and its Java with SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def class_path(environment: dict[str, str]) -> str:
    """Return the jars of Delta Lake for the pyspark of an environment."""
    find = "from headgate.storage.spark.application import jars; print(':'.join(map(str, jars.find_jars())))"
    return subprocess.run([sys.executable, "-c", find], check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture(scope="module", params=["locked", NEWEST_SPARK])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The Python of a user's environment, with the locked version of pyspark and with the newest."""
    variables = {**os.environ, "PYTHONPATH": ""} if request.param == "locked" else dict(request.getfixturevalue("newest_spark"))
    places = [str(ROOT / "pyspark-headgate/src"), variables["PYTHONPATH"]]
    return variables | {
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYSPARK_PYTHON": sys.executable,
        "TESTED_SPARK": request.param,
    }


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Program]:
    running_program = Program(tmp_path_factory.mktemp("program"), environment)
    yield running_program
    running_program.kill()


class Source:
    """A table with a publication on a server, and the queries that read it."""

    def __init__(self, server: Any, folder: Path, program: Program) -> None:
        self.server, self.folder, self.program, self.database = server, folder, program, server.new_database()
        self.slot = f"{self.database}_q"
        self.options = {"url": server.conninfo(self.database), "publication": "p", "table": "public.t", "slot": self.slot}
        self.sql(MAKE)

    def sql(self, script: str) -> str:
        return str(self.server.psql(self.database, script))

    def request(self, **fields: Any) -> dict[str, Any]:
        return {"mode": "stream", "sink": "parquet", "folder": str(self.folder), "options": self.options, **fields}

    def run(self, **fields: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        self.program.ask(self.request(**fields))
        return self.program.answer()

    def sunk(self) -> list[dict[str, Any]]:
        """Return the rows of the Parquet sink, according to its own log of files."""
        log = self.folder / "rows" / "_spark_metadata"
        paths = [json.loads(line)["path"] for file in sorted(log.glob("[0-9]*")) for line in file.read_text().splitlines()[1:]]
        return [row for path in dict.fromkeys(paths) for row in pq.read_table(path.removeprefix("file://"), partitioning=None).to_pylist()]


@pytest.fixture
def source(server: Any, tmp_path: Path, program: Program) -> Iterator[Source]:
    """The same table on PostgreSQL and on a node."""
    source = Source(server, tmp_path, program)
    yield source
    source.server.await_release(source.slot)
    source.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{source.slot}'")


@pytest.fixture
def node_source(node: Any, tmp_path: Path, program: Program) -> Iterator[Source]:
    source = Source(node, tmp_path, program)
    yield source
    source.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{source.slot}'")


def state(rows: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """Return the table that results from the changes."""
    results: dict[int, tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: (row["_lsn"], row["_op"] != "R", row["_seq"])):
        if row["_op"] == "D" or (row["_old"] is not None and row["_op"] == "U"):
            results.pop(row["id"] if row["_op"] == "D" else row["_old"]["id"], None)
        if row["_op"] != "D":
            results[row["id"]] = row["v"], str(row["n"])
    return results


def table(source: Source) -> dict[int, tuple[Any, ...]]:
    """Return the published rows on the node."""
    lines = [line.split("|") for line in source.sql("SELECT id, v, n FROM t WHERE id % 10 <> 0").splitlines()]
    return {int(line[0]): (line[1], line[2]) for line in lines}


def starts(server: Any) -> bool:
    """Return whether a killed server starts. PostgreSQL does not start while one of its old processes is alive."""
    try:
        server.start()
    except subprocess.CalledProcessError:
        return False
    return True


def test_a_stream_gives_the_table_and_then_its_changes(source: Source) -> None:
    source.sql("INSERT INTO t SELECT i, 'first', i FROM generate_series(1, 100) i")
    answer = source.run()
    assert answer["rows"] == 90
    source.sql("UPDATE t SET v = 'second' WHERE id < 20; UPDATE t SET id = id + 105 WHERE id IN (95, 96, 100); DELETE FROM t WHERE id = 7")
    assert source.run()["rows"] == 18 + 3 + 1
    assert state(source.sunk()) == table(source)
    assert source.run()["rows"] == 0
    assert Counter(row["_op"] for row in source.sunk()) == {"R": 90, "U": 19, "I": 1, "D": 2}


def test_a_micro_batch_of_a_running_query_has_at_most_about_max_rows_from_spark_4_2_on(node_source: Source) -> None:
    options = {**node_source.options, "start": "now", "maxRows": "1000"}
    assert node_source.run(options=options)["rows"] == 0
    for first in range(1, 5001, 500):
        node_source.sql(f"INSERT INTO t SELECT i, 'x', i FROM generate_series({first}, {first + 499}) i")
    answer = node_source.run(options=options)
    assert answer["rows"] == 4500
    assert (answer["batches"] >= 5) == node_source.program.is_newest, answer


def test_a_range_is_read_again_with_the_same_rows(source: Source) -> None:
    source.run()  # creates the slot, which retains the log
    begin = source.sql("SELECT pg_current_wal_lsn()")
    source.sql("INSERT INTO t SELECT i, 'x', i FROM generate_series(1, 20) i; DELETE FROM t WHERE id < 5")
    first, second = (source.run(mode="read", options={**source.options, "from": begin, "tasks": tasks}) for tasks in ("1", "3"))
    assert first == second
    assert Counter(row["_op"] for row in first["rows"]) == {"I": 18, "D": 4}
    assert "_old:struct<id:int,v:string,n:decimal(10,2)>" in first["schema"]
    now = source.run(mode="read", options={name: text for name, text in source.options.items() if name != "slot"})
    assert sorted(row["id"] for row in now["rows"]) == [number for number in range(5, 20) if number % 10]


def test_the_table_is_read_as_of_an_lsn(node_source: Source) -> None:
    source = node_source
    source.run()  # creates the slot, which retains the log
    source.sql("INSERT INTO t SELECT i, 'x', i FROM generate_series(1, 20) i")
    middle = source.sql("SELECT pg_current_wal_lsn()")
    source.sql("DELETE FROM t WHERE id < 5")
    options = {name: text for name, text in source.options.items() if name != "slot"}
    then = source.run(mode="read", options={**options, "lsn": middle})
    assert sorted(row["id"] for row in then["rows"]) == [number for number in range(1, 20) if number % 10]


def test_all_tables_are_read_as_of_one_lsn_that_is_kept(node_source: Source) -> None:
    source = node_source
    source.run()  # creates the slot, which retains the files
    source.sql("CREATE TABLE u (id int); INSERT INTO t SELECT i, 'x', i FROM generate_series(1, 20) i; INSERT INTO u VALUES (1)")
    then = source.sql("SELECT pg_current_wal_lsn()")
    source.sql("DELETE FROM t WHERE id > 5; DROP TABLE u")
    latest = source.run(mode="at", url=source.options["url"])
    assert latest["counts"] == {"public.t": 5}
    past = source.run(mode="at", url=source.options["url"], lsn=then)
    assert past == {"lsn": then, "counts": {"public.t": 20, "public.u": 1}}
    source.sql(f"SELECT pg_drop_replication_slot('{source.slot}')")
    source.sql("CHECKPOINT")
    assert f"the tables as of LSN {then} are no longer kept" in source.run(mode="at", url=source.options["url"], lsn=then)["error"]


def test_changed_columns_a_truncated_table_and_a_lost_log_end_the_query_with_an_error(source: Source) -> None:
    source.run()
    source.sql("INSERT INTO t VALUES (1, 'x', 1); ALTER TABLE t ADD COLUMN extra int; INSERT INTO t VALUES (2, 'y', 2, 3)")
    if not source.program.is_newest:  # Spark 4.1 ends the query after one micro-batch
        assert source.run()["rows"] == 1  # up to where the columns change
    assert 'the published columns of table "public.t" have changed' in source.run()["error"]
    assert [row["id"] for row in source.sunk()] == [1]
    assert source.run()["rows"] == 1
    source.sql("TRUNCATE t")
    assert 'Set the option onTruncate to "row"' in source.run()["error"]
    assert source.run(options={**source.options, "onTruncate": "row"})["rows"] == 1
    source.sql("INSERT INTO t VALUES (3, 'z', 3, 4); INSERT INTO t VALUES (5)")
    source.server.drop_slot(source.database, source.slot)
    source.sql("CHECKPOINT; INSERT INTO t VALUES (4)")
    lost = source.run()["error"]
    assert re.search("is no longer kept|no longer has (the|all) changes", lost), lost[-2000:]


def test_postgresql_gives_the_table_at_the_slot_only_to_the_query_that_made_it(postgres: Any, tmp_path: Path, program: Program) -> None:
    source = Source(postgres, tmp_path, program)
    source.sql(
        f"INSERT INTO t VALUES (1); SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput'); INSERT INTO t VALUES (2)"
    )
    assert "the table as of its position can no longer be read" in source.run()["error"]
    shutil.rmtree(tmp_path / "checkpoint")
    assert source.run(options={**source.options, "start": "now"})["rows"] == 1
    past = {name: text for name, text in source.options.items() if name != "slot"}
    assert "a PostgreSQL server gives a table only as it is now" in source.run(mode="read", options={**past, "lsn": "0/1"})["error"]
    assert 'option "slot" is needed' in source.run(mode="read", options={**past, "from": "0/1"})["error"]
    source.server.drop_slot(source.database, source.slot)
    source.sql("INSERT INTO t VALUES (3)")
    assert "no longer has" in source.run(options={**source.options, "start": "now"})["error"]
    assert source.sql(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{source.slot}'") == "0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot": "Not A Slot"}, 'option "slot" is needed'),
        ({"start": "yesterday"}, 'option "start" must be an LSN'),
        ({"maxRows": "-1"}, 'option "maxrows" must be a whole number'),
        ({"onTruncate": "maybe"}, 'option "onTruncate" must be one of'),
        ({"ontrunkate": "row"}, 'unknown option "ontrunkate"'),
        ({"publication": "'; DROP TABLE t; --"}, 'publication "\'; DROP TABLE t; --" does not exist'),
        ({"table": "nosuch"}, 'relation "nosuch" does not exist'),
    ],
)
def test_wrong_options_are_refused(source: Source, options: dict[str, str], message: str) -> None:
    assert message in source.run(options={**source.options, **options})["error"]


@pytest.mark.parametrize("sink", ["parquet", "delta"])
@pytest.mark.parametrize("server_kind", ["spare_node", "cluster"])
def test_each_change_arrives_once_when_query_and_server_are_killed(
    request: pytest.FixtureRequest, tmp_path: Path, program: Program, sink: str, server_kind: str
) -> None:
    server = request.getfixturevalue(server_kind)()
    source = Source(server, tmp_path, program)
    options = {**source.options, "maxRows": "20000", "tasks": "2"}
    source.sql("INSERT INTO t SELECT i, 'first', i FROM generate_series(1, 50000) i")
    if server_kind == "cluster":  # PostgreSQL does not have the table as of the slot's position after a kill
        assert source.run(sink=sink, options=options)["rows"] == 45_000
    for number, killed in enumerate(("query", "server", "both")):
        running = Program(tmp_path, program.environment)
        running.ask(source.request(sink=sink, options=options, once=False))
        done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) if (tmp_path / "checkpoint").exists() else 0
        for part in range(6):
            first = 100_000 * (number + 1) + 10_000 * part
            source.sql(
                f"INSERT INTO t SELECT i, 'more', i FROM generate_series({first}, {first + 9_999}) i; UPDATE t SET n = n + 1 WHERE id < 3000"
            )
        until(lambda done=done: len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) > done, "a micro-batch ends", 120)
        if killed != "query":
            server.kill()
        if killed == "server":
            assert "error" in running.answer()
        running.kill()
        if killed != "query":
            until(lambda: starts(server), "the killed server starts", 60)
    assert "error" not in source.run(sink=sink, options=options)
    rows = source.sunk() if sink == "parquet" else source.run(mode="sink", sink=sink)["rows"]
    assert max(Counter((row["_op"], row["_lsn"], row["_seq"]) for row in rows).values()) == 1
    assert state(rows) == table(source)
    server.drop_slot(source.database, source.slot)


def test_the_first_cell_of_the_page_runs_as_printed(node: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    [setup, cell] = [block for block in blocks("docs/spark-source.md", "The first cell") if block.language in ("sql", "python")]
    database = node.new_database()
    node.psql(database, setup.text)
    text = cell.text.replace("port=5440", f"port={node.port}").replace("dbname=postgres", f"dbname={database}")
    runs = [
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        for _ in "12"
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr[-2000:] + runs[1].stderr[-2000:]
    assert all("|  R|  500|" in run.stdout for run in runs)
    node.drop_slot(database, "orders_to_lake")
