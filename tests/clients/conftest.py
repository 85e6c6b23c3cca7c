"""Fixtures for the tests of drivers. Each driver runs in its own program, started once per run. Each test gets a database with a table."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients import installation
from tests.conftest import Server

ITEMS = """CREATE TABLE items (id integer PRIMARY KEY, name text, price numeric(10,2), big bigint, good boolean, real8 double precision,
    seen timestamp with time zone, raw bytea, code uuid, tags text[], nums integer[])"""
PYTHON = ("asyncpg", "psycopg2", "pg8000", "sqlalchemy", "arrow")
DRIVERS = (*PYTHON, "jdbc", "node-postgres", "pgx")
"""The drivers. `arrow` contains three: ADBC, polars and connectorx."""


class Program:
    """A running program that plays scenes with its driver (see `programs/conversation.py`)."""

    def __init__(self, command: list[str | Path]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd="/",
            env=installation.environment(PYTHONUTF8="1"),
        )

    def _errors(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-6000:]

    def play(self, scene: str, url: str, seconds: float = 240) -> Any:
        """Play a scene and return its answer. Raise AssertionError if it fails, or the program ends, or `seconds` pass without an answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{scene} {url}\n".encode())
        self._process.stdin.flush()
        line, deadline = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, deadline - time.monotonic()))
            read = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not read:
                self._process.kill()
            assert read, f"{scene}: {'the program has ended' if ready else 'no answer'}\n{self._errors()}"
            line += read
        answer = json.loads(line)
        assert "failed" not in answer, answer["failed"]
        return answer["said"]

    def end(self) -> None:
        """Close the input of the program, which ends it. Raise AssertionError if it has written to its standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            errors = self._errors()
            self._stderr.close()
        assert not errors, errors


def _command(driver: str) -> list[str | Path]:
    if driver in PYTHON:
        return [installation.python("clients"), "-W", "error", installation.PROGRAMS / f"with_{driver}.py"]
    return {"jdbc": installation.java, "node-postgres": installation.node, "pgx": installation.go}[driver]()


@pytest.fixture(scope="session")
def program() -> Iterator[Callable[[str], Program]]:
    """Return the function that returns the program of a driver, and starts it if it does not run."""
    running: dict[str, Program] = {}

    def of(driver: str) -> Program:
        if driver not in running or running[driver]._process.poll() is not None:
            running[driver] = Program(_command(driver))
        return running[driver]

    yield of
    for driver_program in running.values():
        driver_program.end()


class Table:
    """A database on one of the servers, with an empty table `items`, in which drivers play scenes."""

    def __init__(self, server: Server, database: str, program: Callable[[str], Program]) -> None:
        self.server = server
        self.database = database
        self._program = program
        self.sql(f"SET client_min_messages = error; DROP TABLE IF EXISTS items; {ITEMS}")

    @property
    def url(self) -> str:
        """The connection URL for drivers."""
        return f"postgresql://postgres@127.0.0.1:{self.server.port}/{self.database}"

    def sql(self, script: str) -> str:
        """Run a script and return the output of ``psql -At``."""
        return self.server.psql(self.database, script)

    def play(self, driver: str, scene: str) -> Any:
        """Play a scene with a driver in this database and return its answer."""
        return self._program(driver).play(scene, self.url)


@pytest.fixture(scope="session")
def _shared() -> dict[Server, str]:
    return {}


@pytest.fixture
def table(request: pytest.FixtureRequest, server: Server, program: Callable[[str], Program], _shared: dict[Server, str]) -> Table:
    """Return a table on PostgreSQL, and then on the node. A slow test gets its own database. The other tests of a server share one."""
    if request.node.get_closest_marker("slow"):
        return Table(server, server.new_database(), program)
    if server not in _shared:
        _shared[server] = server.new_database()
    return Table(server, _shared[server], program)
