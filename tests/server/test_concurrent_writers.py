"""Concurrent writers of one table get PostgreSQL's results and leave PostgreSQL's rows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conftest import Server
from tests.server.play import Play, Step

TABLE = "CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE, c text DEFAULT 'd'); INSERT INTO t VALUES (0, 0), (1, 1), (2, 2)"
CONTENTS = "SELECT * FROM t ORDER BY a"
IN_CHUNKS = "SET headgate.small_write_rows = 3"

PLAYS: dict[str, list[Step]] = {
    "each transaction sees its own new rows and committed rows": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (3, 3), (5, 5)"),
        ("b", "BEGIN"),
        ("b", "INSERT INTO t (a) VALUES (4) RETURNING *"),
        ("c", "INSERT INTO t VALUES (6, 6)"),
        ("a", CONTENTS),
        ("b", CONTENTS),
        ("b", "COMMIT"),
        ("a", CONTENTS),
        ("a", "COMMIT"),
    ],
    "an INSERT waits for a key that another transaction inserts, and fails after its commit": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b+", "INSERT INTO t VALUES (11, 10)"),
        ("c", "INSERT INTO t VALUES (12, 12)"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "a key is free after the transaction that inserted it has rolled back": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b+", "INSERT INTO t VALUES (10, 11)"),
        ("a", "ROLLBACK"),
        ("b", ""),
    ],
    "ON CONFLICT waits for a row that another transaction inserts": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b+", "INSERT INTO t VALUES (10, 11) ON CONFLICT (a) DO UPDATE SET c = 'met'"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "ON CONFLICT waits for the row of another transaction after its own has inserted one": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b", "BEGIN"),
        ("b", "INSERT INTO t VALUES (11, 11)"),
        ("b+", "INSERT INTO t VALUES (10, 12) ON CONFLICT DO NOTHING"),
        ("a", "COMMIT"),
        ("b", ""),
        ("b", "COMMIT"),
    ],
    "a later chunk of ON CONFLICT waits for a row that another transaction inserts": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b", IN_CHUNKS),
        ("b+", "INSERT INTO t SELECT g, g + 100 FROM generate_series(3, 14) g ON CONFLICT (a) DO UPDATE SET c = 'met'"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "a chunk inserts a row whose key another transaction has rolled back": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b", IN_CHUNKS),
        ("b+", "INSERT INTO t SELECT g, g FROM generate_series(3, 14) g ON CONFLICT DO NOTHING"),
        ("a", "ROLLBACK"),
        ("b", ""),
    ],
    "an INSERT of a key that an earlier chunk has inserted waits for the end of its transaction": [
        ("a", "BEGIN"),
        ("a", IN_CHUNKS),
        ("a", "INSERT INTO t SELECT g, g + 100 FROM generate_series(0, 14) g ON CONFLICT (a) DO UPDATE SET c = 'chunk'"),
        ("c", CONTENTS),
        ("b+", "INSERT INTO t VALUES (12, 12)"),
        ("a", "ROLLBACK"),
        ("b", ""),
    ],
    "chunks are planned again after another transaction has changed the table": [
        ("a", "BEGIN"),
        ("a", "ALTER TABLE t ADD d text DEFAULT 'added'"),
        ("b", IN_CHUNKS),
        (
            "b+",
            "INSERT INTO t (a, b) SELECT g, g + 100 FROM generate_series(0, 14) g ON CONFLICT (a) DO UPDATE SET c = 'met' RETURNING a, c, d",
        ),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "rows are updated while another transaction inserts rows": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b", "UPDATE t SET c = 'changed' WHERE a = 1"),
        ("b", "DELETE FROM t WHERE a = 2"),
        ("a", "COMMIT"),
    ],
    "an UPDATE to a key that another transaction inserts waits for it": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b+", "UPDATE t SET a = 10 WHERE a = 1"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "TRUNCATE waits for transactions that insert rows": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b+", "TRUNCATE t"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "LOCK TABLE waits for transactions that insert rows, and blocks others": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b", "BEGIN"),
        ("b", "LOCK TABLE t IN ROW EXCLUSIVE MODE"),
        ("b", "LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE NOWAIT"),
        ("b", "ROLLBACK"),
        ("b", "BEGIN"),
        ("b+", "LOCK TABLE t"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a+", "INSERT INTO t VALUES (11, 11)"),
        ("b", "INSERT INTO t VALUES (11, 12)"),
        ("b", "COMMIT"),
        ("a", ""),
        ("a", "LOCK TABLE t"),
        ("a", "BEGIN"),
        ("a", "LOCK TABLE t_pkey"),
        ("a", "ROLLBACK"),
        ("a", "BEGIN"),
        ("a", "LOCK TABLE nosuch IN SHARE MODE"),
        ("a", "ROLLBACK"),
        ("a", "CREATE ROLE nobody_here"),
        ("a", "SET ROLE nobody_here"),
        ("a", "BEGIN"),
        ("a", "LOCK TABLE t IN ACCESS SHARE MODE"),
        ("a", "ROLLBACK"),
        ("a", "RESET ROLE"),
        ("a", "DROP ROLE nobody_here"),
    ],
    "a new constraint waits for transactions that insert rows, and checks these rows": [
        ("a", "DELETE FROM t WHERE a > 0"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10, 'same'), (11, 11, 'same')"),
        ("b+", "ALTER TABLE t ADD UNIQUE (c)"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (12, NULL)"),
        ("b+", "ALTER TABLE t ALTER b SET NOT NULL"),
        ("a", "COMMIT"),
        ("b", ""),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (13, 99)"),
        ("b+", "ALTER TABLE t ADD CHECK (b < 99)"),
        ("a", "COMMIT"),
        ("b", ""),
    ],
    "two transactions that have inserted rows update them one after another": [
        ("a", "BEGIN"),
        ("b", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("b", "INSERT INTO t VALUES (11, 11)"),
        ("a", "UPDATE t SET c = 'a' WHERE a = 10"),
        ("a", "INSERT INTO t VALUES (12, 12)"),
        ("a", "COMMIT"),
        ("b", "UPDATE t SET c = 'b' WHERE a >= 10"),
        ("b", "COMMIT"),
    ],
    "ROLLBACK TO removes the rows inserted after the savepoint and keeps earlier ones, written or not": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("a", "SAVEPOINT s"),
        ("a", "INSERT INTO t VALUES (11, 11)"),
        ("a", "ROLLBACK TO s"),
        ("a", CONTENTS),
        ("a", "UPDATE t SET c = 'undone' WHERE a = 10"),
        ("a", "INSERT INTO t VALUES (12, 12)"),
        ("a", "ROLLBACK TO s"),
        ("a", CONTENTS),
        ("a", "INSERT INTO t VALUES (11, 12)"),
        ("a", "COMMIT"),
    ],
    "a key cannot be inserted twice in one transaction": [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10)"),
        ("a", "SAVEPOINT s"),
        ("a", "INSERT INTO t VALUES (11, 11), (12, 10)"),
        ("a", "ROLLBACK TO s"),
        ("a", "INSERT INTO t VALUES (10, 12) ON CONFLICT (a) DO UPDATE SET c = 'met'"),
        ("a", "COMMIT"),
    ],
    "keys of expression indexes and partial indexes are waited for like those of columns": [
        ("a", "CREATE UNIQUE INDEX ON t (lower(c)) WHERE b > 5; CREATE UNIQUE INDEX ON t (md5(c)) WHERE b > 50"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t VALUES (10, 10, 'Ten'), (11, 0 - 11, 'Eleven')"),
        ("b", "INSERT INTO t VALUES (12, 12, 'twelve'), (13, 0 - 13, 'TEN')"),
        ("b+", "INSERT INTO t VALUES (14, 14, 'TEN')"),
        ("c+", "INSERT INTO t VALUES (15, 15, 'tEn') ON CONFLICT (lower(c)) WHERE b > 5 DO UPDATE SET b = 70"),
        ("a", "INSERT INTO t VALUES (16, 16, 'ten') ON CONFLICT DO NOTHING"),
        ("a", "INSERT INTO t VALUES (16, 66, 'six'), (17, 67, 'seven')"),
        ("a", "COMMIT"),
        ("b", ""),
        ("c", ""),
        ("a", "INSERT INTO t VALUES (18, 68, 'six')"),
    ],
    "deferred checks find rows that are not written yet": [
        ("a", "CREATE TABLE child (n int REFERENCES t DEFERRABLE INITIALLY DEFERRED)"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO child VALUES (20), (21)"),
        ("a", "INSERT INTO t VALUES (20, 20)"),
        ("a", "COMMIT"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO child VALUES (20)"),
        ("a", "INSERT INTO t VALUES (20, 20)"),
        ("a", "COMMIT"),
    ],
}


@pytest.mark.parametrize("name", PLAYS)
def test_writers_of_one_table_behave_as_in_postgresql(plays: tuple[Play, Play], name: str) -> None:
    steps = [("a", TABLE), *PLAYS[name], ("a", CONTENTS)]
    on_node, on_postgres = (play.run(steps) for play in plays)
    assert on_node == on_postgres


def test_two_writers_that_wait_for_each_others_keys_are_a_deadlock(plays: tuple[Play, Play]) -> None:
    begun = [("a", TABLE), ("a", "BEGIN"), ("b", "BEGIN"), ("a", "INSERT INTO t VALUES (10, 10)"), ("b", "INSERT INTO t VALUES (11, 11)")]
    crossed = [("a+", "INSERT INTO t VALUES (11, 12)"), ("b+", "INSERT INTO t VALUES (10, 13)"), ("a", ""), ("b", "")]
    for play in plays:
        results = play.run([*begun, *crossed])
        assert sorted(str(answer) for _, _, answer in results[-2:]) == ["('40P01', 'deadlock detected', '')", "INSERT 0 1"]


def test_rows_of_a_transaction_are_published_in_the_order_of_its_statements(node: Server, postgres: Server) -> None:
    def published(server: Server) -> list[tuple[Any, ...]]:
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
            slot = f"order_{session.info.backend_pid}"
            session.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int); CREATE PUBLICATION p FOR ALL TABLES")
            session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
            session.execute(
                "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (2); INSERT INTO t VALUES (3); SAVEPOINT s; INSERT INTO t VALUES (4);"
                "SELECT pg_logical_emit_message(true, 'p', 'between'); INSERT INTO u VALUES (5); DELETE FROM t WHERE a = 1; COMMIT"
            )
            changes = session.execute(
                "SELECT chr(get_byte(data, 0)), encode(substr(data, 6), 'escape') FROM pg_logical_slot_get_binary_changes"
                "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p', 'messages', 'true') WHERE get_byte(data, 0) IN (73, 68)",
                (slot,),
            ).fetchall()
            session.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            return changes

    assert published(node) == published(postgres)
