"""Prepared statements and portals take a bounded part of the memory that sessions share, and give it back."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Server

from headgate.errors import PostgresError
from headgate.server.protocol.portal import Portal, PreparedStatement
from headgate.server.protocol.statement_memory import LIGHT, OF_ALL, Kept, Pool, Share
from headgate.sql.parser import Statement

SMALL = PreparedStatement("s", "SELECT 1", None, (), None)


def kept(pool: Pool) -> Kept[PreparedStatement]:
    """The prepared statements of another session."""
    return Kept[PreparedStatement](Share(pool))


def test_what_is_let_go_of_or_replaced_is_given_back() -> None:
    pool = Pool(OF_ALL)
    share = Share(pool)
    statements, portals = Kept[PreparedStatement](share), Kept[Portal](share)
    for name in ("a", "b", "a", "c"):
        statements.keep(name, SMALL)
        portals.keep(name, Portal(name, SMALL, ()))
    assert pool.taken == 3 * (SMALL.weight + Portal("", SMALL, ()).weight)
    statements.let_go("b")
    statements.let_go("b")
    portals.let_go_all()
    assert (sorted(statements), pool.taken) == (["a", "c"], 2 * SMALL.weight)


def test_all_sessions_together_have_a_limit() -> None:
    pool = Pool(3 * SMALL.weight)
    one, other = kept(pool), kept(pool)
    for name in "abc":
        one.keep(name, SMALL)
    with pytest.raises(PostgresError, match="out of memory"):
        other.keep("a", SMALL)
    one.let_go_all()
    other.keep("a", SMALL)


def test_a_heavy_statement_without_a_name_counts_for_the_node_until_the_next_takes_its_place() -> None:
    pool = Pool(3 * LIGHT)
    heavy = PreparedStatement("", "", Statement(None, "", 0, 0, weight=2 * LIGHT), (), None)
    one, other = kept(pool), kept(pool)
    one.keep("", heavy)
    with pytest.raises(PostgresError, match="out of memory"):
        other.keep("", heavy)
    one.keep("", SMALL)
    assert pool.taken == 0
    other.keep("", heavy)


def test_a_session_prepared_statements_until_the_node_had_no_memory(node: Server) -> None:
    long = f"SELECT '{'x' * 12_000_000}'".encode()
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        said = [session.pgconn.prepare(f"s{place}".encode(), long).error_message.decode() for place in range(8)]
        assert [each[:20] for each in said] == [""] * 5 + ["ERROR:  out of memor"] * 3
        session.execute("DEALLOCATE ALL")
        assert session.pgconn.prepare(b"s0", long).error_message == b""
        assert session.execute("SELECT 1").fetchall() == [(1,)]


def test_one_long_statement_and_one_long_parameter_without_a_name_were_refused(node: Server) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        long = b"SELECT length('" + b"x" * 8_000_000 + b"') + length($1)"
        found = session.pgconn.exec_params(long, [b"12"])
        assert (found.error_message, found.get_value(0, 0)) == (b"", b"8000002")
        # a row that is added, which is nothing to Java: how much that may take depends on what else it does
        session.execute("CREATE TABLE kept (b bytea)")
        for given, form in ((b"\\x" + b"00" * 62_000_000, 0), (b"\0" * 70_000_000, 1)):
            found = session.pgconn.exec_params(b"INSERT INTO kept VALUES ($1)", [given], param_formats=[form])
            assert (found.error_message, found.command_status) == (b"", b"INSERT 0 1")
        session.execute("TRUNCATE kept")
