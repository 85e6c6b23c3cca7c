"""pyspark_headgate reads from a real node in a separate Spark session: streams, ranges, errors, and recovery after kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import until
from tests.repo.page import blocks

from headgate.storage.spark.application import jars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("query.py")
MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(10, 2)); CREATE PUBLICATION p FOR TABLE t WHERE (id % 10 <> 0)"


class Program:
    """A process that answers what `query` says."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "pyspark-headgate/src"), "PYSPARK_PYTHON": sys.executable}
        self._errors = folder / "stderr"
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, PROGRAM, ":".join(map(str, jars.find_jars()))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> None:
        """Asks for something, and waits for no answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if line.startswith("SAID ")), None)
        assert line is not None, self._errors.read_text()[-3000:]
        reply: dict[str, Any] = json.loads(line[5:])
        return reply

    def kill(self) -> None:
        """Ends the process and its Java with SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    query_program = Program(tmp_path_factory.mktemp("program"))
    yield query_program
    query_program.kill()


class Source:
    """A table with a publication on a node, and the queries that read it."""

    def __init__(self, node: Any, folder: Path, program: Program) -> None:
        self.node, self.folder, self.program, self.database = node, folder, program, node.new_database()
        self.slot = f"{self.database}_q"
        self.options = {"url": node.conninfo(self.database), "publication": "p", "table": "public.t", "slot": self.slot}
        self.sql(MAKE)

    def sql(self, script: str) -> str:
        return str(self.node.psql(self.database, script))

    def wanted(self, **wanted: Any) -> dict[str, Any]:
        return {"mode": "stream", "sink": "parquet", "folder": str(self.folder), "options": self.options, **wanted}

    def run(self, **wanted: Any) -> dict[str, Any]:
        """What the program answers."""
        self.program.ask(self.wanted(**wanted))
        return self.program.answer()

    def sunk(self) -> list[dict[str, Any]]:
        """The rows of the Parquet sink, as its own log of files says."""
        log = self.folder / "rows" / "_spark_metadata"
        paths = [json.loads(line)["path"] for file in sorted(log.glob("[0-9]*")) for line in file.read_text().splitlines()[1:]]
        return [row for path in dict.fromkeys(paths) for row in pq.read_table(path.removeprefix("file://"), partitioning=None).to_pylist()]


@pytest.fixture
def source(node: Any, tmp_path: Path, program: Program) -> Iterator[Source]:
    table_source = Source(node, tmp_path, program)
    yield table_source
    table_source.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{table_source.slot}'")


def state(rows: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """The table that the changes lead to."""
    rows_by_id: dict[int, tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: (row["_lsn"], row["_op"] != "R", row["_seq"])):
        if row["_op"] == "D" or (row["_old"] is not None and row["_op"] == "U"):
            rows_by_id.pop(row["id"] if row["_op"] == "D" else row["_old"]["id"], None)
        if row["_op"] != "D":
            rows_by_id[row["id"]] = row["v"], str(row["n"])
    return rows_by_id


def table(source: Source) -> dict[int, tuple[Any, ...]]:
    """The published rows as the node has them."""
    lines = [line.split("|") for line in source.sql("SELECT id, v, n FROM t WHERE id % 10 <> 0").splitlines()]
    return {int(line[0]): (line[1], line[2]) for line in lines}


def test_stream_returns_the_table_and_then_its_changes(source: Source) -> None:
    source.sql("INSERT INTO t SELECT i, 'first', i FROM generate_series(1, 100) i")
    reply = source.run()
    assert reply["rows"] == 90
    source.sql("UPDATE t SET v = 'second' WHERE id < 20; UPDATE t SET id = id + 5 WHERE id IN (95, 96, 100); DELETE FROM t WHERE id = 7")
    assert source.run()["rows"] == 18 + 3 + 1
    assert state(source.sunk()) == table(source)
    assert source.run()["rows"] == 0
    assert Counter(row["_op"] for row in source.sunk()) == {"R": 90, "U": 19, "I": 1, "D": 2}


def test_range_and_table_as_of_an_lsn_can_be_read_again_with_the_same_rows(source: Source) -> None:
    source.run()  # makes the slot, which keeps the log
    begin = source.sql("SELECT pg_current_wal_lsn()")
    source.sql("INSERT INTO t SELECT i, 'x', i FROM generate_series(1, 20) i")
    middle = source.sql("SELECT pg_current_wal_lsn()")
    source.sql("DELETE FROM t WHERE id < 5")
    options = {name: text for name, text in source.options.items() if name != "slot"}
    first, second = (source.run(mode="read", options={**options, "from": begin, "tasks": tasks}) for tasks in ("1", "3"))
    assert first == second
    assert Counter(row["_op"] for row in first["rows"]) == {"I": 18, "D": 4}
    assert "_old:struct<id:int,v:string,n:decimal(10,2)>" in first["schema"]
    then = source.run(mode="read", options={**options, "lsn": middle})
    assert sorted(row["id"] for row in then["rows"]) == [number for number in range(1, 20) if number % 10]


def test_all_tables_can_be_read_as_of_one_lsn_while_it_is_kept(source: Source) -> None:
    source.run()  # makes the slot, which keeps the files
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
    assert source.run()["rows"] == 1  # up to where the columns change
    assert 'the published columns of table "public.t" have changed' in source.run()["error"]
    assert source.run()["rows"] == 1
    source.sql("TRUNCATE t")
    assert 'Set the option onTruncate to "row"' in source.run()["error"]
    assert source.run(options={**source.options, "onTruncate": "row"})["rows"] == 1
    source.sql(
        f"INSERT INTO t VALUES (3, 'z', 3, 4); INSERT INTO t VALUES (5); SELECT pg_drop_replication_slot('{source.slot}'); CHECKPOINT; INSERT INTO t VALUES (4)"
    )
    assert "is no longer kept" in source.run()["error"]


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
def test_invalid_options_are_rejected(source: Source, options: dict[str, str], message: str) -> None:
    assert message in source.run(options={**source.options, **options})["error"]


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_each_change_arrives_once_if_query_and_node_are_killed(spare_node: Any, tmp_path: Path, program: Program, sink: str) -> None:
    node = spare_node()
    source = Source(node, tmp_path, program)
    options = {**source.options, "maxRows": "20000", "tasks": "2"}
    source.sql("INSERT INTO t SELECT i, 'first', i FROM generate_series(1, 50000) i")
    for number, killed in enumerate(("query", "node", "both")):
        running = Program(tmp_path)
        running.ask(source.wanted(sink=sink, options=options, once=False))
        done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) if (tmp_path / "checkpoint").exists() else 0
        for part in range(6):
            first = 100_000 * (number + 1) + 10_000 * part
            source.sql(
                f"INSERT INTO t SELECT i, 'more', i FROM generate_series({first}, {first + 9_999}) i; UPDATE t SET n = n + 1 WHERE id < 3000"
            )
        until(lambda done=done: len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) > done, "no micro-batch ends", 120)
        if killed != "query":
            node.kill()
        if killed == "node":
            assert "error" in running.answer()
        running.kill()
        if killed != "query":
            node.start()
    assert "error" not in source.run(sink=sink, options=options)
    rows = source.sunk() if sink == "parquet" else source.run(mode="sink", sink=sink)["rows"]
    assert max(Counter((row["_op"], row["_lsn"], row["_seq"]) for row in rows).values()) == 1
    assert state(rows) == table(source)
    source.sql(f"SELECT pg_drop_replication_slot('{source.slot}')")


def test_first_cell_of_the_page_runs_as_printed(node: Any, tmp_path: Path) -> None:
    [setup, cell] = [block for block in blocks("docs/spark-source.md", "The first cell") if block.language in ("sql", "python")]
    database = node.new_database()
    node.psql(database, setup.text)
    text = cell.text.replace("port=5440", f"port={node.port}").replace("dbname=postgres", f"dbname={database}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pyspark-headgate/src"), "PYSPARK_PYTHON": sys.executable}
    runs = [
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        for _ in "12"
    ]
    assert [finished.returncode for finished in runs] == [0, 0], runs[0].stderr[-2000:] + runs[1].stderr[-2000:]
    assert all("|  R|  500|" in finished.stdout for finished in runs)
    node.drop_slot(database, "orders_to_lake")
