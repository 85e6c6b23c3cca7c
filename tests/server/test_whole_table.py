"""All rows of a large table are sent while they are read, and equal PostgreSQL's."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest
from tests.conftest import Server

FILLED = [
    "CREATE TABLE t (a int PRIMARY KEY, b text, c numeric(10,2), d timestamptz, gone int)",
    "INSERT INTO t SELECT g, CASE WHEN g % 7 > 0 THEN 'text ' || g END, g / 8.0, '2024-01-01 12:00+00'::timestamptz + g * interval '1 min'"
    " FROM generate_series(1, 6000) g",
    "DELETE FROM t WHERE a % 100 = 3",
    "UPDATE t SET b = 'new' WHERE a = 17",
    "ALTER TABLE t DROP COLUMN gone",
    "ALTER TABLE t ADD COLUMN e int DEFAULT 5",
    'ALTER TABLE t RENAME COLUMN b TO "B b"',
    "SET TimeZone = 'Europe/Berlin'",
]
QUERIES = [
    "SELECT * FROM t",
    'SELECT c, "B b", a, a AS again FROM t x',
    "SELECT x.* FROM t x (k, l)",
    "SELECT ALL d FROM public.t",
    "TABLE t",
]


@pytest.fixture(params=["postgres", "node"])
def session(request: pytest.FixtureRequest, postgres: Server, node: Server) -> Any:
    server = {"postgres": postgres, "node": node}[request.param]
    with psycopg.connect(server.conninfo(server.new_database()), autocommit=True, prepare_threshold=None) as connection:
        for statement in FILLED:
            connection.execute(statement)
        yield connection


def rows(session: psycopg.Connection[Any], query: str, *, binary: bool = False) -> list[tuple[Any, ...]]:
    result = session.cursor(binary=binary).execute(query).fetchall()  # type: ignore[arg-type]
    return sorted(result, key=repr)


def test_all_rows_of_a_table_equal_postgresqls(node: Server, postgres: Server) -> None:
    answers = []
    for server in (postgres, node):
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True, prepare_threshold=None) as session:
            for statement in FILLED:
                session.execute(statement)  # type: ignore[arg-type]
            names = [[statement.name for statement in session.execute(query).description or ()] for query in QUERIES]  # type: ignore[arg-type]
            results = [rows(session, query, binary=binary) for query in QUERIES for binary in (False, True)]
            answers.append((names, results))
    assert answers[0] == answers[1]
    assert len(answers[0][1][0]) == 5940


def test_cursor_returns_the_rows_of_its_snapshot(session: psycopg.Connection[Any]) -> None:
    with session.transaction():
        session.execute("INSERT INTO t VALUES (7000, 'mine')")
        with session.cursor("c") as cursor:
            cursor.execute("SELECT a FROM t")
            begun = cursor.fetchmany(10)
            session.execute("DELETE FROM t WHERE a > 10")
            session.execute("INSERT INTO t VALUES (8000, 'later')")
            fetched = begun + cursor.fetchall()
    assert len(fetched) == 5941
    assert ((7000,) in fetched, (8000,) in fetched) == (True, False)
    assert session.execute("SELECT a FROM t WHERE a > 10").fetchall() == [(8000,)]


def test_columns_without_privilege_are_rejected(session: psycopg.Connection[Any]) -> None:
    role = f"reader_{session.info.dbname}"
    session.execute(f"CREATE ROLE {role}; GRANT SELECT (a, c) ON t TO {role}; SET ROLE {role}")  # type: ignore[arg-type]
    assert len(session.execute("SELECT a, c FROM t").fetchall()) == 5940
    for query in ("SELECT * FROM t", "SELECT a, d FROM t"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(query)  # type: ignore[arg-type]


@pytest.mark.slow
def test_first_rows_of_a_long_result_are_sent_while_the_others_are_computed(node: Server) -> None:
    with psycopg.connect(node.conninfo("postgres"), autocommit=True) as session:
        began, first = time.monotonic(), None
        for number, (value,) in enumerate(session.cursor().stream("SELECT * FROM generate_series(1, 2000000)"), 1):
            first = first or time.monotonic() - began
            assert value == number
        assert number == 2000000
    assert first is not None
    assert first < (time.monotonic() - began) / 2
