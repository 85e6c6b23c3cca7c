"""Prepared statements and portals use a limited part of the memory that sessions share, and release it."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Server

from headgate.errors import PostgresError
from headgate.server.protocol.portal import Portal, PreparedStatement
from headgate.server.protocol.statement_memory import LIGHT, OF_ALL, Kept, Pool, Share
from headgate.sql.parser import Statement

SMALL = PreparedStatement("s", "SELECT 1", None, (), None)


def prepared_statements(pool: Pool) -> Kept[PreparedStatement]:
    """Return the prepared statements of another session."""
    return Kept[PreparedStatement](Share(pool))


def test_memory_of_closed_or_replaced_statements_is_released() -> None:
    pool = Pool(OF_ALL)
    share = Share(pool)
    statements, portals = Kept[PreparedStatement](share), Kept[Portal](share)
    for name in ("a", "b", "a", "c"):
        statements.keep(name, SMALL)
        portals.keep(name, Portal(name, SMALL, ()))
    assert pool.reserved == 3 * (SMALL.weight + Portal("", SMALL, ()).weight)
    statements.remove("b")
    statements.remove("b")
    portals.remove_all()
    assert (sorted(statements), pool.reserved) == (["a", "c"], 2 * SMALL.weight)


def test_all_sessions_together_have_a_limit() -> None:
    pool = Pool(3 * SMALL.weight)
    first, second = prepared_statements(pool), prepared_statements(pool)
    for name in "abc":
        first.keep(name, SMALL)
    with pytest.raises(PostgresError, match="out of memory"):
        second.keep("a", SMALL)
    first.remove_all()
    second.keep("a", SMALL)


def test_large_unnamed_statement_counts_until_it_is_replaced() -> None:
    pool = Pool(3 * LIGHT)
    heavy = PreparedStatement("", "", Statement(None, "", 0, 0, weight=2 * LIGHT), (), None)
    first, second = prepared_statements(pool), prepared_statements(pool)
    first.keep("", heavy)
    with pytest.raises(PostgresError, match="out of memory"):
        second.keep("", heavy)
    first.keep("", SMALL)
    assert pool.reserved == 0
    second.keep("", heavy)


@pytest.mark.slow
def test_prepared_statements_of_a_session_are_limited(node: Server) -> None:
    long = f"SELECT '{'x' * 12_000_000}'".encode()
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        errors = [session.pgconn.prepare(f"s{number}".encode(), long).error_message.decode() for number in range(8)]
        assert [error[:20] for error in errors] == [""] * 5 + ["ERROR:  out of memor"] * 3
        session.execute("DEALLOCATE ALL")
        assert session.pgconn.prepare(b"s0", long).error_message == b""
        assert session.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.slow
def test_one_large_unnamed_statement_or_parameter_is_accepted(node: Server) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        long = b"SELECT length('" + b"x" * 8_000_000 + b"') + length($1)"
        result = session.pgconn.exec_params(long, [b"12"])
        assert (result.error_message, result.get_value(0, 0)) == (b"", b"8000002")
        # the row is inserted by the driver, because Java's limit depends on its other work
        session.execute("CREATE TABLE kept (b bytea)")
        for parameter, form in ((b"\\x" + b"00" * 62_000_000, 0), (b"\0" * 70_000_000, 1)):
            result = session.pgconn.exec_params(b"INSERT INTO kept VALUES ($1)", [parameter], param_formats=[form])
            assert (result.error_message, result.command_status) == (b"", b"INSERT 0 1")
        session.execute("TRUNCATE kept")
