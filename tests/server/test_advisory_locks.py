"""Advisory locks are acquired, shared, waited for and released by two sessions on a node as on PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.conftest import Server, until
from tests.server.play import Play, Step


def session_a(*statements: str) -> list[Step]:
    """Return steps of session a."""
    return [("a", statement) for statement in statements]


def session_b(*statements: str) -> list[Step]:
    """Return steps of session b."""
    return [("b", statement) for statement in statements]


PLAYS: dict[str, list[Step]] = {
    "session locks": [
        *session_a("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock_shared(1)"),
        *session_b("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock_shared(1), pg_try_advisory_lock(2)"),
        *session_a("SELECT pg_advisory_unlock(1)"),
        *session_b("SELECT pg_try_advisory_lock(1)"),
        *session_a("SELECT pg_advisory_unlock(1)"),
        *session_b("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock_shared(1)", "SELECT pg_advisory_unlock_shared(1)"),
        *session_a("SELECT pg_advisory_unlock_shared(1)", "SELECT pg_advisory_unlock_shared(1)", "SELECT pg_advisory_unlock(7)"),
        *session_b("SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_unlock_all()"),
        *session_a("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)", "DISCARD ALL"),
        *session_b("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)"),
    ],
    "waits for a lock": [
        *session_a("SELECT pg_advisory_lock(4276431467653423275)"),
        ("b+", "SELECT pg_advisory_lock(4276431467653423275)"),
        *session_a("SELECT pg_advisory_unlock(4276431467653423275)"),
        ("b", ""),
        ("a+", "SELECT pg_advisory_xact_lock_shared(4276431467653423275)"),
        *session_b("SELECT pg_advisory_unlock_all()"),
        ("a", ""),
    ],
    "transaction locks": [
        *session_a("BEGIN", "SELECT pg_advisory_xact_lock(1)", "SELECT pg_advisory_unlock(1)", "SELECT pg_advisory_unlock_all()"),
        *session_b("SELECT pg_try_advisory_xact_lock(1)"),
        *session_a("COMMIT"),
        *session_b("SELECT pg_try_advisory_xact_lock(1)", "SELECT pg_try_advisory_xact_lock(1)"),
        *session_a("SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"),
    ],
    "session locks stay after a rollback": [
        *session_a("BEGIN", "SELECT pg_advisory_lock(1), pg_advisory_xact_lock(2)", "ROLLBACK"),
        *session_b("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)"),
    ],
    "locks acquired after a savepoint": [
        *session_a("BEGIN", "SELECT pg_advisory_xact_lock(1)", "SAVEPOINT s", "SELECT pg_advisory_xact_lock(2), pg_advisory_lock(3)"),
        *session_b("SELECT pg_try_advisory_lock(2)"),
        *session_a("ROLLBACK TO s"),
        *session_b("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_lock(3)"),
        *session_a("SELECT pg_advisory_xact_lock(4)", "RELEASE s"),
        *session_b("SELECT pg_try_advisory_lock(4)"),
        *session_a("COMMIT"),
        *session_b("SELECT pg_try_advisory_lock(4)"),
    ],
    "an error releases transaction locks immediately": [
        *session_a("BEGIN", "SELECT pg_advisory_xact_lock(1)", "SAVEPOINT s", "SELECT pg_advisory_xact_lock(2)", "SELECT 1/0"),
        *session_b("SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2)"),
        *session_a("ROLLBACK", "BEGIN", "SELECT pg_advisory_xact_lock(3)", "SELECT 1/0"),
        *session_b("SELECT pg_try_advisory_lock(3)"),
        *session_a("ROLLBACK"),
    ],
    "one bigint and two integers are different locks": [
        *session_a("SELECT pg_advisory_lock(1), pg_advisory_lock(0, 2), pg_advisory_lock(-1, 3)"),
        *session_b("SELECT pg_try_advisory_lock(0, 1), pg_try_advisory_lock(2), pg_try_advisory_lock(0, 2), pg_try_advisory_lock(-1, 3)"),
        *session_b("SELECT pg_try_advisory_xact_lock(-1, 3), pg_try_advisory_xact_lock_shared(2, 3)", "SELECT pg_advisory_unlock(0, 1)"),
    ],
    "pg_locks shows advisory locks": [
        *session_a("SELECT pg_advisory_lock(4276431467653423275), pg_advisory_lock_shared(-1, 3), pg_advisory_lock(-1, 3)"),
        *session_a("BEGIN", "SELECT pg_advisory_xact_lock_shared(7)"),
        ("b+", "SELECT pg_advisory_lock(-1, 3)"),
        *session_a(
            "SELECT classid, objid, objsubid, mode, granted, pid = pg_backend_pid() FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1, 2, 3, 4, 5",
            "COMMIT", "SELECT pg_advisory_unlock_all()",
        ),
        ("b", ""),
    ],
    "NULL acquires no lock": session_a("SELECT pg_advisory_lock(NULL), pg_try_advisory_lock(NULL), pg_advisory_unlock(1, NULL)"),
    "lock_timeout ends a wait": [
        *session_a("SELECT pg_advisory_lock(1)"),
        *session_b("SET lock_timeout = '100ms'", "SELECT pg_advisory_lock(1)", "SELECT pg_advisory_lock_shared(1)"),
        *session_a("SELECT pg_advisory_unlock(1)"),
        *session_b("SELECT pg_advisory_lock_shared(1)"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
def test_advisory_locks_behave_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    on_node, on_postgres = (play.run(PLAYS[name]) for play in plays)
    assert on_node == on_postgres


def test_advisory_lock_of_a_lost_session_is_released_and_its_wait_is_shown(node: Server) -> None:
    conninfo = node.conninfo(node.new_database())
    with (
        psycopg.connect(conninfo, autocommit=True) as holder,
        psycopg.connect(conninfo, autocommit=True) as waiter,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.execute("SELECT pg_advisory_lock(1)")
        waiting = pool.submit(waiter.execute, "SELECT pg_advisory_lock(%s)", (1,))
        query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        until(
            lambda: holder.execute(query, (waiter.info.backend_pid,)).fetchone() == ("advisory",),
            "the session does not wait for the advisory lock",
        )
        holder.close()
        waiting.result(30)
        assert waiter.execute("SELECT pg_advisory_unlock(1)").fetchone() == (True,)


def test_cycle_of_an_advisory_lock_and_a_table_lock_is_a_deadlock(node: Server) -> None:
    conninfo = node.conninfo(node.new_database())
    with (
        psycopg.connect(conninfo, autocommit=True) as first,
        psycopg.connect(conninfo, autocommit=True) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("CREATE TABLE t (a int)")
        first.execute("SELECT pg_advisory_lock(1)")
        second.execute("BEGIN; LOCK TABLE t")
        waiting = pool.submit(first.execute, "BEGIN; LOCK TABLE t")
        until(lambda: waiting.running() and waits(first, conninfo), "the session does not wait for the table lock")
        with pytest.raises(psycopg.errors.DeadlockDetected):
            second.execute("SELECT pg_advisory_lock(1)")
        waiting.result(30)


def waits(session: psycopg.Connection[object], conninfo: str) -> bool:
    """Return whether a session waits for a lock."""
    with psycopg.connect(conninfo, autocommit=True) as looking:
        row = looking.execute("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", (session.info.backend_pid,)).fetchone()
    return row == ("Lock",)


def test_transaction_with_advisory_locks_cannot_be_prepared(node: Server) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("BEGIN; SELECT pg_advisory_xact_lock(1), pg_advisory_lock(2)")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            session.execute("PREPARE TRANSACTION 'advised'")
        assert session.execute("SELECT pg_advisory_unlock(1), pg_advisory_unlock(2)").fetchone() == (False, True)


def test_advisory_locks_beyond_the_limit_are_rejected(node: Server) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        with pytest.raises(psycopg.errors.OutOfMemory):
            session.execute("SELECT pg_advisory_lock(g) FROM generate_series(1, 100000) g")
        assert session.execute("SELECT 1").fetchone() == (1,)
