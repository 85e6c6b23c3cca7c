"""pg_stat_statements combines statements that differ only in constants, hides those of others, and keeps a limited number."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest
from tests.conftest import NodeServer

from headgate.server.monitoring.statement_statistics import StatementCounts, StatementKey, StatementStatistics
from headgate.sql.parser import SMALL

OF_DATABASE: LiteralString = """SELECT query, calls, rows FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND query LIKE %s ORDER BY query"""


@pytest.fixture
def session(node: NodeServer) -> Any:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as connection:
        yield connection


def counted(session: psycopg.Connection[Any], pattern: str) -> list[tuple[Any, ...]]:
    return session.execute(OF_DATABASE, (pattern,)).fetchall()


def entries(statistics: StatementStatistics) -> dict[str, tuple[StatementKey, StatementCounts]]:
    return {counts.text: (key, counts) for key, counts in statistics.rows()}


def test_statements_that_differ_only_in_constants_are_one_entry(session: psycopg.Connection[Any]) -> None:
    session.execute("CREATE TABLE counted (id int PRIMARY KEY, t text)")
    session.execute("INSERT INTO counted VALUES (1, 'a'), (2, 'b')")
    session.execute("INSERT INTO counted VALUES (3, 'c'), (4, 'd'); SELECT t FROM counted WHERE id = 1; SELECT t FROM counted WHERE id > 2")
    session.execute("SELECT t FROM counted WHERE id = %s", (3,), prepare=True)
    assert counted(session, "%counted%") == [
        ("CREATE TABLE counted (id int PRIMARY KEY, t text)", 1, 0),
        ("INSERT INTO counted VALUES ($1, $2), ($3, $4)", 2, 4),
        ("SELECT t FROM counted WHERE id = $1", 2, 2),
        ("SELECT t FROM counted WHERE id > $1", 1, 2),
    ]


def test_utility_statements_keep_their_constants_as_in_postgresql_15(session: psycopg.Connection[Any]) -> None:
    session.execute("BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 30) AS parted")
    session.execute("FETCH 10 FROM c")
    session.execute("FETCH 20 FROM c; COMMIT")
    assert counted(session, "FETCH%") == [("FETCH 10 FROM c", 1, 10), ("FETCH 20 FROM c", 1, 20)]


def test_failed_statement_is_not_counted(session: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.execute("SELECT 1 / 0 AS failing")
    assert counted(session, "%failing%") == []


def test_statements_of_others_and_passwords_are_not_shown(session: psycopg.Connection[Any]) -> None:
    session.execute("CREATE ROLE statement_reader PASSWORD 'hush'")
    session.execute("ALTER SYSTEM SET \"app.secret_key\" = 'hush'")
    session.execute('ALTER SYSTEM RESET "app.secret_key"')
    session.execute("SELECT 'mine' AS statement_of_mine")
    session.execute("SET ROLE statement_reader")
    session.execute("SELECT 'his' AS statement_of_his")
    entries_shown = session.execute("SELECT query, queryid FROM pg_stat_statements").fetchall()
    assert {query for query, _ in entries_shown} >= {"<insufficient privilege>", "SELECT $1 AS statement_of_his"}
    assert not any("mine" in query or "hush" in query for query, _ in entries_shown)
    assert {number is None for query, number in entries_shown if query == "<insufficient privilege>"} == {True}
    session.execute("RESET ROLE")
    assert session.execute("SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%hush%'").fetchone() == (0,)
    session.execute("DROP ROLE statement_reader")


def test_least_used_statements_are_evicted() -> None:
    statistics = StatementStatistics(100)
    for number in range(1000):
        statistics.ran(10, 5, f"SELECT a{number} FROM t", "SelectStmt", 1.0, "SELECT 1")
        statistics.ran(10, 5, "SELECT often FROM t", "SelectStmt", 2.0, "SELECT 1")
    remaining = entries(statistics)
    assert len(remaining) <= 100
    assert remaining["SELECT often FROM t"][1].calls == 1000


def test_times_have_minimum_maximum_mean_and_deviation() -> None:
    statistics = StatementStatistics(100)
    for took in (1.0, 2.0, 6.0):
        statistics.ran(10, 5, "SELECT 1", "SelectStmt", took, "SELECT 1")
    (_, counts) = entries(statistics)["SELECT $1"]
    assert (counts.least, counts.greatest, counts.mean, counts.total, counts.rows) == (1.0, 6.0, 3.0, 9.0, 3)
    assert counts.deviation == pytest.approx(14.0)


def test_continued_portal_is_not_a_separate_call() -> None:
    statistics = StatementStatistics(100)
    for calls in (1, 0, 0):
        statistics.ran(10, 5, "SELECT a FROM t", "SelectStmt", 2.0, "SELECT 10", calls=calls)
    (_, counts) = entries(statistics)["SELECT a FROM t"]
    assert (counts.calls, counts.rows, counts.total) == (1, 30, 6.0)


def test_huge_texts_and_execute_are_not_counted_nor_anything_with_a_limit_of_zero() -> None:
    statistics, none = StatementStatistics(100), StatementStatistics(0)
    statistics.ran(10, 5, f"SELECT '{'x' * SMALL}'", "SelectStmt", 1.0, "SELECT 1")
    statistics.ran(10, 5, "EXECUTE p", "ExecuteStmt", 1.0, "SELECT 1")
    none.ran(10, 5, "SELECT 1", "SelectStmt", 1.0, "SELECT 1")
    assert [*statistics.rows(), *none.rows()] == []


def test_statistics_can_be_reset_for_a_statement_and_for_a_database(session: psycopg.Connection[Any]) -> None:
    session.execute("SELECT 1 AS forgotten")
    session.execute("SELECT 1 + 1 AS kept")
    session.execute("SELECT pg_stat_statements_reset(userid, dbid, queryid) FROM pg_stat_statements WHERE query LIKE '%AS forgotten'")
    assert counted(session, "SELECT $1 %") == [("SELECT $1 + $2 AS kept", 1, 1)]
    session.execute("SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = current_database()")
    assert counted(session, "SELECT $1 %") == []


def test_only_superusers_can_reset_and_null_names_no_statement(session: psycopg.Connection[Any]) -> None:
    session.execute("CREATE ROLE forgetful; SELECT 2 AS lasting")
    session.execute("SELECT pg_stat_statements_reset(0, 0, NULL)")
    session.execute("SET ROLE forgetful")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function pg_stat_statements_reset"):
        session.execute("SELECT pg_stat_statements_reset()")
    session.execute("RESET ROLE")
    assert counted(session, "%lasting") == [("SELECT $1 AS lasting", 1, 1)]
