"""`headgate hook`: every change reaches the function at least once, after failures of the function, the HTTP server, the process or the
node.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.conftest import until
from tests.repo.page import blocks

FUNCTIONS = """
import json, os, signal, sys
from pathlib import Path

def write(table, batch):
    with open("changes", "a") as file:
        file.writelines(json.dumps([table, row["_op"], row["id"]]) + "\\n" for row in batch.to_pylist())

def fail_twice(table, batch):
    write(table, batch)
    if not Path("failed_twice").exists():
        Path("failed_twice" if Path("failed").exists() else "failed").touch()
        raise ValueError("not now")

def die(table, batch):
    write(table, batch)
    os.kill(os.getpid(), signal.SIGKILL)
"""
MAKE = "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t WHERE (id < 1000), u"


class Hooked:
    """A database with a publication, and the processes of `headgate hook` that read it."""

    def __init__(self, server: Any, folder: Path) -> None:
        self.server, self.folder, self.database = server, folder, server.new_database()
        self.slot = f"{self.database}_hook"
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "functions.py").write_text(FUNCTIONS)
        self.sql(MAKE)

    def sql(self, script: str) -> str:
        return str(self.server.psql(self.database, script))

    def start(self, target: str, *options: str) -> subprocess.Popen[str]:
        """Start the command."""
        command = [sys.executable, "-m", "headgate.cli.main", "hook", target, "--url", self.server.conninfo(self.database)]
        command += ["--publication", "p", "--slot", self.slot, "--interval", "0.1", *options]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        self.processes.append(process)
        return process

    def run(self, target: str, *options: str) -> tuple[int, str]:
        """Return the exit code and the errors of the command."""
        process = self.start(target, *options)
        _, errors = process.communicate(timeout=120)
        return process.returncode, errors

    def changes(self) -> list[list[Any]]:
        """Return the changes with which the function was called, in order."""
        file = self.folder / "changes"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE '{self.slot}%'")


@pytest.fixture
def hooked(node: Any, tmp_path: Path) -> Iterator[Hooked]:
    hooked = Hooked(node, tmp_path)
    yield hooked
    hooked.end()


def test_the_rows_come_first_and_then_each_change_in_order(hooked: Hooked) -> None:
    hooked.sql("INSERT INTO t VALUES (1), (2), (2000); INSERT INTO u VALUES (7)")
    assert hooked.run("functions:write", "--start", "snapshot", "--once") == (0, "")
    assert sorted(hooked.changes()) == [["public.t", "R", 1], ["public.t", "R", 2], ["public.u", "R", 7]]
    hooked.sql("INSERT INTO t VALUES (3); ALTER TABLE t ADD COLUMN v text; UPDATE t SET id = 4 WHERE id = 3; DELETE FROM t WHERE id = 1")
    assert hooked.run("functions:write", "--once") == (0, "")
    assert hooked.changes()[3:] == [["public.t", "I", 3], ["public.t", "U", 4], ["public.t", "D", 1]]
    assert hooked.run("functions:write", "--once") == (0, "")
    assert len(hooked.changes()) == 6


@pytest.mark.slow
def test_a_round_is_repeated_until_the_function_returns(hooked: Hooked) -> None:
    hooked.run("functions:write", "--start", "now", "--once")
    hooked.sql("INSERT INTO t VALUES (1), (2)")
    code, errors = hooked.run("functions:fail_twice", "--once")
    assert (code, errors) == (1, 'headgate: the hook failed for table "public.t": ValueError: not now\n')
    process = hooked.start("functions:fail_twice")
    until(lambda: len(hooked.changes()) == 6, "the changes are delivered for the third time")
    hooked.sql("INSERT INTO t VALUES (3)")
    until(lambda: hooked.changes()[6:] == [["public.t", "I", 3]], "the next change is delivered once")
    process.terminate()
    assert "retrying in 1 s" in process.communicate(timeout=60)[1]


@pytest.mark.slow
def test_no_change_is_lost_when_the_process_and_the_node_are_killed(spare_node: Callable[..., Any], tmp_path: Path) -> None:
    hooked = Hooked(spare_node(), tmp_path)
    hooked.sql("INSERT INTO t SELECT i FROM generate_series(1, 50) i")
    assert hooked.run("functions:die", "--start", "snapshot")[0] == -9
    assert len(hooked.changes()) == 50
    process = hooked.start("functions:write", "--start", "snapshot", "--max-rows", "10")
    for number in range(100, 200):
        hooked.sql(f"INSERT INTO t VALUES ({number})")
        if number == 150:
            hooked.server.kill()
            hooked.server.start()
        if number == 175:
            process.kill()
            hooked.run("functions:die")
            process = hooked.start("functions:write", "--max-rows", "10")
    expected = {("R", number) for number in range(1, 51)} | {("I", number) for number in range(100, 200)}
    until(lambda: {(op, number) for _, op, number in hooked.changes()} >= expected, "all changes are delivered", 120)
    assert {(op, number) for _, op, number in hooked.changes()} == expected
    hooked.end()
    assert hooked.sql("SELECT count(*) FROM pg_replication_slots") == "0"


class Receiver(BaseHTTPRequestHandler):
    """An HTTP server that answers requests with `answers`, one after another: a status, or None to answer only after the client has
    disconnected.
    """

    answers: ClassVar[list[int | None]] = []
    bodies: ClassVar[list[tuple[str, str, pa.Table]]] = []
    released: ClassVar = threading.Event()

    def do_POST(self) -> None:
        body = pa.ipc.open_stream(self.rfile.read(int(self.headers["Content-Length"]))).read_all()
        self.bodies.append((self.path, self.headers["Headgate-Table"], body))
        status = self.answers.pop(0) if self.answers else 200
        if status is None:
            self.released.wait(60)
            return
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.mark.slow
def test_an_http_server_gets_each_batch_until_it_accepts_it(hooked: Hooked) -> None:
    hooked.run("functions:write", "--start", "now", "--once")
    hooked.sql("INSERT INTO t VALUES (1), (2)")
    Receiver.answers[:] = [500, 302, None, 204]
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}/in?key=1"
        failures = [hooked.run(address, "--once", "--timeout", "1") for _ in "123"]
        Receiver.released.set()
        assert hooked.run(address, "--once") == (0, "")
        assert hooked.run(address, "--once") == (0, "")
        server.shutdown()
    assert [code for code, _ in failures] == [1, 1, 1]
    assert "status 500" in failures[0][1]
    assert "status 302" in failures[1][1]
    assert "TimeoutError" in failures[2][1]
    assert [(path, table, body.column("id").to_pylist()) for path, table, body in Receiver.bodies] == [
        ("/in?key=1", "public.t", [1, 2])
    ] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("functions:write", (), 'replication slot "{slot}" does not exist'),
        ("functions:write", ("--start", "now", "--publication", "nosuch"), 'publication "nosuch" does not exist'),
        ("functions:nosuch", ("--start", "now"), 'could not import hook "functions:nosuch"'),
        ("functions", ("--start", "now"), 'invalid hook "functions"'),
        ("ftp://127.0.0.1/", ("--start", "now"), "invalid address of the HTTP server"),
        ("functions:write", ("--start", "yesterday"), "Option --start must be now or snapshot"),
    ],
)
def test_a_wrong_call_fails_and_creates_no_slot(hooked: Hooked, target: str, options: tuple[str, ...], message: str) -> None:
    code, errors = hooked.run(target, "--once", *options)
    assert code == 1
    assert message.format(slot=hooked.slot) in errors
    assert hooked.sql(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '{hooked.slot}%'") == "0"


def test_postgresql_is_not_read(postgres: Any, tmp_path: Path) -> None:
    hooked = Hooked(postgres, tmp_path)
    code, errors = hooked.run("functions:write", "--start", "now", "--once")
    assert (code, errors.splitlines()[0]) == (1, "headgate: the server is not a headgate node")


@pytest.mark.slow
def test_the_first_hook_of_the_page_runs_as_printed(node: Any, tmp_path: Path) -> None:
    [made, function, command] = blocks("docs/hook.md", "The first hook")
    database = node.new_database()
    node.psql(database, made.text)
    (tmp_path / "functions.py").write_text(function.text)
    command_line = shlex.split(command.text.replace("port=5440", f"port={node.port}").replace("dbname=postgres", f"dbname={database}"))
    completed = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", *command_line[1:], "--once"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (completed.stdout, completed.stderr) == ("public.orders R 1 9.50\n", "")
    node.drop_slot(database, "headgate_hook")
