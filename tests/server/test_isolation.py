"""Concurrent sessions of a node see each other's changes and definitions as in PostgreSQL (Hermitage's cases among them)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.conftest import Server
from tests.server.play import Play, Step

CONTENTS = "SELECT * FROM t ORDER BY a"
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b int, c text DEFAULT 'd'); INSERT INTO t VALUES (0, 0), (1, 1), (2, 2)"
REPEATABLE = ("a", "BEGIN ISOLATION LEVEL REPEATABLE READ")
BEGIN: list[Step] = [REPEATABLE, ("a", CONTENTS)]

PARTITIONED: list[Step] = [
    ("a", "CREATE TABLE r (a int) PARTITION BY LIST (a)"),
    ("a", "CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1)"),
    ("a", "CREATE TABLE rd PARTITION OF r DEFAULT"),
]


def refused(*statements: str) -> list[Step]:
    """Return steps that show that a transaction with an older snapshot fails with each of these statements, and roll it back."""
    tables = (
        "CREATE TABLE k (a int); CREATE UNIQUE INDEX ke ON k (abs(a)); INSERT INTO k VALUES (1)",
        "CREATE TABLE p (a numeric PRIMARY KEY); CREATE TABLE n (a int REFERENCES p); INSERT INTO p VALUES (1), (2); INSERT INTO n VALUES (1)",
        "CREATE TABLE x (a int); INSERT INTO x VALUES (0), (1)",
        "CREATE DOMAIN d AS int; CREATE TABLE y (a d); INSERT INTO y VALUES (1)",
    )
    return [
        *[("a", sql) for sql in tables],
        *BEGIN,
        ("b", "INSERT INTO t VALUES (3, NULL); DELETE FROM t WHERE a = 0"),
        ("b", "INSERT INTO k VALUES (-3); INSERT INTO n VALUES (2); DELETE FROM n WHERE a = 1; INSERT INTO y VALUES (2)"),
        *[step for sql in statements for step in (("a", "SAVEPOINT s"), ("a", sql), ("a", "ROLLBACK TO s"))],
        ("a", "COMMIT"),
    ]


PLAYS: dict[str, list[Step]] = {
    "an INSERT of a key that the snapshot does not show is rejected": refused(
        "INSERT INTO t VALUES (3, 0)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(3, 12000) i",
        "MERGE INTO t USING (VALUES (1), (3)) v (k) ON a = k WHEN NOT MATCHED THEN INSERT VALUES (k, 0)",
        "UPDATE t SET a = 3 WHERE a = 1",
        "INSERT INTO k VALUES (3)",
        "UPDATE k SET a = 3",
    ),
    "foreign keys and domains are checked for rows that the snapshot does not show": refused(
        "DELETE FROM p WHERE a = 2",
        "ALTER TABLE x ADD FOREIGN KEY (a) REFERENCES t",
        "ALTER DOMAIN d ADD CHECK (VALUE < 2)",
    ),
    "renaming a label of an enum changes rows that the snapshot does not show": [
        ("a", "CREATE TYPE e AS ENUM ('one', 'two'); CREATE TABLE z (n int, v e); INSERT INTO z VALUES (1, 'one')"),
        *BEGIN,
        ("b", "INSERT INTO z VALUES (2, 'one')"),
        ("a", "ALTER TYPE e RENAME VALUE 'one' TO 'eins'"),
        ("a", "COMMIT"),
        ("a", "SELECT * FROM z ORDER BY n"),
    ],
    "a snapshot stays the same, except for the transaction's own rows": [
        *BEGIN,
        ("b", "INSERT INTO t VALUES (3, 3)"),
        ("b", "UPDATE t SET c = 'b' WHERE a = 1"),
        ("b", "DELETE FROM t WHERE a = 2"),
        ("a", "INSERT INTO t VALUES (4, 4)"),
        ("a", CONTENTS),
        ("a", "COMMIT"),
    ],
    "a row of a snapshot can be changed if no other transaction has changed it": [
        *BEGIN,
        ("b", "UPDATE t SET c = 'b' WHERE a = 1"),
        ("a", "UPDATE t SET c = 'a' WHERE a = 2"),
        ("a", CONTENTS),
        ("a", "UPDATE t SET b = b + 10 WHERE a <> 1"),
        ("a", "DELETE FROM t WHERE a = 0"),
        ("a", CONTENTS),
        ("a", "COMMIT"),
    ],
    "a row of a snapshot that another transaction has changed cannot be changed": [
        *BEGIN,
        ("b", "UPDATE t SET c = 'b' WHERE a = 1"),
        ("a", "UPDATE t SET c = 'a' WHERE a = 1"),
        ("a", "ROLLBACK"),
    ],
    "a row of a snapshot that another transaction has deleted cannot be changed": [
        *BEGIN,
        ("b", "DELETE FROM t WHERE a = 1"),
        ("a", "INSERT INTO t VALUES (7, 7)"),
        ("a", "UPDATE t SET c = 'a' WHERE a = 1"),
        ("a", "ROLLBACK"),
    ],
    "REPEATABLE READ fails after it has waited for a committed change of its row": [
        *BEGIN,
        ("b", "BEGIN"),
        ("b", "UPDATE t SET c = 'b' WHERE a = 1"),
        ("a+", "UPDATE t SET c = 'a' WHERE a = 1"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "ROLLBACK"),
    ],
    "REPEATABLE READ continues after it has waited for a change of its row that is rolled back": [
        *BEGIN,
        ("b", "BEGIN"),
        ("b", "UPDATE t SET c = 'b' WHERE a = 1"),
        ("a+", "UPDATE t SET c = 'a' WHERE a = 1"),
        ("b", "ROLLBACK"),
        ("a", ""),
        ("a", "COMMIT"),
    ],
    "ROLLBACK TO keeps the snapshot and the transaction's rows before the savepoint": [
        *BEGIN,
        ("b", "INSERT INTO t VALUES (3, 3)"),
        ("a", "DELETE FROM t WHERE a = 0"),
        ("a", "SAVEPOINT s"),
        ("a", "UPDATE t SET c = 'undone'"),
        ("a", CONTENTS),
        ("a", "ROLLBACK TO s"),
        ("a", CONTENTS),
        ("a", "COMMIT"),
    ],
    "READ COMMITTED takes a snapshot for each statement": [
        ("a", "BEGIN"),
        ("a", CONTENTS),
        ("b", "CREATE TABLE n (x int)"),
        ("b", "INSERT INTO n VALUES (1)"),
        ("b", "INSERT INTO t VALUES (3, 3)"),
        ("a", "SELECT * FROM n"),
        ("a", CONTENTS),
        ("a", "INSERT INTO n SELECT a FROM t"),
        ("a", "COMMIT"),
        ("a", "SELECT * FROM n ORDER BY 1"),
    ],
    "a writer that waits for an altered type writes values of the new type": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t ALTER b TYPE text"),
        ("a+", "INSERT INTO t VALUES (9, 9)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "UPDATE t SET c = b || '!' WHERE a > 1"),
    ],
    "a writer that waits for a rename does not find the old name": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t RENAME c TO cc"),
        ("a+", "INSERT INTO t (a, c) VALUES (9, 'x')"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "INSERT INTO t (a, cc) VALUES (9, 'x')"),
        ("a", "SELECT cc FROM t WHERE a = 9"),
    ],
    "a writer that waits for a new CHECK is checked": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t ADD CONSTRAINT small CHECK (b < 9)"),
        ("a+", "INSERT INTO t VALUES (9, 9)"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a writer that waits for NOT NULL is checked": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t ALTER b SET NOT NULL"),
        ("a+", "UPDATE t SET b = NULL WHERE a = 1"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a writer that waits for a new key is checked": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t ADD UNIQUE (b)"),
        ("a+", "INSERT INTO t VALUES (9, 1)"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a writer that waits for DROP TABLE does not find the table": [
        ("b", "BEGIN"),
        ("b", "DROP TABLE t"),
        ("a+", "INSERT INTO t VALUES (9, 9)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("b", "CREATE TABLE t (a int)"),
    ],
    "ALTER TABLE and CREATE INDEX by a writer wait for rows that others have added": [
        ("a", "BEGIN"),
        ("b", "BEGIN"),
        ("a", "INSERT INTO t VALUES (5, 5)"),
        ("b", "INSERT INTO t VALUES (6, 5)"),
        ("b+", "ALTER TABLE t ADD d int NOT NULL DEFAULT 7"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "COMMIT"),
        ("b", "BEGIN"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (7, 9)"),
        ("b", "INSERT INTO t VALUES (8, 9)"),
        ("b+", "CREATE UNIQUE INDEX ON t (b) WHERE b > 5"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "ROLLBACK"),
    ],
    "a writer that waits for an ALTER that is rolled back uses the old definition": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t DROP COLUMN c"),
        ("a+", "INSERT INTO t VALUES (9, 9, 'x')"),
        ("b", "ROLLBACK"),
        ("a", ""),
    ],
    "a row of a snapshot that another transaction has changed cannot be locked": [
        *BEGIN,
        ("b", "INSERT INTO t VALUES (3, 3)"),
        ("a", "SELECT * FROM t WHERE a = 1 FOR UPDATE"),
        ("b", "BEGIN"),
        ("b+", "UPDATE t SET c = 'b' WHERE a = 1"),
        ("a", "COMMIT"),
        ("b", ""),
        *BEGIN,
        ("b", "COMMIT"),
        ("a", "SELECT * FROM t WHERE a = 1 FOR SHARE"),
        ("a", "ROLLBACK"),
    ],
    "a row that a snapshot does not show is not changed by ON CONFLICT": [
        *BEGIN,
        ("b", "INSERT INTO t VALUES (3, 3)"),
        ("a", "INSERT INTO t VALUES (3, 4) ON CONFLICT (a) DO UPDATE SET b = t.b + 1"),
        ("a", "ROLLBACK"),
    ],
    "ON CONFLICT DO NOTHING fails on a row that a snapshot does not show": [
        *BEGIN,
        ("b", "INSERT INTO t VALUES (3, 3)"),
        ("a", "INSERT INTO t VALUES (3, 4) ON CONFLICT DO NOTHING"),
        ("a", "ROLLBACK"),
    ],
    "a cascade does not delete a row that a snapshot does not show": [
        ("a", "CREATE TABLE child (n int REFERENCES t ON DELETE CASCADE)"),
        ("a", REPEATABLE[1]),
        ("a", "SELECT * FROM child"),
        ("b", "INSERT INTO child VALUES (1)"),
        ("a", "DELETE FROM t WHERE a = 1"),
        ("a", "ROLLBACK"),
    ],
    "ADD COLUMN that waits for an UPDATE adds the column to all rows": [
        ("b", "BEGIN"),
        ("b", "UPDATE t SET b = 9 WHERE a = 1"),
        REPEATABLE,
        ("a+", "ALTER TABLE t ADD d int DEFAULT 4"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "COMMIT"),
    ],
    "a writer that waits for a table that is dropped and created again writes to the new one": [
        ("b", "BEGIN"),
        ("b", "DROP TABLE t"),
        ("b", "CREATE TABLE t (a int, n int)"),
        ("a+", "INSERT INTO t VALUES (9, 9)"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a writer with pending rows of another table looks a name up again after it has waited for a rename": [
        ("a", "CREATE TABLE o (n int)"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO o VALUES (1)"),
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t RENAME c TO cc"),
        ("a+", "INSERT INTO t VALUES (9, 9, 'x')"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "COMMIT"),
        ("a", "SELECT n, cc FROM o, t WHERE a = 9"),
    ],
    "the first statement of REPEATABLE READ sees the change for which it waits": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t ADD d int DEFAULT 4"),
        REPEATABLE,
        ("a+", "UPDATE t SET b = d WHERE a = 1"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", CONTENTS),
        ("a", "COMMIT"),
    ],
    "a writer that waits for DETACH PARTITION finds no partition for its row": [
        *PARTITIONED,
        ("b", "BEGIN"),
        ("b", "ALTER TABLE r DETACH PARTITION r1"),
        ("a+", "INSERT INTO r VALUES (1)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "SELECT * FROM r1"),
    ],
    "a writer that waits for DROP of a partition finds no partition for its row": [
        *PARTITIONED,
        ("b", "BEGIN"),
        ("b", "DROP TABLE r1"),
        ("a+", "INSERT INTO r VALUES (1)"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a writer that waits for a partition that is split from the default one writes to the new one": [
        *PARTITIONED,
        ("a", "CREATE TABLE r3 (a int)"),
        ("b", "BEGIN"),
        ("b", "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES IN (3)"),
        ("a+", "INSERT INTO rd VALUES (3)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "INSERT INTO r VALUES (3)"),
        ("a", "SELECT tableoid::regclass::text, a FROM r ORDER BY 1"),
    ],
    "DETACH PARTITION that waits does not block writers of other partitions": [
        *PARTITIONED,
        ("a", "BEGIN"),
        ("a", "INSERT INTO rd VALUES (9)"),
        ("b+", "ALTER TABLE r DETACH PARTITION r1"),
        ("a", "INSERT INTO r1 VALUES (1)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "SELECT * FROM r"),
    ],
    "ATTACH PARTITION that waits does not block writers of other partitions": [
        *PARTITIONED,
        ("a", "CREATE TABLE r3 (a int)"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO r3 VALUES (3)"),
        ("b+", "ALTER TABLE r ATTACH PARTITION r3 FOR VALUES IN (3)"),
        ("a", "INSERT INTO r1 VALUES (1)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "SELECT * FROM r ORDER BY a"),
    ],
    "a statement by key that waits for a row uses the row as it is after the wait": [
        ("b", "BEGIN"),
        ("b", "UPDATE t SET b = b + 10, c = 'b' WHERE a = 1"),
        ("a+", "UPDATE t SET b = b + 100 WHERE a IN (1, 7) AND b < 50 RETURNING a, b"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a statement by key that waits does not find a key that was deleted or changed meanwhile": [
        ("b", "BEGIN"),
        ("b", "DELETE FROM t WHERE a = 1"),
        ("b", "UPDATE t SET a = 8 WHERE a = 2"),
        ("a+", "DELETE FROM t WHERE a = ANY ('{1,2}') RETURNING *"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "a look-up by key uses the snapshot and the transaction's pending rows": [
        *BEGIN,
        ("a", "INSERT INTO t VALUES (5, 5)"),
        ("b", "UPDATE t SET b = 7 WHERE a = 1"),
        ("b", "INSERT INTO t VALUES (6, 6)"),
        ("a", "SELECT a, b FROM t WHERE a IN (1, 5, 6) ORDER BY a"),
        ("a", "SELECT count(*) FROM t"),
        ("a", "DELETE FROM t WHERE a = 6"),
        ("a", "UPDATE t SET b = 8 WHERE a = 5 RETURNING *"),
        ("a", "COMMIT"),
    ],
    "a writer that waits for DROP of a key does not use the key": [
        ("b", "BEGIN"),
        ("b", "ALTER TABLE t DROP CONSTRAINT t_pkey"),
        ("b", "INSERT INTO t VALUES (1, 5)"),
        ("a+", "UPDATE t SET b = b + 1 WHERE a = 1 RETURNING b"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "ALTER DOMAIN applies to transactions that began earlier": [
        ("a", "CREATE DOMAIN d AS int; CREATE TABLE x (a d, b d DEFAULT 0)"),
        ("a", "BEGIN"),
        ("a", CONTENTS),
        ("b", "ALTER DOMAIN d ADD CONSTRAINT small CHECK (VALUE < 5); ALTER DOMAIN d SET DEFAULT 4; CREATE TYPE e AS ENUM ('one')"),
        ("a", "INSERT INTO x (b) VALUES (DEFAULT) RETURNING a, b"),
        ("a", "SELECT 'one'::e::text"),
        ("a", "SAVEPOINT s"),
        ("a", "INSERT INTO x VALUES (7)"),
        ("a", "ROLLBACK TO s"),
        ("a", "SELECT 7::d"),
        ("a", "ROLLBACK"),
    ],
    "a writer that waits for ALTER DOMAIN checks the new constraint": [
        ("a", "CREATE DOMAIN d AS int; CREATE DOMAIN dd AS d; CREATE TABLE x (a dd)"),
        ("b", "BEGIN"),
        ("b", "ALTER DOMAIN d ADD CONSTRAINT small CHECK (VALUE < 5)"),
        ("a+", "INSERT INTO x VALUES (7)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "SELECT * FROM x"),
    ],
    "nextval waits for ALTER SEQUENCE RESTART of another transaction": [
        ("a", "CREATE TABLE x (a int GENERATED ALWAYS AS IDENTITY, b int); INSERT INTO x (b) VALUES (1), (2)"),
        ("b", "BEGIN"),
        ("b", "ALTER TABLE x ALTER a RESTART 50"),
        ("b", "ALTER SEQUENCE x_a_seq RESTART 70"),
        ("a+", "SELECT nextval('x_a_seq')"),
        ("b", "ROLLBACK"),
        ("a", ""),
        ("b", "BEGIN"),
        ("b", "ALTER SEQUENCE x_a_seq RESTART 70"),
        ("a+", "SELECT nextval('x_a_seq')"),
        ("b", "COMMIT"),
        ("a", ""),
    ],
    "DELETE of a parent waits for a child that another transaction inserts": [
        ("a", "CREATE TABLE child (n int REFERENCES t)"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO child VALUES (1)"),
        ("b+", "DELETE FROM t WHERE a = 1"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "SELECT * FROM child"),
    ],
    "INSERT of a child waits for a parent that another transaction deletes": [
        ("a", "CREATE TABLE child (n int REFERENCES t)"),
        ("b", "BEGIN"),
        ("b", "DELETE FROM t WHERE a = 1"),
        ("a+", "INSERT INTO child VALUES (1)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "SELECT * FROM child"),
    ],
    "a type that was dropped after a savepoint exists again after ROLLBACK TO": [
        ("a", "CREATE TYPE e AS ENUM ('one', 'two'); CREATE DOMAIN d AS int CHECK (VALUE > 0)"),
        *BEGIN,
        *[
            step
            for sql in ("DROP TYPE e", "ALTER TYPE e RENAME TO f", "DROP DOMAIN d", "ALTER DOMAIN d DROP CONSTRAINT d_check")
            for step in (("a", "SAVEPOINT s"), ("a", sql), ("a", "ROLLBACK TO s"), ("a", "SELECT 'one'::e, 1::d"))
        ],
        ("a", "SELECT 0::d"),
        ("a", "ROLLBACK"),
    ],
    "a partition is attached beside a default one while another table is created": [
        *PARTITIONED,
        ("a", "CREATE TABLE r2 (a int); INSERT INTO r2 VALUES (2)"),
        ("a", "BEGIN"),
        ("a", "SELECT * FROM r2 FOR UPDATE"),
        ("b+", "ALTER TABLE r ATTACH PARTITION r2 FOR VALUES IN (2)"),
        ("c", "CREATE TABLE u (a int)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "SELECT * FROM r"),
    ],
    "a foreign key is added while another table is created": [
        ("a", "CREATE TABLE k (a int); INSERT INTO k VALUES (1)"),
        ("a", "BEGIN"),
        ("a", "UPDATE t SET b = 5 WHERE a = 1"),
        ("b+", "ALTER TABLE k ADD FOREIGN KEY (a) REFERENCES t"),
        ("c", "CREATE TABLE u (a int)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "DELETE FROM t WHERE a = 1"),
    ],
    "a serializable transaction that has looked up a missing key can be retried": [
        ("a", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
        ("b", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
        ("a", "SELECT * FROM t WHERE a = 3"),
        ("b", "SELECT * FROM t WHERE a = 3"),
        ("a", "INSERT INTO t VALUES (3, 0)"),
        ("b+", "INSERT INTO t VALUES (3, 0)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "ROLLBACK"),
        ("b", "BEGIN ISOLATION LEVEL SERIALIZABLE"),
        ("b", "SELECT 1"),
        ("a", "INSERT INTO t VALUES (4, 0)"),
        ("b", "INSERT INTO t VALUES (4, 0)"),
        ("b", "ROLLBACK"),
    ],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if number % 4 or not number else []) for number, name in enumerate(PLAYS)]
)
def test_concurrent_sessions_behave_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    steps = [("a", TABLE), *PLAYS[name], ("a", CONTENTS)]
    on_node, on_postgres = (_without_the_kind_of_change(play.run(steps)) for play in plays)
    assert on_node == on_postgres


def _without_the_kind_of_change(results: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    """Replace the words of PostgreSQL that say whether the other session has updated or deleted the row.

    A node does not distinguish them.
    """
    return [
        (session, sql, answer[:1] if isinstance(answer, tuple) and answer[0] == "40001" else answer) for session, sql, answer in results
    ]


SKEWS: dict[str, tuple[str, str]] = {
    "two transactions each subtract from a sum that both have read": (
        "UPDATE t SET b = b - 2 WHERE a = 1 AND (SELECT sum(b) FROM t) >= 2",
        "UPDATE t SET b = b - 2 WHERE a = 2 AND (SELECT sum(b) FROM t) >= 2",
    ),
    "two transactions each insert a row that the other would have counted": (
        "INSERT INTO t SELECT 10, count(*) FROM t",
        "INSERT INTO t SELECT 11, count(*) FROM t",
    ),
}


@pytest.fixture
def play(server: Server) -> Iterator[Play]:
    """Sessions of one server."""
    sessions = Play(server)
    yield sessions
    sessions.close()


@pytest.mark.parametrize("name", SKEWS)
def test_one_of_two_serializable_transactions_with_write_skew_fails(play: Play, name: str) -> None:
    first, second = SKEWS[name]
    begin = "BEGIN ISOLATION LEVEL SERIALIZABLE"
    steps = [("a", TABLE), ("a", begin), ("b", begin), ("a", CONTENTS), ("b", CONTENTS), ("a", first), ("b+", second), ("a", "COMMIT")]
    results = play.run([*steps, ("b", ""), ("b", "COMMIT")])
    assert results[-3][2] == "COMMIT"
    assert "40001" in (results[-2][2][0], results[-1][2][0])


def test_statements_after_a_concurrent_alteration_write_by_the_new_definition(node: Server) -> None:
    """In PostgreSQL the alteration waits for the reader. On a node it does not, and the next statement writes by the new definition."""
    play = Play(node)
    for alteration, column in (("ALTER b TYPE text", "b"), ("RENAME c TO cc", "cc")):
        play.run(
            [
                ("a", "DROP TABLE IF EXISTS t"), ("a", TABLE), ("a", "BEGIN"), ("a", CONTENTS), ("b", f"ALTER TABLE t {alteration}"),
                ("a", "INSERT INTO t VALUES (5, 5, 'x')"), ("a", f"UPDATE t SET {column} = '7' WHERE a = 1"), ("a", "COMMIT"),
            ]
        )  # fmt: skip
        rows = play.run([("b", f"SELECT a, {column} FROM t WHERE a IN (1, 5) ORDER BY a")])[-1][2]
        assert rows == ([(1, "7"), (5, "5")] if column == "b" else [(1, "7"), (5, "x")])
    play.close()


@pytest.mark.slow
def test_transaction_that_has_created_many_tables_sees_what_others_commit(server: Server) -> None:
    """A transaction's own catalog changes are replayed only occasionally, and when a statement fails without them."""
    database = server.new_database()
    columns = ", ".join(f"c{number} text NOT NULL DEFAULT 'x'" for number in range(15))
    server.psql(database, "CREATE TABLE changed (a int)")
    with (
        psycopg.connect(server.conninfo(database), autocommit=True) as maker,
        psycopg.connect(server.conninfo(database), autocommit=True) as other_session,
    ):
        maker.execute("BEGIN")
        for number in range(25):
            maker.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, {columns})".encode())
        other_session.execute("CREATE TABLE first (a int)")
        assert maker.execute("SELECT count(*) FROM first").fetchall() == [(0,)]
        other_session.execute("CREATE TABLE later (a int); INSERT INTO later VALUES (1)")
        assert maker.execute("SELECT a FROM later").fetchall() == [(1,)]
        other_session.execute("ALTER TABLE changed ADD COLUMN b int DEFAULT 5; INSERT INTO changed VALUES (1, 2)")
        assert maker.execute("SELECT * FROM changed").fetchall() == [(1, 2)]
        other_session.execute("CREATE TABLE duplicate (a int)")
        with pytest.raises(psycopg.errors.DuplicateTable):
            maker.execute("CREATE TABLE duplicate (a int)")
        maker.execute("ROLLBACK")
