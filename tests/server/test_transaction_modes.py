"""Isolation level, READ ONLY and DEFERRABLE can be set, and READ ONLY rejects writes, as in PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Server
from tests.server.play import Play, Step

OBJECTS: list[Step] = [
    (
        "a",
        "CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1); CREATE VIEW v AS SELECT * FROM t; CREATE INDEX i ON t (b);"
        " CREATE SEQUENCE s; CREATE TEMP TABLE tt (a serial, b int); CREATE TEMP SEQUENCE ts; CREATE TYPE e AS ENUM ('a');"
        " CREATE DOMAIN d AS int; CREATE SCHEMA sc; CREATE PUBLICATION p",
    )
]


def session_a(*statements: str) -> list[Step]:
    """Return steps of session a."""
    return [("a", statement) for statement in statements]


def alone(*statements: str, begin: str = "BEGIN READ ONLY") -> list[Step]:
    """Return each statement in a transaction that is rolled back."""
    return [step for statement in statements for step in session_a(begin, statement, "ROLLBACK")]


PLAYS: dict[str, list[Step]] = {
    "READ ONLY transactions cannot write": alone(
        "INSERT INTO t VALUES (2)", "UPDATE t SET b = 2", "DELETE FROM t", "INSERT INTO v VALUES (2)", "TRUNCATE t", "TRUNCATE tt",
        "MERGE INTO t USING t x ON t.a = x.a WHEN MATCHED THEN DELETE", "COPY t FROM STDIN", "EXPLAIN SELECT 1 WHERE false",
        "WITH w AS (INSERT INTO t VALUES (3) RETURNING a) SELECT * FROM w",
        "WITH w AS (INSERT INTO t VALUES (3) RETURNING a) INSERT INTO tt SELECT * FROM w",
        "SELECT * INTO x FROM t", "CREATE TABLE x AS SELECT 1", "CREATE TEMP TABLE x AS SELECT 1", "SELECT nextval('s')",
        "SELECT setval('s', 5)", "INSERT INTO tt VALUES (nextval('s'))", "PREPARE later AS INSERT INTO t VALUES (5)", "EXECUTE later",
        "DECLARE c CURSOR FOR SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR SHARE",
        "SELECT * FROM t FOR NO KEY UPDATE", "SELECT * FROM t FOR KEY SHARE", "SELECT * FROM v FOR UPDATE",
        "SELECT * FROM (SELECT * FROM t FOR UPDATE) x",
    ),
    "READ ONLY transactions may write to temporary tables and run statements that change no data": alone(
        "INSERT INTO tt (b) VALUES (1) RETURNING *", "UPDATE tt SET a = 2", "DELETE FROM tt", "SELECT nextval('ts')", "SELECT setval('ts', 5)",
        "SELECT currval('ts')", "SELECT * FROM tt FOR UPDATE", "WITH w AS (INSERT INTO tt VALUES (3) RETURNING a) SELECT * FROM w",
        "LOCK TABLE t", "SET CONSTRAINTS ALL DEFERRED", "SET work_mem = '1MB'", "LISTEN x", "NOTIFY x", "UNLISTEN x", "DISCARD PLANS",
        "CHECKPOINT", "DECLARE c CURSOR FOR SELECT 1", "ANALYZE t", "REINDEX TABLE t", "SAVEPOINT s", "SHOW transaction_read_only",
    ),
    "an error in the statement itself is reported before READ ONLY": alone(
        "INSERT INTO nosuch VALUES (1)", "INSERT INTO t (nosuch) VALUES (1)", "UPDATE t SET a = nosuch", "DELETE FROM t WHERE nosuch",
        "COPY nosuch FROM STDIN",
    ),
    "READ ONLY transactions cannot run DDL": alone(
        "CREATE TABLE x (a int)", "CREATE TEMP TABLE x (a int)", "ALTER TABLE t ADD c int", "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME b TO c", "ALTER TABLE t RENAME CONSTRAINT t_pkey TO z", "ALTER TABLE t SET SCHEMA sc",
        "ALTER TABLE t OWNER TO postgres", "DROP TABLE t", "DROP TABLE IF EXISTS nosuch", "CREATE INDEX ON t (b)",
        "ALTER INDEX i RENAME TO j", "DROP INDEX i", "CREATE VIEW w AS SELECT 1", "ALTER VIEW v RENAME TO w", "ALTER VIEW v SET SCHEMA sc",
        "DROP VIEW v", "CREATE SEQUENCE z", "ALTER SEQUENCE s RESTART", "ALTER SEQUENCE s RENAME TO z", "ALTER SEQUENCE s OWNER TO postgres",
        "DROP SEQUENCE s", "CREATE SCHEMA z", "ALTER SCHEMA sc RENAME TO z", "DROP SCHEMA sc", "CREATE TYPE z AS ENUM ('b')",
        "ALTER TYPE e ADD VALUE 'c'", "ALTER TYPE e RENAME TO f", "DROP TYPE e", "CREATE DOMAIN z AS int", "ALTER DOMAIN d SET NOT NULL",
        "ALTER DOMAIN d RENAME TO z", "DROP DOMAIN d", "CREATE DATABASE z", "DROP DATABASE z", "ALTER DATABASE postgres RENAME TO z",
        "CREATE ROLE z", "CREATE USER z", "ALTER ROLE postgres LOGIN", "ALTER ROLE postgres RENAME TO z", "DROP USER z",
        "GRANT SELECT ON t TO public", "REVOKE SELECT ON t FROM public", "GRANT pg_monitor TO postgres", "REVOKE pg_monitor FROM postgres",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public", "CREATE PUBLICATION z", "ALTER PUBLICATION p ADD TABLE t",
        "ALTER PUBLICATION p RENAME TO z", "DROP PUBLICATION p", "CREATE SUBSCRIPTION z CONNECTION '' PUBLICATION p WITH (connect = false)",
        "ALTER SUBSCRIPTION z DISABLE", "DROP SUBSCRIPTION z", "CREATE POLICY z ON t", "DROP POLICY z ON t", "COMMENT ON TABLE t IS 'x'",
        "DROP OWNED BY postgres", "REASSIGN OWNED BY postgres TO postgres",
    ),
    "default_transaction_isolation is the level of each transaction": [
        *session_a("SET default_transaction_isolation = 'repeatable read'", "SHOW transaction_isolation", "BEGIN", "SELECT count(*) FROM t"),
        ("b", "INSERT INTO t VALUES (2, 2)"),
        *session_a("SELECT count(*) FROM t", "SET default_transaction_isolation = 'read committed'", "SHOW transaction_isolation"),
        *session_a("SELECT current_setting('transaction_isolation')", "COMMIT", "SHOW transaction_isolation", "SELECT count(*) FROM t"),
        *session_a("SET default_transaction_isolation = 'nope'"),
    ],
    "default_transaction_read_only is the mode of each transaction": session_a(
        "SET default_transaction_read_only = on", "INSERT INTO t VALUES (5)", "CREATE DATABASE z", "BEGIN READ WRITE",
        "INSERT INTO t VALUES (6)", "COMMIT", "BEGIN", "SELECT setting FROM pg_settings WHERE name = 'transaction_read_only'",
        "INSERT INTO t VALUES (7)", "ROLLBACK", "RESET default_transaction_read_only", "INSERT INTO t VALUES (8)",
    ),
    "the isolation level cannot be changed after a query": [
        *alone("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", begin="BEGIN; SELECT 1"),
        *alone("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", begin="BEGIN; SELECT 1"),
        *alone("SET transaction_isolation = 'repeatable read'", begin="BEGIN; SELECT 1"),
        *alone("SET transaction_isolation = 'nope'", "SELECT set_config('transaction_isolation', 'serializable', false)", begin="BEGIN"),
        *alone("BEGIN ISOLATION LEVEL SERIALIZABLE", begin="BEGIN; SELECT 1"),
        *session_a("BEGIN", "LOCK TABLE t", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SHOW transaction_isolation", "ROLLBACK"),
        *session_a("BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE", "SHOW transaction_isolation", "ROLLBACK"),
        *session_a("BEGIN", "SAVEPOINT s", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "ROLLBACK"),
    ],
    "READ ONLY can be set at any time, READ WRITE only before the first query": [
        *session_a("BEGIN READ ONLY", "SET TRANSACTION READ WRITE", "INSERT INTO t VALUES (8)", "COMMIT"),
        *session_a("BEGIN READ ONLY", "SELECT 1", "SET TRANSACTION READ WRITE", "ROLLBACK"),
        *session_a("BEGIN", "SELECT 1", "SET TRANSACTION READ ONLY", "INSERT INTO t VALUES (9)", "ROLLBACK"),
        *session_a("BEGIN READ ONLY", "SAVEPOINT s", "SET TRANSACTION READ WRITE", "ROLLBACK"),
        *session_a("BEGIN READ ONLY", "SET transaction_read_only TO DEFAULT", "SHOW transaction_read_only", "ROLLBACK"),
    ],
    "READ ONLY set after a savepoint ends with it": [
        *session_a("BEGIN", "SAVEPOINT s", "SET TRANSACTION READ ONLY", "INSERT INTO t VALUES (9)", "ROLLBACK TO s", "INSERT INTO t VALUES (10)"),
        *session_a("RELEASE s", "COMMIT", "BEGIN", "SAVEPOINT s", "SET TRANSACTION READ ONLY", "RELEASE s", "SHOW transaction_read_only", "COMMIT"),
    ],
    "modes set outside a block end with their statement": session_a(
        "SET TRANSACTION READ ONLY", "SHOW transaction_read_only", "SET transaction_read_only = on", "SHOW transaction_read_only",
        "SET LOCAL transaction_isolation = 'serializable'", "SHOW transaction_isolation", "INSERT INTO t VALUES (11)",
        "SET TRANSACTION READ ONLY; INSERT INTO t VALUES (12)",
    ),
    "SET SESSION CHARACTERISTICS sets the defaults": session_a(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY, DEFERRABLE",
        "SHOW default_transaction_isolation", "SHOW default_transaction_deferrable", "BEGIN", "SHOW transaction_isolation",
        "SHOW transaction_read_only", "SHOW transaction_deferrable", "INSERT INTO t VALUES (12)", "ROLLBACK", "RESET ALL",
        "SHOW default_transaction_read_only", "SHOW transaction_isolation",
    ),
    "AND CHAIN keeps the modes": session_a(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY DEFERRABLE", "SELECT 1", "COMMIT AND CHAIN", "SHOW transaction_isolation",
        "SHOW transaction_read_only", "SHOW transaction_deferrable", "ROLLBACK AND CHAIN", "SHOW transaction_isolation", "ROLLBACK",
        "SHOW transaction_isolation",
    ),
    "DEFERRABLE": [
        *session_a("BEGIN", "SELECT 1", "SET TRANSACTION DEFERRABLE", "ROLLBACK", "BEGIN", "SAVEPOINT s", "SET TRANSACTION DEFERRABLE", "ROLLBACK"),
        *session_a("BEGIN DEFERRABLE", "SHOW transaction_deferrable", "COMMIT", "SHOW transaction_deferrable"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
def test_transactions_have_postgresqls_modes(plays: tuple[Play, Play], name: str) -> None:
    on_node, on_postgres = (play.run([*OBJECTS, *PLAYS[name]]) for play in plays)
    if "EXPLAIN" in str(PLAYS[name]):
        on_node, on_postgres = ([step for step in results if "EXPLAIN" not in step[1]] for results in (on_node, on_postgres))
    assert on_node == on_postgres


def test_insert_with_a_with_clause_can_be_described(node: Server, postgres: Server) -> None:
    """psycopg's prepared statements describe the INSERT with its WITH clause."""
    for server in (node, postgres):
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
            session.execute("CREATE TABLE t (a int)")
            text = "WITH w AS (SELECT %s::int AS a) INSERT INTO t SELECT a FROM w RETURNING a"
            assert session.execute(text, (7,), prepare=True).fetchall() == [(7,)]
