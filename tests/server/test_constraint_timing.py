"""SET CONSTRAINTS and deferred constraints, foreign keys and unique keys behave on a node as on PostgreSQL."""

from __future__ import annotations

import pytest
from tests.server.play import Play, Step

from headgate.commands import execute
from headgate.server.session import utility

KEYS: list[Step] = [
    ("a", "CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p VALUES (1), (2)"),
    (
        "a",
        "CREATE TABLE c (n int CONSTRAINT later REFERENCES p DEFERRABLE, m int CONSTRAINT never REFERENCES p,"
        " o int CONSTRAINT first REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
    ),
]
UNIQUE: list[Step] = [
    (
        "a",
        "CREATE TABLE u (a int CONSTRAINT u1 UNIQUE DEFERRABLE, b int CONSTRAINT u2 UNIQUE DEFERRABLE INITIALLY DEFERRED);"
        " INSERT INTO u VALUES (1, 1), (2, 2)",
    )
]


def block(*statements: str, end: str = "COMMIT") -> list[Step]:
    """Return the steps of a transaction block of session a."""
    return [("a", statement) for statement in ("BEGIN", *statements, end)]


PLAYS: dict[str, list[Step]] = {
    "SET CONSTRAINTS applies until the end of its transaction": [
        *KEYS,
        *block("SET CONSTRAINTS ALL DEFERRED", "INSERT INTO c (n) VALUES (9)"),
        ("a", "TABLE c"),
        *block("SET CONSTRAINTS later DEFERRED", "INSERT INTO c (n) VALUES (9)", "INSERT INTO p VALUES (9)"),
        ("a", "TABLE c"),
        *block("SET CONSTRAINTS first IMMEDIATE", "INSERT INTO c (o) VALUES (7)"),
    ],
    "IMMEDIATE checks the deferred constraints, and only those": [
        *KEYS,
        *block("SET CONSTRAINTS later DEFERRED", "INSERT INTO c (n) VALUES (9)", "SET CONSTRAINTS later IMMEDIATE"),
        *block("SET CONSTRAINTS ALL DEFERRED", "INSERT INTO c VALUES (9, NULL, 9)", "SET CONSTRAINTS never IMMEDIATE", "TABLE c"),
        *block("INSERT INTO c (o) VALUES (9)", "SET CONSTRAINTS later IMMEDIATE", "DELETE FROM c", "SET CONSTRAINTS ALL IMMEDIATE"),
    ],
    "names of constraints are looked up inside and outside a block": [
        *KEYS,
        ("a", "SET CONSTRAINTS nosuch DEFERRED"),
        ("a", "SET CONSTRAINTS later DEFERRED"),
        *block("SET CONSTRAINTS nosuch DEFERRED"),
        *block("SET CONSTRAINTS later, nosuch DEFERRED"),
        *block("SET CONSTRAINTS never DEFERRED"),
        *block("SET CONSTRAINTS never IMMEDIATE"),
        *block("SET CONSTRAINTS p_pkey DEFERRED"),
        *block("SET CONSTRAINTS nosuch.later DEFERRED"),
        *block("SET CONSTRAINTS other.public.later DEFERRED"),
        *block("SET CONSTRAINTS public.later, first DEFERRED", "INSERT INTO c VALUES (9, NULL, 9)", "SET CONSTRAINTS later IMMEDIATE"),
    ],
    "ALL overrides the modes of single constraints": [
        *KEYS,
        *block("SET CONSTRAINTS later IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED", "INSERT INTO c (n) VALUES (9)", end="ROLLBACK"),
        *block("SET CONSTRAINTS ALL DEFERRED", "SET CONSTRAINTS later IMMEDIATE", "INSERT INTO c (o) VALUES (9)"),
        *block("SET CONSTRAINTS ALL DEFERRED", "SET CONSTRAINTS later IMMEDIATE", "INSERT INTO c (n) VALUES (9)"),
        *block("SET CONSTRAINTS ALL IMMEDIATE", "INSERT INTO c (o) VALUES (9)"),
    ],
    "ROLLBACK TO restores the modes and the pending checks of its savepoint": [
        *KEYS,
        *block("SAVEPOINT s", "SET CONSTRAINTS later DEFERRED", "ROLLBACK TO s", "INSERT INTO c (n) VALUES (9)"),
        *block("SET CONSTRAINTS later DEFERRED", "SAVEPOINT s", "INSERT INTO c (n) VALUES (9)", "ROLLBACK TO s"),
        *block(
            "SET CONSTRAINTS later DEFERRED", "SAVEPOINT s", "INSERT INTO c (n) VALUES (9)", "SET CONSTRAINTS ALL IMMEDIATE",
            "ROLLBACK TO s", "INSERT INTO c (n) VALUES (8)", "INSERT INTO p VALUES (8)",
        ),
        ("a", "TABLE c"),
        *block("SAVEPOINT s", "SET CONSTRAINTS later DEFERRED", "INSERT INTO c (n) VALUES (9)", "RELEASE s"),
        *block("SAVEPOINT s", "SET CONSTRAINTS later DEFERRED", "RELEASE s", "INSERT INTO c (n) VALUES (9)", end="ROLLBACK"),
    ],
    "a check is repeated after the row that satisfied it is rolled back": [
        *KEYS,
        *block(
            "SET CONSTRAINTS later DEFERRED", "INSERT INTO c (n) VALUES (9)", "SAVEPOINT s", "INSERT INTO p VALUES (9)",
            "SET CONSTRAINTS ALL IMMEDIATE", "ROLLBACK TO s",
        ),
        ("a", "TABLE c"),
    ],
    "statements in one message are one transaction": [
        *KEYS,
        ("a", "SET CONSTRAINTS ALL DEFERRED; INSERT INTO c (n) VALUES (9); INSERT INTO p VALUES (9)"),
        ("a", "TABLE c"),
        ("a", "SET CONSTRAINTS ALL DEFERRED; INSERT INTO c (n) VALUES (8)"),
        ("a", "INSERT INTO c (n) VALUES (8)"),
        ("a", "INSERT INTO c (o) VALUES (8)"),
    ],
    "the deferred check of a single row ends": [
        *KEYS,
        ("a", "INSERT INTO c VALUES (1, NULL, 2)"),
        *block("DELETE FROM p WHERE a = 2"),
        *block("DELETE FROM p WHERE a = 2", "INSERT INTO p VALUES (2)"),
        *block("SET CONSTRAINTS later DEFERRED", "DELETE FROM p WHERE a = 1", "SET CONSTRAINTS ALL IMMEDIATE"),
        *block("UPDATE p SET a = 3 WHERE a = 2", "SET CONSTRAINTS first IMMEDIATE"),
        *block("SET CONSTRAINTS later DEFERRED", "UPDATE p SET a = 3 WHERE a = 1", "UPDATE c SET n = 3"),
        ("a", "TABLE c"),
    ],
    "only NO ACTION is deferred": [
        ("a", "CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p VALUES (1), (2)"),
        (
            "a",
            "CREATE TABLE c (n int REFERENCES p ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,"
            " m int CONSTRAINT r REFERENCES p ON DELETE RESTRICT DEFERRABLE INITIALLY DEFERRED); INSERT INTO c VALUES (1, 2)",
        ),
        *block("DELETE FROM p WHERE a = 2"),
        *block("DELETE FROM p WHERE a = 1", "TABLE c"),
    ],
    "PREPARE TRANSACTION runs deferred checks and rolls back if one fails": [
        *KEYS,
        *block("INSERT INTO c (o) VALUES (9)", end="PREPARE TRANSACTION 'refused'"),
        ("a", "TABLE c"),
        ("a", "SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'refused'"),
        ("b", "INSERT INTO c (o) VALUES (1)"),
    ],
    "a deferrable unique key is checked at the end of the transaction": [
        *UNIQUE,
        *block("SET CONSTRAINTS u1 DEFERRED", "INSERT INTO u VALUES (1, 3)", "DELETE FROM u WHERE b = 1"),
        ("a", "SELECT * FROM u ORDER BY a, b"),
        *block("SET CONSTRAINTS u1 DEFERRED", "INSERT INTO u VALUES (1, 4)", "SET CONSTRAINTS u1 IMMEDIATE"),
        *block("INSERT INTO u VALUES (5, 2)", "UPDATE u SET b = 9 WHERE a = 2"),
        ("a", "INSERT INTO u VALUES (7, 9)"),
        ("a", "UPDATE u SET a = a + 1"),
        *block("INSERT INTO u VALUES (70, 9)"),
        *block("UPDATE u SET b = 9", "SET CONSTRAINTS ALL IMMEDIATE"),
        *block("SAVEPOINT s", "UPDATE u SET b = 9", "ROLLBACK TO s"),
        ("a", "SELECT * FROM u ORDER BY a, b"),
        ("a", "INSERT INTO u VALUES (1, 1) ON CONFLICT (a) DO NOTHING"),
        ("a", "INSERT INTO u VALUES (1, 1) ON CONFLICT DO NOTHING"),
    ],
    "a deferrable unique key is checked at the end for many rows too": [
        ("a", "CREATE TABLE u (a int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, b int)"),
        *block("INSERT INTO u SELECT g % 20000, g FROM generate_series(1, 25000) g", "DELETE FROM u WHERE b > 20000"),
        ("a", "SELECT count(*) FROM u"),
        *block("UPDATE u SET a = 1 WHERE b > 15000", "UPDATE u SET a = b WHERE b > 15000", "SET CONSTRAINTS u_pkey IMMEDIATE"),
        *block("UPDATE u SET a = 20001 WHERE b > 5", "UPDATE u SET a = b"),
        *block("UPDATE u SET a = 20001 WHERE b > 19999", "INSERT INTO u VALUES (20001, 0)"),
    ],
    "a deferrable unique key of a partitioned table defers those of its partitions": [
        ("a", "CREATE TABLE q (a int, b int, CONSTRAINT k UNIQUE (a) DEFERRABLE) PARTITION BY RANGE (a)"),
        ("a", "CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (10)"),
        ("a", "CREATE TABLE q2 PARTITION OF q FOR VALUES FROM (10) TO (20)"),
        ("a", "INSERT INTO q VALUES (1, 1), (11, 11)"),
        ("a", "INSERT INTO q VALUES (1, 1)"),
        *block("SET CONSTRAINTS k DEFERRED", "INSERT INTO q VALUES (1, 2)", "UPDATE q SET a = 1 WHERE a = 11", "SET CONSTRAINTS k IMMEDIATE"),
        *block("SET CONSTRAINTS k DEFERRED", "INSERT INTO q VALUES (1, 2)", "DELETE FROM q WHERE b = 1"),
        ("a", "SELECT * FROM q ORDER BY a, b"),
        *block("SET CONSTRAINTS q1_a_key DEFERRED", "INSERT INTO q VALUES (1, 2)", "INSERT INTO q VALUES (11, 2)"),
    ],
    "a table with pending checks can be neither altered nor dropped": [
        *KEYS,
        *[
            step
            for command in (
                "ALTER TABLE c ADD x int", "DROP TABLE c", "TRUNCATE c", "CREATE INDEX ON c (n)", "ALTER TABLE c RENAME n TO other",
                "ALTER TABLE p ADD x int",
            )
            for step in block("SET CONSTRAINTS later DEFERRED", "INSERT INTO c (n) VALUES (9)", command)
        ],
    ],
    "SET CONSTRAINTS ALL IMMEDIATE keeps temporary tables and their rows": [
        *block(
            "CREATE TEMP TABLE t (a int) ON COMMIT DROP", "INSERT INTO t VALUES (1)", "SET CONSTRAINTS ALL IMMEDIATE", "TABLE t",
        ),
        ("a", "TABLE t"),
        ("a", "CREATE TEMP TABLE t (a int) ON COMMIT DELETE ROWS"),
        *block(
            "INSERT INTO t VALUES (1)", "SET CONSTRAINTS ALL IMMEDIATE", "SAVEPOINT s", "INSERT INTO t VALUES (2)", "ROLLBACK TO s", "TABLE t",
        ),
        ("a", "TABLE t"),
        *block("SAVEPOINT s", "INSERT INTO t VALUES (2)", "ROLLBACK TO s", "INSERT INTO t VALUES (3)"),
        ("a", "TABLE t"),
        *block("INSERT INTO t VALUES (3)", "DROP TABLE t"),
    ],
}  # fmt: skip


LONG = {"a deferrable unique key is checked at the end for many rows too"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG or number % 2 else []) for number, name in enumerate(PLAYS)]
)
def test_constraints_are_checked_when_postgresql_checks_them(plays: tuple[Play, Play], name: str) -> None:
    on_node, on_postgres = (play.run(PLAYS[name]) for play in plays)
    assert on_node == on_postgres


def test_utility_commands_do_not_shadow_session_commands() -> None:
    """A statement that `utility` handles never reaches `execute`."""
    shadowed = set(utility.HANDLERS) & (set(execute.ACTIONS) | set(execute.BY_OBJECT))
    assert shadowed == set()
