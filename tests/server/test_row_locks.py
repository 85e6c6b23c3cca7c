"""FOR UPDATE and its variants, and waits for locks that end early, behave on a node as on PostgreSQL if a node locks no more than it does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from tests.conftest import Server, until
from tests.server.play import Play, Step

TABLES: list[Step] = [
    (
        "a",
        "CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1), (2, 2); CREATE TABLE u (c int); INSERT INTO u VALUES (7);"
        " CREATE VIEW v AS SELECT * FROM t; CREATE VIEW g AS SELECT count(*) AS n FROM t; CREATE SEQUENCE s;"
        " CREATE TABLE q (a int) PARTITION BY LIST (a); CREATE TABLE q1 PARTITION OF q FOR VALUES IN (1);"
        " CREATE TABLE q2 PARTITION OF q FOR VALUES IN (2); INSERT INTO q VALUES (1), (2)",
    )
]


def session_a(*statements: str) -> list[Step]:
    """Return steps of session a."""
    return [("a", statement) for statement in statements]


def while_locked(lock: str, *statements: str) -> list[Step]:
    """Return steps in which session b runs statements while session a's transaction has run the statement `lock`."""
    return [("a", "BEGIN"), ("a", lock), *[("b", statement) for statement in statements], ("a", "COMMIT")]


PLAYS: dict[str, list[Step]] = {
    "FOR UPDATE blocks an UPDATE of the row": [
        *session_a("BEGIN", "SELECT * FROM t WHERE a = 1 FOR UPDATE"),
        ("b+", "UPDATE t SET b = b + 10 WHERE a = 1"),
        *session_a("UPDATE t SET b = b + 1 WHERE a = 1", "COMMIT"),
        ("b", ""),
        *session_a("SELECT * FROM t ORDER BY a"),
    ],
    "FOR UPDATE waits, and returns the row as it is after the wait": [
        *session_a("BEGIN", "UPDATE t SET b = 100 WHERE a = 1"),
        ("b+", "SELECT * FROM t WHERE a = 1 FOR UPDATE"),
        *session_a("COMMIT"),
        ("b", ""),
        *session_a("BEGIN", "DELETE FROM t WHERE a = 1"),
        ("b+", "SELECT * FROM t WHERE a = 1 FOR NO KEY UPDATE"),
        *session_a("COMMIT"),
        ("b", ""),
    ],
    "NOWAIT and SKIP LOCKED": [
        *while_locked(
            "SELECT * FROM t WHERE a = 1 FOR UPDATE",
            "SELECT * FROM t WHERE a = 1 FOR UPDATE NOWAIT", "SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED",
            "SELECT * FROM t WHERE a = 1", "SELECT * FROM v WHERE a = 1 FOR SHARE NOWAIT",
            "SELECT * FROM (SELECT * FROM t WHERE a = 1) x FOR UPDATE NOWAIT", "SELECT u.* FROM u, t WHERE a = 1 FOR UPDATE OF u NOWAIT",
            "SELECT u.* FROM u, t WHERE a = 1 FOR UPDATE OF u NOWAIT FOR SHARE OF t SKIP LOCKED",
        ),
        *while_locked("SELECT * FROM v WHERE a = 1 FOR UPDATE", "SELECT * FROM t WHERE a = 1 FOR UPDATE NOWAIT"),
        *while_locked(
            "UPDATE t SET b = 5 WHERE a = 1",
            "SELECT * FROM t WHERE a = 1 FOR UPDATE NOWAIT", "SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED",
        ),
        *while_locked(
            "SELECT * FROM q WHERE a = 1 FOR UPDATE",
            "SELECT * FROM q WHERE a = 1 FOR UPDATE NOWAIT", "SELECT * FROM q1 FOR UPDATE SKIP LOCKED",
        ),
        *while_locked("SELECT * FROM q1 FOR UPDATE", "SELECT * FROM q FOR UPDATE SKIP LOCKED", "SELECT * FROM q2 FOR UPDATE NOWAIT"),
        *session_a("BEGIN", "SELECT * FROM t WHERE a = 1 FOR UPDATE", "SELECT * FROM t WHERE a = 1 FOR SHARE NOWAIT"),
        *session_a("SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED", "COMMIT"),
    ],
    "consumers of a queue that use SKIP LOCKED get different rows": [
        *session_a("BEGIN", "DELETE FROM t WHERE a = (SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING a"),
        ("b", "SELECT a FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED"),
        *session_a("COMMIT"),
        ("b", "SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED"),
    ],
    "rejected FOR UPDATE clauses": session_a(
        "SELECT * FROM t UNION SELECT * FROM t FOR UPDATE", "SELECT DISTINCT a FROM t FOR UPDATE", "SELECT a FROM t GROUP BY a FOR SHARE",
        "SELECT a FROM t HAVING true FOR UPDATE", "SELECT count(*) FROM t FOR NO KEY UPDATE",
        "SELECT row_number() OVER () FROM t FOR KEY SHARE", "SELECT generate_series(1, 2) FROM t FOR UPDATE", "SELECT * FROM g FOR UPDATE",
        "SELECT * FROM (SELECT count(*) FROM t) x FOR UPDATE", "SELECT * FROM (SELECT 1 UNION SELECT 2) x FOR UPDATE",
        "SELECT * FROM t FOR UPDATE OF nosuch", "SELECT * FROM t FOR UPDATE OF public.t", "SELECT * FROM t x FOR UPDATE OF t",
        "SELECT * FROM (t JOIN u ON true) j FOR UPDATE OF j", "SELECT * FROM generate_series(1, 1) f FOR UPDATE OF f",
        "WITH w AS (SELECT * FROM t) SELECT * FROM w FOR UPDATE OF w", "SELECT * FROM s FOR UPDATE", "VALUES (1) FOR UPDATE",
        "SELECT * FROM t LEFT JOIN u ON t.a = u.c FOR UPDATE",
    ),
    "accepted FOR UPDATE clauses": session_a(
        "SELECT * FROM t x FOR UPDATE OF x", "SELECT * FROM t JOIN u ON true FOR UPDATE OF u", "SELECT * FROM generate_series(1, 1) f FOR UPDATE",
        "SELECT * FROM (VALUES (1)) w FOR UPDATE OF w", "WITH w AS (SELECT * FROM t) SELECT * FROM w FOR UPDATE", "SELECT 1 FOR UPDATE",
        "SELECT relname FROM pg_class WHERE relname = 'pg_class' FOR UPDATE", "SELECT * FROM t LEFT JOIN u ON t.a = u.c FOR UPDATE OF t",
        "SELECT * FROM q FOR UPDATE", "SELECT * FROM v FOR UPDATE", "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u FOR UPDATE)",
        "INSERT INTO u SELECT a FROM t FOR UPDATE", "CREATE TABLE x AS SELECT * FROM t FOR UPDATE",
    ),
    "privileges for FOR UPDATE": session_a(
        "CREATE ROLE locker", "GRANT SELECT ON t, v TO locker", "SET ROLE locker", "SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR SHARE",
        "SELECT * FROM v FOR UPDATE", "RESET ROLE", "GRANT UPDATE (b) ON t TO locker", "SET ROLE locker", "SELECT * FROM t FOR UPDATE",
        "RESET ROLE", "DROP OWNED BY locker", "DROP ROLE locker",
    ),
    "lock_timeout and statement_timeout end a wait for a row": [
        *session_a("BEGIN", "UPDATE t SET b = 1 WHERE a = 2"),
        ("b", "SET lock_timeout = '200ms'"),
        ("b", "SELECT * FROM t WHERE a = 2 FOR UPDATE"),
        ("b", "UPDATE t SET b = 9 WHERE a = 2"),
        ("b", "DELETE FROM t WHERE a = 2"),
        ("b", "TRUNCATE t"),
        ("b", "ALTER TABLE t ADD x int"),
        ("b", "DROP TABLE t CASCADE"),
        ("b", "BEGIN"),
        ("b", "LOCK TABLE t"),
        ("b", "SELECT 1"),
        ("b", "ROLLBACK"),
        ("b", "SET lock_timeout = 0"),
        ("b", "SET statement_timeout = '200ms'"),
        ("b", "UPDATE t SET b = 9 WHERE a = 2"),
        *session_a("COMMIT"),
    ],
    "lock_timeout ends the wait for a key": [
        *session_a("BEGIN", "INSERT INTO t VALUES (50, 50)"),
        ("b", "SET lock_timeout = '200ms'"),
        ("b", "INSERT INTO t VALUES (50, 51)"),
        ("b", "BEGIN"),
        ("b", "INSERT INTO t VALUES (50, 51)"),
        ("b", "SELECT 1"),
        ("b", "ROLLBACK"),
        *session_a("COMMIT"),
    ],
}  # fmt: skip


LONG = (
    "lock_timeout and statement_timeout end a wait for a row",
    "lock_timeout ends the wait for a key",
    "FOR UPDATE blocks an UPDATE of the row",
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else []) for name in PLAYS])
def test_rows_are_locked_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    on_node, on_postgres = (play.run([*TABLES, *PLAYS[name]]) for play in plays)
    assert on_node == on_postgres


WAITS = {
    "a row": ("UPDATE t SET b = 1 WHERE a = 1", "SELECT * FROM t WHERE a = 1 FOR UPDATE"),
    "an update": ("UPDATE t SET b = 1 WHERE a = 1", "UPDATE t SET b = 2 WHERE a = 1"),
    "a key": ("INSERT INTO t VALUES (9, 9)", "INSERT INTO t VALUES (9, 9)"),
    "a table": ("LOCK TABLE t", "TRUNCATE t"),
}
ENDS = {
    "pg_cancel_backend": ("57014", "canceling statement due to user request"),
    "pg_terminate_backend": ("57P01", "terminating connection due to administrator command"),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("end", ENDS)
def test_wait_for_a_lock_is_shown_and_can_be_ended(node: Server, postgres: Server, wait: str, end: str) -> None:
    for server in (node, postgres):
        assert _error_of_ended_wait(server.conninfo(server.new_database()), *WAITS[wait], end) == ENDS[end]


def _error_of_ended_wait(conninfo: str, lock: str, statement: str, end: str) -> tuple[str | None, str | None]:
    """Return the error of a session whose wait for a lock is ended by the function `end`. Check that the lock is free afterwards."""
    with (
        psycopg.connect(conninfo) as first,
        psycopg.connect(conninfo, autocommit=True) as second,
        psycopg.connect(conninfo, autocommit=True) as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        first.execute("INSERT INTO t VALUES (1, 1)")
        first.commit()
        first.execute(lock.encode())
        waiting, pid = pool.submit(second.execute, statement.encode()), second.info.backend_pid
        query = "SELECT wait_event_type, state FROM pg_stat_activity WHERE pid = %s"
        until(lambda: watcher.execute(query, (pid,)).fetchone() == ("Lock", "active"), "pg_stat_activity does not show the wait")
        watcher.execute(sql.SQL("SELECT {}({})").format(sql.SQL(end), pid))
        error = waiting.exception(10)
        assert isinstance(error, psycopg.Error)
        first.rollback()
        watcher.execute("UPDATE t SET b = 3 WHERE a = 1")
        return error.sqlstate, error.diag.message_primary


def test_wait_for_a_lock_is_shown_in_pg_locks(node: Server) -> None:
    conninfo = node.conninfo(node.new_database())
    query = "SELECT locktype, mode, granted FROM pg_locks WHERE pid = %s AND relation = 't'::regclass"
    with (
        psycopg.connect(conninfo, autocommit=True) as holder,
        psycopg.connect(conninfo, autocommit=True) as waiter,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        holder.execute("INSERT INTO t VALUES (1, 1)")
        holder.execute("BEGIN; UPDATE t SET b = 2")
        assert ("relation", "ExclusiveLock", True) in holder.execute(query, (holder.info.backend_pid,)).fetchall()
        waiting = pool.submit(waiter.execute, "UPDATE t SET b = 3")
        until(
            lambda: ("relation", "ExclusiveLock", False) in holder.execute(query, (waiter.info.backend_pid,)).fetchall(),
            "the waiting session is not shown",
        )
        assert holder.execute("SELECT pg_blocking_pids(%s)", (waiter.info.backend_pid,)).fetchone() == ([holder.info.backend_pid],)
        blocked = "SELECT pg_isolation_test_session_is_blocked(%s, %s)"
        for pids, is_blocked in (([0, holder.info.backend_pid], True), ([waiter.info.backend_pid], False)):
            assert holder.execute(blocked, (waiter.info.backend_pid, pids)).fetchone() == (is_blocked,)
        holder.execute("COMMIT")
        waiting.result(30)
        assert holder.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,)
        assert holder.execute(query, (waiter.info.backend_pid,)).fetchall() == []
        holder.execute("BEGIN; UPDATE t SET b = 4; PREPARE TRANSACTION 'shown'")
        assert holder.execute("SELECT pid FROM pg_locks WHERE relation = 't'::regclass AND mode = 'ExclusiveLock'").fetchall() == [(None,)]
        holder.execute("COMMIT PREPARED 'shown'")
