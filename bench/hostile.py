"""The waits of one ordinary client beside eight hostile sessions, whichever kind of server runs them.

Called by `__main__` for PostgreSQL and the node in turn. The hostile sessions are processes of their own, so that their interpreter is not
what is measured. Two each send large texts, nest deeply, never read their results, and begin connections without ending the handshake.
Their role is no superuser. The ordinary client selects and inserts single rows by key, and connects anew now and then.
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
WANTED = "worst < 1 s"
TEXTS = (
    lambda: f"SELECT length('{'a' * (60 << 20)}')",
    lambda: f'SELECT "{"a" * (60 << 20)}"',
    lambda: f"SELECT '{'password ' * (6 << 20)}",
    lambda: f"SELECT length('{'ä' * (30 << 20)}')",
    lambda: f"VALUES {', '.join(['(1)'] * 200_000)}",
    lambda: "SELECT 1;" * 30_000,
    lambda: " " * (100 << 20),
)
"""Large texts: constants, names, unterminated ones, others than ASCII, many parts, many statements, one beyond every limit."""
NESTED = (
    "(" * 50_000,
    "SELECT 1" + "+1" * 100_000,
    "SELECT " + "f(" * 20_000,
    "SELECT " + "ARRAY[" * 20_000,
    "SELECT 1" + "::int" * 100_000,
)


def large_texts(conninfo: str, over: Event) -> None:
    """Send one large text after the other."""
    _statements(conninfo, over, itertools.cycle(text() for text in TEXTS))


def deep_nesting(conninfo: str, over: Event) -> None:
    """Send one deeply nested text after the other."""
    _statements(conninfo, over, itertools.cycle(NESTED))


def _statements(conninfo: str, over: Event, texts: Iterator[str]) -> None:
    while not over.is_set():
        with contextlib.suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as session:
            for text in texts:
                if over.is_set():
                    return
                with contextlib.suppress(psycopg.errors.DatabaseError):
                    session.execute(text.encode())


def unread_results(conninfo: str, over: Event) -> None:
    """Ask for rows without an end, and read none of them."""
    while not over.is_set():
        with contextlib.suppress(psycopg.Error), psycopg.connect(conninfo, autocommit=True) as session:
            session.pgconn.send_query(b"SELECT g, repeat('x', 1000) FROM generate_series(1, 100000000) g")
            session.pgconn.flush()
            over.wait(20)
            return


def slow_handshakes(conninfo: str, over: Event) -> None:
    """Open twenty connections, send each a byte of its first packet from time to time, and begin anew."""
    words = psycopg.conninfo.conninfo_to_dict(conninfo)
    packet = struct.pack("!ii", 9000, 3 << 16) + b"user\0" + b"x" * 8000
    while not over.is_set():
        connections = []
        with contextlib.suppress(OSError):
            place = (str(words["host"]), int(str(words["port"])))
            connections.extend(socket.create_connection(place) for _ in range(20))
            for byte in packet[:50]:
                for connection in connections:
                    connection.send(bytes([byte]))
                if over.wait(0.1):
                    break
        for connection in connections:
            connection.close()


KINDS: tuple[Callable[[str, Event], None], ...] = (large_texts, deep_nesting, unread_results, slow_handshakes)


def waits(server: DemoServer, seconds: float) -> list[float]:
    """Return how long each statement of the ordinary client took, in seconds, the shortest first."""
    with server.connect() as session:
        for statement in (f"CREATE ROLE {ROLE} LOGIN", "CREATE TABLE ordinary (id int PRIMARY KEY, a int)"):
            session.execute(statement.encode())
    own = server.conninfo
    others = psycopg.conninfo.make_conninfo(own, user=ROLE)
    spawn = multiprocessing.get_context("spawn")
    over = spawn.Event()
    hostile = [spawn.Process(target=kind, args=(others, over), daemon=True) for kind in KINDS for _ in range(2)]
    for client in hostile:
        client.start()
    try:
        return sorted(_ordinary(own, seconds))
    finally:
        over.set()
        for client in hostile:
            client.join(30)
            client.kill()
        _wait_for_quiet(own)


def _wait_for_quiet(conninfo: str) -> None:
    """End what the server still does for clients that have gone, and wait until the disk has it.

    PostgreSQL computes on for a client that has gone until it next writes to it: what is measured after that would have its load beside it.
    """
    of_role = psycopg.sql.SQL("FROM pg_stat_activity WHERE usename = {}").format(ROLE)
    with psycopg.connect(conninfo, autocommit=True) as session:
        while session.execute(psycopg.sql.SQL("SELECT pg_terminate_backend(pid) ") + of_role).fetchall():
            time.sleep(0.1)
    os.sync()


def _ordinary(conninfo: str, seconds: float) -> Iterator[float]:
    until = time.monotonic() + seconds
    keys = itertools.count(1)
    while time.monotonic() < until:
        begun = time.monotonic()
        with psycopg.connect(conninfo, autocommit=True) as session:
            yield time.monotonic() - begun
            for key in itertools.islice(keys, 25):
                for statement in ("SELECT a FROM ordinary WHERE id = %s", "INSERT INTO ordinary VALUES (%s, 1)"):
                    begun = time.monotonic()
                    session.execute(statement, (key,))
                    yield time.monotonic() - begun
                time.sleep(0.05)
