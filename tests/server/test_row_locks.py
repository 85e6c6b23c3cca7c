"""FOR UPDATE and its variants, and the end of every wait for a lock, behave on a node as on PostgreSQL, if the node's locks are no coarser."""

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


def said(*statements: str) -> list[Step]:
    """What one session says."""
    return [("a", statement) for statement in statements]


def beside(lock: str, *statements: str) -> list[Step]:
    """What a second session is answered while the first has done something in a transaction."""
    return [("a", "BEGIN"), ("a", lock), *[("b", statement) for statement in statements], ("a", "COMMIT")]


PLAYS: dict[str, list[Step]] = {
    "FOR UPDATE locked nothing": [
        *said("BEGIN", "SELECT * FROM t WHERE a = 1 FOR UPDATE"),
        ("b+", "UPDATE t SET b = b + 10 WHERE a = 1"),
        *said("UPDATE t SET b = b + 1 WHERE a = 1", "COMMIT"),
        ("b", ""),
        *said("SELECT * FROM t ORDER BY a"),
    ],
    "FOR UPDATE waits, and reads what is there then": [
        *said("BEGIN", "UPDATE t SET b = 100 WHERE a = 1"),
        ("b+", "SELECT * FROM t WHERE a = 1 FOR UPDATE"),
        *said("COMMIT"),
        ("b", ""),
        *said("BEGIN", "DELETE FROM t WHERE a = 1"),
        ("b+", "SELECT * FROM t WHERE a = 1 FOR NO KEY UPDATE"),
        *said("COMMIT"),
        ("b", ""),
    ],
    "NOWAIT and SKIP LOCKED": [
        *beside(
            "SELECT * FROM t WHERE a = 1 FOR UPDATE",
            "SELECT * FROM t WHERE a = 1 FOR UPDATE NOWAIT", "SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED",
            "SELECT * FROM t WHERE a = 1", "SELECT * FROM v WHERE a = 1 FOR SHARE NOWAIT",
            "SELECT * FROM (SELECT * FROM t WHERE a = 1) x FOR UPDATE NOWAIT", "SELECT u.* FROM u, t WHERE a = 1 FOR UPDATE OF u NOWAIT",
            "SELECT u.* FROM u, t WHERE a = 1 FOR UPDATE OF u NOWAIT FOR SHARE OF t SKIP LOCKED",
        ),
        *beside("SELECT * FROM v WHERE a = 1 FOR UPDATE", "SELECT * FROM t WHERE a = 1 FOR UPDATE NOWAIT"),
        *beside(
            "UPDATE t SET b = 5 WHERE a = 1",
            "SELECT * FROM t WHERE a = 1 FOR UPDATE NOWAIT", "SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED",
        ),
        *beside(
            "SELECT * FROM q WHERE a = 1 FOR UPDATE",
            "SELECT * FROM q WHERE a = 1 FOR UPDATE NOWAIT", "SELECT * FROM q1 FOR UPDATE SKIP LOCKED",
        ),
        *beside("SELECT * FROM q1 FOR UPDATE", "SELECT * FROM q FOR UPDATE SKIP LOCKED", "SELECT * FROM q2 FOR UPDATE NOWAIT"),
        *said("BEGIN", "SELECT * FROM t WHERE a = 1 FOR UPDATE", "SELECT * FROM t WHERE a = 1 FOR SHARE NOWAIT"),
        *said("SELECT * FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED", "COMMIT"),
    ],
    "a queue whose consumers skip what is taken gives nothing twice": [
        *said("BEGIN", "DELETE FROM t WHERE a = (SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING a"),
        ("b", "SELECT a FROM t WHERE a = 1 FOR UPDATE SKIP LOCKED"),
        *said("COMMIT"),
        ("b", "SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED"),
    ],
    "what cannot be locked": said(
        "SELECT * FROM t UNION SELECT * FROM t FOR UPDATE", "SELECT DISTINCT a FROM t FOR UPDATE", "SELECT a FROM t GROUP BY a FOR SHARE",
        "SELECT a FROM t HAVING true FOR UPDATE", "SELECT count(*) FROM t FOR NO KEY UPDATE",
        "SELECT row_number() OVER () FROM t FOR KEY SHARE", "SELECT generate_series(1, 2) FROM t FOR UPDATE", "SELECT * FROM g FOR UPDATE",
        "SELECT * FROM (SELECT count(*) FROM t) x FOR UPDATE", "SELECT * FROM (SELECT 1 UNION SELECT 2) x FOR UPDATE",
        "SELECT * FROM t FOR UPDATE OF nosuch", "SELECT * FROM t FOR UPDATE OF public.t", "SELECT * FROM t x FOR UPDATE OF t",
        "SELECT * FROM (t JOIN u ON true) j FOR UPDATE OF j", "SELECT * FROM generate_series(1, 1) f FOR UPDATE OF f",
        "WITH w AS (SELECT * FROM t) SELECT * FROM w FOR UPDATE OF w", "SELECT * FROM s FOR UPDATE", "VALUES (1) FOR UPDATE",
        "SELECT * FROM t LEFT JOIN u ON t.a = u.c FOR UPDATE",
    ),
    "what can": said(
        "SELECT * FROM t x FOR UPDATE OF x", "SELECT * FROM t JOIN u ON true FOR UPDATE OF u", "SELECT * FROM generate_series(1, 1) f FOR UPDATE",
        "SELECT * FROM (VALUES (1)) w FOR UPDATE OF w", "WITH w AS (SELECT * FROM t) SELECT * FROM w FOR UPDATE", "SELECT 1 FOR UPDATE",
        "SELECT relname FROM pg_class WHERE relname = 'pg_class' FOR UPDATE", "SELECT * FROM t LEFT JOIN u ON t.a = u.c FOR UPDATE OF t",
        "SELECT * FROM q FOR UPDATE", "SELECT * FROM v FOR UPDATE", "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u FOR UPDATE)",
        "INSERT INTO u SELECT a FROM t FOR UPDATE", "CREATE TABLE x AS SELECT * FROM t FOR UPDATE",
    ),
    "who may": said(
        "CREATE ROLE locker", "GRANT SELECT ON t, v TO locker", "SET ROLE locker", "SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR SHARE",
        "SELECT * FROM v FOR UPDATE", "RESET ROLE", "GRANT UPDATE (b) ON t TO locker", "SET ROLE locker", "SELECT * FROM t FOR UPDATE",
        "RESET ROLE", "DROP OWNED BY locker", "DROP ROLE locker",
    ),
    "lock_timeout was ignored": [
        *said("BEGIN", "UPDATE t SET b = 1 WHERE a = 2"),
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
        *said("COMMIT"),
    ],
    "lock_timeout ends the wait for a key": [
        *said("BEGIN", "INSERT INTO t VALUES (50, 50)"),
        ("b", "SET lock_timeout = '200ms'"),
        ("b", "INSERT INTO t VALUES (50, 51)"),
        ("b", "BEGIN"),
        ("b", "INSERT INTO t VALUES (50, 51)"),
        ("b", "SELECT 1"),
        ("b", "ROLLBACK"),
        *said("COMMIT"),
    ],
}  # fmt: skip


LONG = ("lock_timeout was ignored", "lock_timeout ends the wait for a key", "FOR UPDATE locked nothing")


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


@pytest.mark.parametrize("waited", WAITS)
@pytest.mark.parametrize("end", ENDS)
def test_wait_for_a_lock_is_shown_and_can_be_ended(node: Server, postgres: Server, waited: str, end: str) -> None:
    for server in (node, postgres):
        assert _ended(server.conninfo(server.new_database()), *WAITS[waited], end) == ENDS[end]


def _ended(conninfo: str, has: str, wants: str, end: str) -> tuple[str | None, str | None]:
    """What a session is told that waits for another one and is ended; the lock must be free afterwards."""
    with (
        psycopg.connect(conninfo) as first,
        psycopg.connect(conninfo, autocommit=True) as second,
        psycopg.connect(conninfo, autocommit=True) as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        first.execute("INSERT INTO t VALUES (1, 1)")
        first.commit()
        first.execute(has.encode())
        waiting, pid = pool.submit(second.execute, wants.encode()), second.info.backend_pid
        query = "SELECT wait_event_type, state FROM pg_stat_activity WHERE pid = %s"
        until(lambda: watcher.execute(query, (pid,)).fetchone() == ("Lock", "active"), "the wait is not seen")
        watcher.execute(sql.SQL("SELECT {}({})").format(sql.SQL(end), pid))
        error = waiting.exception(10)
        assert isinstance(error, psycopg.Error)
        first.rollback()
        watcher.execute("UPDATE t SET b = 3 WHERE a = 1")
        return error.sqlstate, error.diag.message_primary


def test_wait_for_a_lock_is_shown_in_pg_locks(node: Server) -> None:
    """Monitoring finds waiting sessions in pg_locks."""
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
