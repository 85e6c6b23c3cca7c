"""Measure how long the statements of one ordinary client take beside eight hostile sessions.

Called by `__main__` for PostgreSQL and the node in turn. Each hostile session is its own process, so that Python's interpreter lock does
not slow down the ordinary client. There are two sessions of each kind: large texts, deeply nested texts, results that are never read, and
handshakes that never end. Their role is not a superuser. The ordinary client selects and inserts single rows by key, and opens a new
connection after every 50 statements.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event

import psycopg
import psycopg.sql

from headgate.cli.demo.servers import DemoServer

ROLE = "hostile"
TARGET = "worst < 1 s"
TEXTS = (
    lambda: f"SELECT length('{'a' * (60 << 20)}')",
    lambda: f'SELECT "{"a" * (60 << 20)}"',
    lambda: f"SELECT '{'password ' * (6 << 20)}",
    lambda: f"SELECT length('{'ä' * (30 << 20)}')",
    lambda: f"VALUES {', '.join(['(1)'] * 200_000)}",
    lambda: "SELECT 1;" * 30_000,
    lambda: " " * (100 << 20),
)
"""Large texts: a constant, a name, an unterminated constant, non-ASCII text, many rows, many statements, and a text above all limits."""
NESTED = (
    "(" * 50_000,
    "SELECT 1" + "+1" * 100_000,
    "SELECT " + "f(" * 20_000,
    "SELECT " + "ARRAY[" * 20_000,
    "SELECT 1" + "::int" * 100_000,
)


def large_texts(conninfo: str, stopped: Event) -> None:
    """Send one large text after another."""
    _statements(conninfo, stopped, itertools.cycle(text() for text in TEXTS))


def deep_nesting(conninfo: str, stopped: Event) -> None:
    """Send one deeply nested text after another."""
    _statements(conninfo, stopped, itertools.cycle(NESTED))


def _statements(conninfo: str, stopped: Event, texts: Iterator[str]) -> None:
    while not stopped.is_set():
        with contextlib.suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as session:
            for text in texts:
                if stopped.is_set():
                    return
                with contextlib.suppress(psycopg.errors.DatabaseError):
                    session.execute(text.encode())


def unread_results(conninfo: str, stopped: Event) -> None:
    """Run a query with 100,000,000 rows, and do not read its result."""
    while not stopped.is_set():
        with contextlib.suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True) as session:
            session.pgconn.send_query(b"SELECT g, repeat('x', 1000) FROM generate_series(1, 100000000) g")
            session.pgconn.flush()
            stopped.wait(20)
            return


def slow_handshakes(conninfo: str, stopped: Event) -> None:
    """Open twenty connections, send a byte of the startup packet on each every 0.1 s, and repeat."""
    parameters = psycopg.conninfo.conninfo_to_dict(conninfo)
    packet = struct.pack("!ii", 9000, 3 << 16) + b"user\0" + b"x" * 8000
    while not stopped.is_set():
        connections = []
        with contextlib.suppress(OSError):
            address = (str(parameters["host"]), int(str(parameters["port"])))
            connections.extend(socket.create_connection(address) for _ in range(20))
            for byte in packet[:50]:
                for connection in connections:
                    connection.send(bytes([byte]))
                if stopped.wait(0.1):
                    break
        for connection in connections:
            connection.close()


KINDS: tuple[Callable[[str, Event], None], ...] = (large_texts, deep_nesting, unread_results, slow_handshakes)


def waits(server: DemoServer, seconds: float) -> list[float]:
    """Return the seconds of each statement of the ordinary client, in ascending order."""
    with server.connect() as session:
        for statement in (f"CREATE ROLE {ROLE} LOGIN", "CREATE TABLE ordinary (id int PRIMARY KEY, a int)"):
            session.execute(statement.encode())
    hostile_conninfo = psycopg.conninfo.make_conninfo(server.conninfo, user=ROLE)
    spawn = multiprocessing.get_context("spawn")
    stopped = spawn.Event()
    hostile = [spawn.Process(target=kind, args=(hostile_conninfo, stopped), daemon=True) for kind in KINDS for _ in range(2)]
    for client in hostile:
        client.start()
    try:
        return sorted(_ordinary_client(server.conninfo, seconds))
    finally:
        stopped.set()
        for client in hostile:
            client.join(30)
            client.kill()
        _wait_for_quiet(server.conninfo)


def _wait_for_quiet(conninfo: str) -> None:
    """Terminate the backends of clients that have disconnected, and flush the file system.

    PostgreSQL notices that a client has disconnected only when it next writes to it. Until then it would slow down the next measurement.
    """
    of_role = psycopg.sql.SQL("FROM pg_stat_activity WHERE usename = {}").format(ROLE)
    with psycopg.connect(conninfo, autocommit=True) as session:
        while session.execute(psycopg.sql.SQL("SELECT pg_terminate_backend(pid) ") + of_role).fetchall():
            time.sleep(0.1)
    os.sync()


def _ordinary_client(conninfo: str, seconds: float) -> Iterator[float]:
    end = time.monotonic() + seconds
    keys = itertools.count(1)
    while time.monotonic() < end:
        began = time.monotonic()
        with psycopg.connect(conninfo, autocommit=True) as session:
            yield time.monotonic() - began
            for key in itertools.islice(keys, 25):
                for statement in ("SELECT a FROM ordinary WHERE id = %s", "INSERT INTO ordinary VALUES (%s, 1)"):
                    began = time.monotonic()
                    session.execute(statement, (key,))
                    yield time.monotonic() - began
                time.sleep(0.05)
