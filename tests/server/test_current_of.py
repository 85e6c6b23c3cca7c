"""UPDATE and DELETE … WHERE CURRENT OF a cursor change the same row as in PostgreSQL, also after other sessions have changed it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conftest import Server, until
from tests.server.play import Play, Step

SCRIPT = Path(__file__).parent / "statements" / "current_of.sql"


@pytest.mark.slow  # half a minute of two cores; the tests with other sessions are in the suite
def test_current_row_is_that_of_postgresql(postgres: Server, node: Server) -> None:
    printed = [server.script(server.new_database(), SCRIPT).splitlines() for server in (node, postgres)]
    assert printed[0] == printed[1]


def open_cursor(table: str, query: str, *, moved: int = 1, level: str = "READ COMMITTED") -> list[Step]:
    """Return steps that begin a transaction of session a, open a cursor and move it."""
    return [("a", f"BEGIN ISOLATION LEVEL {level}"), ("a", f"DECLARE c CURSOR FOR {query}"), ("a", f"MOVE {moved} c")]


def use_cursor(table: str) -> list[Step]:
    """Return steps that change the cursor's row twice and read the table."""
    change = f"UPDATE {table} SET b = b || '!' WHERE CURRENT OF c RETURNING *"
    return [("a", change), ("a", change), ("a", "COMMIT"), ("a", f"SELECT * FROM {table} ORDER BY a, b")]


TABLES = {
    "a key": "a int PRIMARY KEY, b text",
    "a key, without vectors": "a int PRIMARY KEY, b text",
    "no key": "a int, b text",
    "no key, without vectors": "a int, b text",
    "partitions": "a int PRIMARY KEY, b text",
}
ROWS = "INSERT INTO t SELECT g, 'r' || g FROM generate_series(1, 9) g"


def create_table(play: Play, kind: str, *, on_node: bool) -> None:
    """Create table t with nine rows."""
    options = " PARTITION BY RANGE (a)" if kind == "partitions" else ""
    if "without vectors" in kind and on_node:
        options = " WITH (deletion_vectors = off)"
    play.say("s", f"CREATE TABLE t ({TABLES[kind]}){options}")
    if kind == "partitions":
        play.say("s", "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (5); CREATE TABLE t2 PARTITION OF t DEFAULT")
    play.say("s", ROWS)


OTHERS: dict[str, list[str]] = {
    "changed by another session": ["UPDATE t SET b = 'other' WHERE a = 2", "UPDATE t SET b = b || '+' WHERE a IN (2, 3)"],
    "key changed by another session": ["UPDATE t SET a = 4 + a * 30 WHERE a = 2"],
    "deleted by another session": ["DELETE FROM t WHERE a = 2"],
    "deleted and inserted again with its key": ["DELETE FROM t WHERE a = 2", "INSERT INTO t VALUES (2, 'new')"],
    "other rows changed": ["UPDATE t SET b = 'x' WHERE a <> 2", "DELETE FROM t WHERE a = 1"],
    "another row gets its key": ["UPDATE t SET a = 50 WHERE a = 2", "UPDATE t SET a = 2 WHERE a = 3"],
    "another row gets equal values": ["UPDATE t SET b = 'r2', a = 20 WHERE a = 3"],
}


def results(play: Play) -> list[Any]:
    """Return the results without the word "updated" or "deleted": a node does not report how the row was changed."""
    return [
        (session, sql, answer[0] if isinstance(answer, tuple) and answer[0] == "40001" else answer) for session, sql, answer in play.results
    ]


LEVELS = ["READ COMMITTED", "REPEATABLE READ"]
SEEN = [
    pytest.param(kind, level, marks=[] if (kind, level) == ("a key", "READ COMMITTED") else [pytest.mark.slow])
    for kind in TABLES
    for level in LEVELS
    if level == "READ COMMITTED" or "without vectors" not in kind
]
"""Without deletion vectors, any changed row of the same file makes an UPDATE under REPEATABLE READ fail with 40001."""


@pytest.mark.parametrize(("kind", "level"), SEEN)
def test_current_row_changed_by_others_gives_postgresqls_result(plays: tuple[Play, Play], kind: str, level: str) -> None:
    for play, on_node in zip(plays, (True, False), strict=True):
        create_table(play, kind, on_node=on_node)
        for name, statements in OTHERS.items():
            play.run(
                [
                    *open_cursor("t", "SELECT * FROM t WHERE b IN ('r2', 'r3')", level=level),
                    *[("b", statement) for statement in statements],
                    *use_cursor("t"),
                ]
            )
            play.run([("a", "ROLLBACK"), ("a", f"DELETE FROM t; {ROWS}"), ("a", f"SELECT '{name}'")])
    on_node, on_postgres = (results(play) for play in plays)
    assert on_node == on_postgres


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == "a key" else pytest.mark.slow) for kind in TABLES])
def test_current_row_that_another_session_is_changing_is_waited_for(plays: tuple[Play, Play], kind: str) -> None:
    for play, on_node in zip(plays, (True, False), strict=True):
        create_table(play, kind, on_node=on_node)
        for end in ("COMMIT", "ROLLBACK"):
            for change in ("UPDATE t SET b = 'other' WHERE a = 2", "DELETE FROM t WHERE a = 2"):
                play.run([*open_cursor("t", "SELECT a, b FROM t WHERE b = 'r2'"), ("b", "BEGIN"), ("b", change)])
                play.run(
                    [("a+", "DELETE FROM t WHERE CURRENT OF c RETURNING *"), ("b", end), ("a", ""), ("a", "SELECT * FROM t ORDER BY a")]
                )
                play.run([("a", "ROLLBACK"), ("a", f"DELETE FROM t; {ROWS}")])
    assert plays[0].results == plays[1].results


def test_for_update_keeps_other_sessions_from_the_row(plays: tuple[Play, Play]) -> None:
    for play in plays:
        create_table(play, "a key", on_node=False)
        play.run(open_cursor("t", "SELECT b, a FROM t ORDER BY a FOR UPDATE", moved=2))
        play.run([("b+", "UPDATE t SET b = b || '?' WHERE a = 2"), *use_cursor("t")[:-1], ("b", ""), use_cursor("t")[-1]])
    assert plays[0].results == plays[1].results


def most_rows(table: Path) -> int:
    """Return how many rows the largest data file has that a version of the table has added."""
    actions = [json.loads(line) for version in (table / "_delta_log").glob("*.json") for line in version.read_text().splitlines()]
    return max(json.loads(action["add"]["stats"])["numRecords"] for action in actions if "add" in action)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["no key", "a key", "no key, without vectors"])
def test_compaction_keeps_the_current_row_of_an_open_cursor(node: Server, kind: str) -> None:
    """Other sessions change every other row, each in a commit, and compactions follow."""
    database = node.new_database()
    with psycopg.connect(node.conninfo(database)) as session, psycopg.connect(node.conninfo(database), autocommit=True) as writer:
        options = " WITH (deletion_vectors = off)" if "without" in kind else ""
        writer.execute(f"CREATE TABLE t ({TABLES[kind]}){options}".encode())
        for key in range(1, 41):  # files of one row, some of which are compacted while the cursor is open
            writer.execute("INSERT INTO t VALUES (%s, 'r')", [key])
        session.execute("DECLARE c CURSOR FOR SELECT * FROM t WHERE a IN (7, 8, 9)")
        session.execute("MOVE 2 c")
        for key in range(1, 41):
            if key != 8:
                writer.execute("UPDATE t SET b = b || '+' WHERE a = %s", [key])
        [path] = writer.execute("SELECT path FROM headgate.snapshot() WHERE name = 't'").fetchone() or ()
        until(lambda: most_rows(Path(path)) > 8, "the files are not compacted")
        assert session.execute("UPDATE t SET b = 'found' WHERE CURRENT OF c RETURNING *").fetchall() == [(8, "found")]
        session.execute("MOVE c")
        assert session.execute("DELETE FROM t WHERE CURRENT OF c RETURNING *").fetchall() == [(9, "r+")]
        session.commit()
        rows = dict(writer.execute("SELECT a, b FROM t").fetchall())
    assert rows == {key: "found" if key == 8 else "r+" for key in range(1, 41) if key != 9}


def test_rows_that_cannot_be_distinguished_are_rejected(node: Server) -> None:
    message = r"cannot tell the current row of the cursor from other rows of table \"t\""
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, 'x'), (3, 'y')")

        def refused(query: str, *statements: str) -> None:
            session.execute(f"BEGIN; DECLARE c CURSOR FOR {query}; MOVE c".encode())
            for statement in statements:
                session.execute(statement.encode())
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=message):
                session.execute("DELETE FROM t WHERE CURRENT OF c")
            session.execute("ROLLBACK")

        refused("SELECT b FROM t")
        refused("SELECT 1 FROM t")
        refused("SELECT a + 0 FROM t FOR UPDATE")
        refused("SELECT * FROM t", "UPDATE t SET a = 2 WHERE a = 1", "UPDATE t SET b = 'z' WHERE b = 'x'")
        refused("SELECT * FROM t", "INSERT INTO t VALUES (1, 'x')", "UPDATE t SET b = 'z' WHERE a = 1")
        for change in ("UPDATE t SET a = 5 WHERE CURRENT OF c", "UPDATE t SET a = 2 WHERE CURRENT OF d"):
            session.execute("BEGIN; INSERT INTO t VALUES (4, 'x'), (4, 'x')")  # equal rows, of which another one has been changed
            session.execute("SAVEPOINT written; DELETE FROM t WHERE a = 3; DECLARE c CURSOR FOR SELECT * FROM t WHERE a = 4; MOVE c")
            session.execute("DECLARE d CURSOR FOR SELECT * FROM t WHERE a = 4; MOVE 2 d; UPDATE t SET b = 'z' WHERE CURRENT OF c")
            session.execute("MOVE c; DELETE FROM t WHERE CURRENT OF c")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=message):
                session.execute(change.encode())
            session.execute("ROLLBACK")
        session.execute("INSERT INTO t SELECT 7, 'many' FROM generate_series(1, 2000)")
        refused("SELECT * FROM t WHERE a = 7")
        session.execute("BEGIN; DECLARE c CURSOR FOR SELECT b FROM t WHERE a = 3; MOVE c")
        assert session.execute("DELETE FROM t WHERE CURRENT OF c RETURNING *").fetchall() == [(3, "y")]


def test_cursor_is_rejected_after_the_columns_have_changed(node: Server) -> None:
    database = node.new_database()
    with psycopg.connect(node.conninfo(database)) as session, psycopg.connect(node.conninfo(database), autocommit=True) as writer:
        writer.execute("CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x')")
        session.execute("DECLARE c CURSOR FOR SELECT * FROM t")
        session.execute("MOVE c")
        writer.execute("ALTER TABLE t ADD COLUMN n int DEFAULT 5")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="have changed since the cursor was declared"):
            session.execute("UPDATE t SET b = 'y' WHERE CURRENT OF c")


RIGHTS: list[Step] = [
    ("s", "CREATE TABLE t (a int PRIMARY KEY, b text, c text); INSERT INTO t SELECT g, 'r' || g, 'me' FROM generate_series(1, 4) g"),
    ("s", "UPDATE t SET c = 'you' WHERE a = 2"),
    ("s", "CREATE ROLE some_writer; GRANT SELECT, UPDATE (b) ON t TO some_writer; CREATE ROLE some_reader; GRANT SELECT ON t TO some_reader"),
    ("a", "SET ROLE some_writer"),
    ("a", "BEGIN"), ("a", "DECLARE d CURSOR FOR SELECT * FROM t ORDER BY a FOR UPDATE"), ("a", "MOVE 2 d"),
    ("a", "UPDATE t SET b = 'w' WHERE CURRENT OF d RETURNING a, b"), ("a", "SAVEPOINT s"),
    ("a", "UPDATE t SET c = 'w' WHERE CURRENT OF d"), ("a", "ROLLBACK TO s"), ("a", "DELETE FROM t WHERE CURRENT OF d"), ("a", "ROLLBACK"),
    ("s", "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t FOR SELECT USING (true)"),
    ("s", "CREATE POLICY q ON t FOR UPDATE USING (c = 'me') WITH CHECK (b <> 'no')"),
    *[
        step
        for row in (1, 2)
        for step in [
            ("a", "BEGIN"), ("a", "DECLARE d CURSOR FOR SELECT * FROM t"), ("a", f"MOVE {row} d"),
            ("a", "UPDATE t SET b = 'rls' WHERE CURRENT OF d"), ("a", "UPDATE t SET b = 'rls' WHERE CURRENT OF d RETURNING a, b"),
            ("a", "UPDATE t SET b = 'no' WHERE CURRENT OF d"), ("a", "ROLLBACK"),
        ]
    ],
    ("a", "RESET ROLE"), ("a", "SET ROLE some_reader"), ("a", "BEGIN"), ("a", "DECLARE d CURSOR FOR SELECT * FROM t"), ("a", "MOVE d"),
    ("a", "UPDATE t SET b = 'w' WHERE CURRENT OF d"), ("a", "ROLLBACK"),
    ("s", "DROP TABLE t; DROP ROLE some_writer; DROP ROLE some_reader"),
]  # fmt: skip


@pytest.mark.slow
def test_privileges_and_row_security_are_checked(plays: tuple[Play, Play]) -> None:
    on_node, on_postgres = (play.run(RIGHTS) for play in plays)
    assert on_node == on_postgres


def random_steps(draw: random.Random, kind: str) -> list[Step]:
    """Return a cursor and random steps of two sessions around it.

    Session b does not write after session a has, because a node locks tables.
    """

    def change() -> str:
        a, b, word = draw.randrange(1, 7), draw.randrange(1, 9), draw.choice("xyz")
        return draw.choice(
            [
                f"UPDATE t SET b = '{word}' WHERE a = {a}", f"UPDATE t SET b = b || '{word}' WHERE a <= {a}", f"UPDATE t SET a = {b} WHERE a = {a}",
                f"UPDATE t SET a = a + 10 WHERE a = {a}", "UPDATE t SET a = a - 10 WHERE a > 10", f"DELETE FROM t WHERE a = {a}",
                f"INSERT INTO t VALUES ({a}, '{word}')", f"DELETE FROM t WHERE a = {a}; INSERT INTO t VALUES ({a}, 'r')",
                f"UPDATE t SET b = 'r' WHERE b = '{word}'", f"UPDATE t SET b = b WHERE a = {a}",
                "UPDATE t SET a = a + 100; UPDATE t SET a = a - 99 WHERE a >= 100",
            ]
        )  # fmt: skip

    keyed = "no key" not in kind
    rows = [f"({key if keyed else draw.randrange(1, 5)}, '{draw.choice(['r', 'x', f'r{key}'])}')" for key in range(1, 7)]
    steps = [("a", "TRUNCATE t"), ("a", f"INSERT INTO t VALUES {', '.join(rows)}"), ("a", "BEGIN")]
    own = [("a", change()) for _ in range(draw.choice([0, 0, 1, 2]))]
    locked = bool(own) or draw.random() < 0.2
    order = " ORDER BY a, b FOR UPDATE" if locked else ""
    steps += [
        *own,
        ("a", f"DECLARE c CURSOR FOR SELECT {draw.choice(['*', 'b, a'])} FROM t{order}"),
        ("a", f"MOVE {draw.randrange(1, 4)} c"),
    ]
    if not locked:
        steps += [("b", change()) for _ in range(draw.randrange(4))]
    for _ in range(draw.randrange(3, 9)):
        current = draw.choice(
            ["UPDATE t SET b = b || '!'", "UPDATE t SET b = b || '!'", "UPDATE t SET a = a + 20", "UPDATE t SET b = 'x'", "DELETE FROM t"]
        )
        statements = (
            [f"{current} WHERE CURRENT OF c RETURNING *"] * 3
            + [change(), "SAVEPOINT s", "ROLLBACK TO s"]
            + ["FETCH c", "MOVE c"] * (not locked)
        )
        steps.append(("a", draw.choice(statements)))
    return [*steps, ("a", draw.choice(["COMMIT", "COMMIT", "ROLLBACK"])), ("a", "SELECT * FROM t ORDER BY a, b")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_random_changes_around_a_cursor_find_postgresqls_row(plays: tuple[Play, Play], kind: str) -> None:
    """If rows cannot be distinguished, a node raises an error, and the transaction ends there on both servers."""
    on_node, on_postgres = plays
    for play in plays:
        create_table(play, kind, on_node=play is on_node)
    used = 0
    for seed in range(12):
        steps: list[tuple[Step, Any, Any]] = []
        for session, sql in random_steps(random.Random(f"{kind} {seed}"), kind):
            result = on_node.say(session, sql)
            if isinstance(result, tuple) and result[0] in ("0A000", "40001"):
                assert "no key" in kind or result[0] == "40001", steps
                break
            expected = on_postgres.say(session, sql)
            steps.append(((session, sql), result, expected))
            comparable = [
                sorted(map(str, answer)) if isinstance(answer, list) else answer[0] if isinstance(answer, tuple) else answer
                for answer in (result, expected)
            ]
            assert comparable[0] == comparable[1], steps
            used += "CURRENT OF" in sql and bool(result)
        for play in plays:
            play.say("a", "ROLLBACK")
    assert used > 5


HOSTILE = [
    'c"; DROP TABLE t; --', "c'", "", " ", "é" * 40, "\x01", "x" * 200, "%s", "CURRENT", "$1",
]  # fmt: skip


def test_cursors_may_have_hostile_names(plays: tuple[Play, Play]) -> None:
    for play in plays:
        play.run([("a", "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'x'); BEGIN")])
        for name in HOSTILE:
            quoted = '"' + name.replace('"', '""') + '"'
            play.run([("a", "SAVEPOINT s"), ("a", f"UPDATE t SET b = 'y' WHERE CURRENT OF {quoted}"), ("a", "ROLLBACK TO s")])
            play.run([("a", f"DECLARE {quoted} CURSOR FOR SELECT * FROM t"), ("a", f"MOVE {quoted}")])
            play.run([("a", f"UPDATE t SET b = b || 'y' WHERE CURRENT OF {quoted} RETURNING *"), ("a", "ROLLBACK TO s")])
    assert plays[0].results == plays[1].results


def test_changes_through_a_cursor_are_replicated(node: Server, postgres: Server) -> None:
    source, target = node.new_database(), postgres.new_database()
    with (
        psycopg.connect(node.conninfo(source)) as session,
        psycopg.connect(postgres.conninfo(target), autocommit=True) as subscriber,
    ):
        for database in (session, subscriber):
            database.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        session.execute("INSERT INTO t SELECT g, 'r' || g FROM generate_series(1, 5) g; CREATE PUBLICATION p FOR TABLE t WHERE (a < 100)")
        session.commit()
        subscriber.execute(f"CREATE SUBSCRIPTION s_current_of CONNECTION '{node.conninfo(source)}' PUBLICATION p".encode())
        try:
            session.execute("DECLARE c CURSOR FOR SELECT * FROM t ORDER BY a FOR UPDATE")
            for change in ("UPDATE t SET b = 'one'", "UPDATE t SET a = 20", "UPDATE t SET a = 300", "DELETE FROM t"):
                session.execute("MOVE c")
                session.execute(f"{change} WHERE CURRENT OF c".encode())
            session.execute("UPDATE t SET b = 'never' WHERE CURRENT OF c")
            session.commit()
            expected: list[tuple[Any, ...]] = [(1, "one"), (5, "r5"), (20, "r2")]
            until(lambda: subscriber.execute("SELECT * FROM t ORDER BY a").fetchall() == expected, "the changes do not arrive")
        finally:
            subscriber.execute("DROP SUBSCRIPTION s_current_of")
