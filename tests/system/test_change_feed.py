"""The cells of docs/readers.md that copy a table and follow its change feed work with plain PySpark as printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import Server, until
from tests.repo.page import Block, blocks

from headgate.storage.spark.application import jars

pytestmark = [pytest.mark.on_disk, pytest.mark.slow, pytest.mark.timeout(1500)]
PAGE = "docs/readers.md"
OWN = "4.1.4"
"""The version of PySpark whose jars the node uses."""
TABLE = """CREATE TABLE orders (id int PRIMARY KEY, region text, amount numeric(10,2), tags int[]) WITH (array_storage = array);
    INSERT INTO orders SELECT i, 'eu', i * 1.25, ARRAY[i, NULL] FROM generate_series(1, 500) i"""
TRANSACTION = """BEGIN; INSERT INTO orders VALUES ({n} + 1000, 'new', 1); UPDATE orders SET amount = amount + 1 WHERE id = {n};
    UPDATE orders SET amount = amount + 1, tags = '{{7}}' WHERE id = {n}; INSERT INTO orders VALUES ({n} + 5000, 'never', 1);
    DELETE FROM orders WHERE id = {n} + 5000; UPDATE orders SET id = {n} + 9000 WHERE id = {n} + 100; DELETE FROM orders WHERE id = {n} + 200;
    INSERT INTO orders VALUES ({n} + 200, 'again', 2); DELETE FROM orders WHERE id = {n} + 300; COMMIT"""
"""A transaction that changes rows, one of them several times."""
PRINT = """
import json
copied = spark.read.format("delta").load(copy).orderBy("id").collect()
print(json.dumps([row.asDict() for row in copied], default=str))
"""
PRINT_LSN = """
import json
rows = spark.read.format("delta").option("versionAsOf", version).load(path).count()
print(json.dumps({"feed": feed.count(), "with": with_lsn.where("lsn IS NOT NULL").count(), "rows": rows}))
"""


def _cells(section: str) -> list[Block]:
    return [block for block in blocks(PAGE, section) if block.language == "python"]


@dataclass
class Reader:
    """An environment with a version of PySpark, in which the page's cells run."""

    python: Path
    version: str
    folder: Path
    conninfo: str = ""

    def program(self, *, lsn: bool = False, option: str = "") -> str:
        """Return the cells that copy the table. `option`: an additional option of the stream."""
        first, offline, where = _cells("Spark: the first cell")
        if self.version == OWN:  # the node's own jars
            [online] = [line for line in first.text.splitlines() if line.startswith("spark = ")]
            first = Block("python", first.text.replace(online, offline.text), first.line)
        snapshot, stream, apply, with_lsn = _cells("Change feeds")
        cells = [first, where, snapshot, stream, apply, *([with_lsn] if lsn else [])]
        text = "\n".join(cell.text for cell in cells) + (PRINT_LSN if lsn else PRINT)
        text = text.replace("host=127.0.0.1 port=5440 user=postgres dbname=postgres", self.conninfo)
        text = text.replace("/opt/headgate/share/headgate/jars", str(self._jars())).replace("/srv/copy", str(self.folder))
        return text.replace('    .load(path)\n    .where(f"_commit', f'    {option}\n    .load(path)\n    .where(f"_commit')

    def _jars(self) -> Path:
        """Return a folder with the node's own jars. Other tests may have put those of another Spark beside them."""
        folder = self.folder / "jars"
        if not folder.exists():
            folder.mkdir()
            for jar in jars.find_jars():
                (folder / jar.name).symlink_to(jar)
        return folder

    def start(self, program: str) -> subprocess.Popen[str]:
        """Start Python with the program."""
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
        return subprocess.Popen([self.python, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def run(self, program: str) -> Any:
        """Return what the program prints, or the end of its errors."""
        completed = self.start(program)
        printed, errors = completed.communicate(timeout=900)
        return json.loads(printed.splitlines()[-1]) if completed.returncode == 0 else errors


@pytest.fixture(scope="module", params=[OWN, "4.0.5", "4.2.0"])
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The Python of an environment that the page's pip command creates, and its version of PySpark."""
    folder = tmp_path_factory.mktemp("spark")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = next(block.text for block in blocks(PAGE, "Spark: the first cell") if block.language == "shell")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, env=variables)
    command = f"{folder}/bin/python -m {line}".replace(f"pyspark=={OWN}", f"pyspark=={request.param}")
    subprocess.run(["bash", "-ec", command], check=True, env=variables, capture_output=True)
    return folder / "bin" / "python", request.param


@pytest.fixture
def reader(environment: tuple[Path, str], node: Server, tmp_path: Path) -> Iterator[Reader]:
    """A reader of a separate database of the node."""
    python, version = environment
    database = node.new_database()
    node.psql(database, TABLE)
    yield Reader(python, version, tmp_path, node.conninfo(database))
    node.psql(database, "DROP TABLE orders")


def selected(reader: Reader, columns: str = "id, region, amount::text, tags") -> list[dict[str, Any]]:
    with psycopg.connect(reader.conninfo) as session:
        cursor = session.execute(f"SELECT {columns} FROM orders ORDER BY id".encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def test_copy_that_follows_the_change_feed_equals_the_table(reader: Reader) -> None:
    assert reader.run(reader.program()) == selected(reader)
    stopped = threading.Event()

    def write() -> None:
        with psycopg.connect(reader.conninfo, autocommit=True, prepare_threshold=None) as session:
            for number in range(1, 100):
                session.execute(TRANSACTION.format(n=number).encode())
                if stopped.wait(0.2):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    batches = reader.folder / "orders-checkpoint" / "offsets"
    batches_before = len(list(batches.glob("[0-9]*")))
    killed = reader.start(reader.program())
    try:
        until(lambda: len(list(batches.glob("[0-9]*"))) > batches_before or killed.poll() is not None, "no batch", 600)
    finally:  # the writer needs the table, which is dropped at the end of the test
        killed.kill()
        killed.communicate()
        stopped.set()
        writer.join()
    assert reader.run(reader.program()) == selected(reader)
    counted = reader.run(reader.program(lsn=True))
    assert counted["feed"] == counted["with"] > 0
    assert counted["rows"] == len(selected(reader))


@pytest.mark.parametrize("environment", [OWN], indirect=True)
def test_stream_continues_after_schema_changes_as_the_page_says(reader: Reader) -> None:
    assert reader.run(reader.program()) == selected(reader)
    with psycopg.connect(reader.conninfo, autocommit=True) as session:
        session.execute("ALTER TABLE orders ADD COLUMN more int")
        session.execute("UPDATE orders SET more = id WHERE id < 10")
        assert "DELTA_STREAMING_METADATA_EVOLUTION" in reader.run(reader.program())
        wider = "id, region, amount::text, tags, more"
        assert reader.run(reader.program()) == selected(reader, wider)

        session.execute("ALTER TABLE orders RENAME COLUMN region TO area")
        session.execute("UPDATE orders SET area = 'renamed' WHERE id < 10")
        assert "DELTA_STREAMING_METADATA_EVOLUTION" in reader.run(reader.program())
        assert "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION" in reader.run(reader.program())
        [in_copy] = [block.text for block in blocks(PAGE, "Schema changes end a stream") if block.language == "sql"]
        statements = [
            f'spark.sql("""{statement}""")'
            for statement in in_copy.strip().replace("/srv/copy", str(reader.folder)).split(";")
            if statement
        ]
        renamed = reader.program(option='.option("allowSourceColumnRename", "always")')
        renamed = renamed.replace("query = changes", "\n".join([*statements, "query = changes"]))
        assert reader.run(renamed) == selected(reader, wider.replace("region", "area"))


@pytest.mark.parametrize("environment", [OWN], indirect=True)
def test_all_tables_are_read_at_one_lsn(reader: Reader) -> None:
    [cell] = _cells("All tables at one LSN")
    program = reader.program().split("\n[(path, version)]")[0] + "\n" + cell.text + "\nimport json\nprint(json.dumps(counts))"
    assert reader.run(program) == {"public.orders": 500}
