"""Cursors and portals of a node return rows, move and end as in PostgreSQL."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import Server

SCRIPT = Path(__file__).parent / "statements" / "cursors.sql"


def test_every_fetch_and_move_returns_what_postgresql_returns(postgres: Server, node: Server) -> None:
    printed = [server.script(server.new_database(), SCRIPT).splitlines() for server in (node, postgres)]
    assert printed[0] == printed[1]


@pytest.mark.slow
def test_cursor_without_scroll_can_go_back_only_a_few_rows(node: Server) -> None:
    with psycopg.connect(node.conninfo(node.new_database())) as session:
        session.execute("DECLARE wide CURSOR FOR SELECT g, repeat('x', 2000) FROM generate_series(1, 30000) g")
        assert session.execute("FETCH 2 FROM wide; FETCH PRIOR FROM wide").nextset()
        assert len(session.execute("FETCH 20000 FROM wide").fetchall()) == 20000
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cursor can only scan forward"):
            session.execute("FETCH PRIOR FROM wide")


@pytest.mark.slow
def test_large_cursor_with_hold_or_scroll_is_limited_by_temp_file_limit(node: Server) -> None:
    rows = "SELECT g, repeat('x', 2000) FROM generate_series(1, 30000) g"
    with psycopg.connect(node.conninfo(node.new_database())) as session:
        session.execute("SET LOCAL temp_file_limit = '20MB'")
        session.execute(f"DECLARE held CURSOR WITH HOLD FOR {rows}".encode())
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temporary file size exceeds temp_file_limit"):
            session.commit()
        session.execute("SET LOCAL temp_file_limit = '20MB'")
        session.execute(f"DECLARE scrolled SCROLL CURSOR FOR {rows}".encode())
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            session.execute("MOVE ALL FROM scrolled")
        session.rollback()
        session.execute(f"DECLARE kept SCROLL CURSOR WITH HOLD FOR {rows}; FETCH 3 FROM kept".encode())
        session.commit()
        assert [row[0] for row in session.execute("FETCH 29997 FROM kept")] == list(range(4, 30001))
        assert [row[0] for row in session.execute("FETCH BACKWARD 20000 FROM kept")] == list(range(29999, 9999, -1))
        assert session.execute("FETCH ABSOLUTE 15000 FROM kept").fetchone() == (15000, "x" * 2000)


def test_cursor_of_a_driver_is_described_scrolls_and_survives_an_error_after_a_savepoint(server: Server) -> None:
    """psycopg describes the portal of a cursor that DECLARE has created."""
    with psycopg.connect(server.conninfo(server.new_database())) as session:
        with session.cursor("forth", scrollable=True) as cursor:
            cursor.execute("SELECT g FROM generate_series(1, 20) g ORDER BY g")
            assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
            cursor.scroll(5)
            assert cursor.fetchone() == (9,)
            with pytest.raises(psycopg.errors.DivisionByZero), session.transaction():
                session.execute("SELECT 1 / 0")
            cursor.scroll(-4)
            assert cursor.fetchone() == (6,)
            cursor.scroll(1, mode="absolute")
            assert len(cursor.fetchall()) == 19
        with session.cursor("binary") as cursor:
            cursor.execute("SELECT g::int8 AS x, g::text AS y FROM generate_series(1, 20) g WHERE g > %s ORDER BY 1", [5], binary=True)
            assert cursor.fetchmany(2) == [(6, "6"), (7, "7")]
        with session.cursor("held", withhold=True) as cursor:
            cursor.execute("SELECT g FROM generate_series(1, 5) g ORDER BY g")
            assert cursor.fetchmany(2) == [(1,), (2,)]
            session.commit()
            assert cursor.fetchall() == [(3,), (4,), (5,)]


def run(link: psycopg.Connection, *messages: tuple[str, Any]) -> list[Any]:
    """Return the result of each libpq call: rows, or SQLSTATE and message."""
    results: list[Any] = []
    for name, arguments in messages:
        answer = getattr(link.pgconn, name)(*arguments)
        if answer.error_message:
            results.append(tuple((answer.error_field(field) or b"").decode() for field in (67, 77)))
        else:
            rows = [[answer.get_value(row, column) for column in range(answer.nfields)] for row in range(answer.ntuples)]
            results.append(rows or answer.command_status)
    return results


CHANGES = ("ADD COLUMN c int", "DROP COLUMN b", "RENAME COLUMN b TO z", "ALTER COLUMN b TYPE varchar(5)", "ALTER COLUMN b TYPE text")


@pytest.mark.parametrize("change", CHANGES)
def test_prepared_statement_whose_columns_have_changed_is_rejected_until_it_is_prepared_again(
    postgres: Server, node: Server, change: str
) -> None:
    answers_of_servers = []
    for server in (node, postgres):
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as link:
            link.execute("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'one')")
            link.execute("PREPARE spoken AS SELECT * FROM t")
            link.pgconn.prepare(b"all", b"SELECT * FROM t")
            link.pgconn.prepare(b"one", b"SELECT a FROM t")
            link.pgconn.prepare(b"added", b"INSERT INTO t (a) VALUES ($1) RETURNING *")
            link.execute(f"ALTER TABLE t {change}")  # type: ignore[arg-type]
            answers = run(
                link,
                ("exec_prepared", (b"all", [])),
                ("exec_prepared", (b"one", [])),
                ("exec_prepared", (b"added", [b"2"])),
                ("exec_", (b"EXECUTE spoken",)),
                ("exec_", (b"SELECT count(*) FROM t",)),
            )
            answers_of_servers.append(answers)
    assert answers_of_servers[0] == answers_of_servers[1]


def test_fetch_and_move_run_a_portal_of_bind(server: Server) -> None:
    """asyncpg moves in a cursor before it fetches the first row."""
    with _connected(server) as client:
        client.sendall(_query("BEGIN"))
        _answers(client)
        bind = b"p\0\0" + struct.pack("!hhi", 0, 1, 1) + b"2" + struct.pack("!h", 0)
        parse = b"\0SELECT g FROM generate_series(1, 9) g WHERE g > $1 ORDER BY g\0" + struct.pack("!hi", 1, 23)
        client.sendall(_packet(b"P", parse) + _packet(b"B", bind) + _packet(b"S", b""))
        _answers(client)
        client.sendall(_query("MOVE 2 FROM p; FETCH 1 FROM p"))
        assert _answers(client) == [b"C:MOVE 2", b"D:5", b"C:FETCH 1"]
        client.sendall(_packet(b"E", b"p\0" + struct.pack("!i", 2)) + _packet(b"S", b""))
        assert _answers(client) == [b"D:6", b"D:7"]
        client.sendall(_query("CLOSE p; FETCH 1 FROM p"))
        assert _answers(client) == [b"C:CLOSE CURSOR", b"E:34000"]


def test_execute_moves_the_cursor_of_declare(server: Server) -> None:
    with _connected(server) as client:
        client.sendall(
            _query("CREATE TABLE t (a int PRIMARY KEY, d date); INSERT INTO t SELECT g, '2024-01-31' FROM generate_series(1, 5) g")
        )
        _answers(client)
        client.sendall(_query("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT a FROM t ORDER BY a; FETCH 2 FROM c; MOVE BACKWARD ALL IN c"))
        _answers(client)
        client.sendall(
            _execute("c", 3) + _packet(b"S", b"") + _query("UPDATE t SET a = 30 WHERE CURRENT OF c RETURNING d; FETCH PRIOR FROM c")
        )
        assert _answers(client) == [b"D:1", b"D:2", b"D:3"]
        assert _answers(client) == [b"D:2024-01-31", b"C:UPDATE 1", b"D:2", b"C:FETCH 1"]
        client.sendall(_query("SET LOCAL datestyle = german; DECLARE e BINARY CURSOR FOR SELECT d, a FROM t ORDER BY a"))
        _answers(client)
        client.sendall(_execute("e", 1) + _execute("e", 0) + _packet(b"S", b"") + _query("SELECT max(a) FROM t"))
        assert [answer[:12] for answer in _answers(client)] == [*[b"D:31.01.2024"] * 5, b"C:SELECT 4"]
        assert _answers(client) == [b"D:30", b"C:SELECT 1"]


def test_pipeline_skips_messages_to_sync_after_an_error_and_counts_what_it_has_sent(server: Server) -> None:
    sync = _packet(b"S", b"")
    with _connected(server) as client:
        client.sendall(_run("SELECT 1 / (SELECT 0)") + _query("CREATE TABLE t (a int)") + sync + _run("SELECT count(*) FROM t") + sync)
        assert [_answers(client), _answers(client)] == [[b"E:22012"], [b"E:42P01"]]
        client.sendall(
            _query("CREATE TABLE t (a int)") + _run("INSERT INTO t VALUES (1), (2), (3) RETURNING a", 2) + _execute("", 2) + sync
        )
        assert [_answers(client), _answers(client)] == [[b"C:CREATE TABLE"], [b"D:1", b"D:2", b"D:3", b"C:INSERT 0 1"]]
        client.sendall(
            _run("SELECT 2")
            + _run("COMMIT")
            + _run("VACUUM t")
            + _run("INSERT INTO t VALUES (4)")
            + _run("SELECT 1 / (a - a) FROM t")
            + sync
        )
        assert _answers(client) == [b"D:2", b"C:SELECT 1", b"C:COMMIT", b"C:VACUUM", b"C:INSERT 0 1", b"E:22012"]
        client.sendall(
            _run("CREATE DATABASE kept_of_pipeline")
            + _run("SELECT 1 / (a - a) FROM t")
            + sync
            + _run("DROP DATABASE kept_of_pipeline")
            + sync
        )
        assert [_answers(client), _answers(client)] == [[b"C:CREATE DATABASE", b"E:22012"], [b"C:DROP DATABASE"]]
        client.sendall(_query("BEGIN; SELECT count(*) FROM t; SELECT nosuch") + _run("") + sync)
        assert [_answers(client), _answers(client)] == [[b"C:BEGIN", b"D:3", b"C:SELECT 1", b"E:42703"], [b"E:25P02"]]


def test_portals_and_statements_of_a_failed_block_keep_their_names(server: Server) -> None:
    sync, run_p = _packet(b"S", b""), _execute("p", 0)
    describe_p = _packet(b"D", b"Pp\0")
    with _connected(server) as client:
        for text in ("SELECT 1", "CREATE TABLE t (a int)", "ROLLBACK"):
            name = text.encode() + b"\0"
            bind_p, describe_statement = _packet(b"B", b"p\0" + name + struct.pack("!hhh", 0, 0, 0)), _packet(b"D", b"S" + name)
            client.sendall(_query("BEGIN") + _packet(b"P", name + name + b"\0\0") + bind_p + sync + _query("SELECT 1 / 0"))
            assert [_answers(client) for _ in range(3)] == [[b"C:BEGIN"], [], [b"E:22012"]]
            client.sendall(run_p + sync + describe_p + sync + describe_statement + sync + _execute("nosuch", 0) + sync + _query("ROLLBACK"))
            described = [b"E:25P02"] if text == "SELECT 1" else []
            assert [_answers(client) for _ in range(5)] == [[b"E:25P02"], described, described, [b"E:34000"], [b"C:ROLLBACK"]]
            client.sendall(run_p + sync)
            assert _answers(client) == [b"E:34000"]


def test_parameters_of_queries_inside_statements_are_inferred(server: Server) -> None:
    """A driver that declares no types takes the number of parameters from the description."""
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        for text in (b"CREATE TABLE made AS SELECT $1::int AS x, b FROM t WHERE a = $2", b"SELECT $1::int AS x, b INTO into_made FROM t WHERE a = $2",
                     b"EXPLAIN SELECT $1::int FROM t WHERE a = $2", b"DECLARE c CURSOR WITH HOLD FOR SELECT $1::int FROM t WHERE a = $2"):  # fmt: skip
            assert session.pgconn.prepare(b"", text).status == psycopg.pq.ExecStatus.COMMAND_OK
            described = session.pgconn.describe_prepared(b"")
            assert [described.param_type(number) for number in range(described.nparams)] == [23, 23], text
            session.pgconn.exec_prepared(b"", [b"5", b"6"])
        assert session.execute("SELECT count(*) FROM made, into_made").fetchone() == (0,)


@contextlib.contextmanager
def _connected(server: Server) -> Iterator[socket.socket]:
    """Connect to a new database."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(60)
        client.sendall(_packet(b"", struct.pack("!i", 196608) + f"user\0postgres\0database\0{server.new_database()}\0\0".encode()))
        _answers(client)
        yield client


def _run(text: str, most: int = 0) -> bytes:
    """Return Parse, Bind and Execute for at most this many rows, 0 = all."""
    parse = _packet(b"P", b"\0" + text.encode() + b"\0" + struct.pack("!h", 0))
    return parse + _packet(b"B", b"\0\0" + struct.pack("!hhh", 0, 0, 0)) + _execute("", most)


def _execute(portal: str, most: int) -> bytes:
    return _packet(b"E", portal.encode() + b"\0" + struct.pack("!i", most))


def _packet(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _query(text: str) -> bytes:
    return _packet(b"Q", text.encode() + b"\0")


def _answers(client: socket.socket) -> list[bytes]:
    """Return the command tags, the first columns of rows and the SQLSTATEs up to ReadyForQuery."""
    answers = []
    while (head := client.recv(5, socket.MSG_WAITALL))[:1] != b"Z":
        size = struct.unpack("!i", head[1:])[0] - 4
        body = client.recv(size, socket.MSG_WAITALL) if size else b""
        if head[:1] == b"C":
            answers.append(b"C:" + body[:-1])
        elif head[:1] == b"D":
            answers.append(b"D:" + body[6:])
        elif head[:1] == b"E":
            answers.append(b"E:" + next(field[1:] for field in body.split(b"\0") if field[:1] == b"C"))
    client.recv(1, socket.MSG_WAITALL)
    return answers
