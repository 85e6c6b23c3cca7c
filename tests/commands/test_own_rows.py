"""VOLATILE functions that read the table that their statement changes: a node rejects what it cannot evaluate row by row."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Server

COUNT = "CREATE FUNCTION {0}() RETURNS bigint {0} LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM t); END $$"
GUARDED = """CREATE FUNCTION guarded() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN RETURN volatile(); EXCEPTION WHEN OTHERS THEN RETURN -1; END $$"""
REJECTED = (
    "INSERT INTO t VALUES (volatile()), (volatile())",
    "INSERT INTO t SELECT volatile() FROM generate_series(1, 2) g",
    "INSERT INTO t SELECT volatile() UNION ALL SELECT volatile()",
    "INSERT INTO t SELECT guarded() FROM generate_series(1, 2) g",
    "INSERT INTO d VALUES (1), (2)",
    "UPDATE t SET a = volatile()",
    "DELETE FROM t WHERE volatile() > 1",
    "UPDATE t SET a = 1 RETURNING volatile()",
)
ACCEPTED = (
    "INSERT INTO t VALUES (stable()), (stable())",
    "INSERT INTO t VALUES (volatile())",
    "UPDATE t SET a = stable()",
    "UPDATE t SET a = 2 + volatile() WHERE a = 2",
    "DELETE FROM t WHERE volatile() > 100",
    "INSERT INTO d VALUES (1)",
)


@pytest.mark.slow
def test_volatile_function_that_would_see_rows_of_its_statement_is_rejected(node: Server) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE t (a bigint); INSERT INTO t VALUES (1), (2)")
        session.execute("; ".join(map(COUNT.format, ("volatile", "stable"))))
        session.execute(GUARDED)
        session.execute(COUNT.format("volatile").replace("volatile()", "count_d()").replace("FROM t", "FROM d"))
        session.execute("CREATE TABLE d (a int, n bigint DEFAULT count_d())")
        for statement in REJECTED:
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="VOLATILE function that is called for several rows"):
                session.execute(statement)
        assert session.execute("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]
        for statement in ACCEPTED:
            session.execute(statement)
        assert session.execute("SELECT a, count(*) FROM t GROUP BY a ORDER BY a").fetchall() == [(5, 5)]
