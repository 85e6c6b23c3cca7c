"""COPY as PostgreSQL answers it: options, headers, quoting, encodings, WHERE, and what each refuses."""

from __future__ import annotations

import psycopg
import pytest
from tests.conftest import Server

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a text, b numeric(6,2), g bool DEFAULT true, h text DEFAULT 'dd')"
IN = [
    ("(id, a) FROM STDIN (FORMAT csv, HEADER)", b'id,a\n10,"x ""q"", y\nz"\n11,\n12,""\n'),
    ("(id, a) FROM STDIN (FORMAT csv, HEADER MATCH)", b"id,b\n13,x\n"),
    ("(id, a) FROM STDIN (FORMAT csv, HEADER MATCH)", b"id\n13,x\n"),
    ("(id, a) FROM STDIN (FORMAT csv, HEADER MATCH)", b"id,a\n13,x\n"),
    ("(id, a) FROM STDIN (HEADER MATCH)", b"id\t\\N\n13\tx\n"),
    ("(id, a) FROM STDIN (HEADER MATCH)", b"id\ta\n60\tx\n"),
    ("(id, a) FROM STDIN (HEADER maybe)", b""),
    ("(id, a) FROM STDIN (FORMAT csv)", b'15,y\n16,"unterminated\n'),
    ("(id, a) FROM STDIN (FORMAT csv, DELIMITER ';', NULL 'NULL', QUOTE '''')", b"14;NULL\n15;'a;b'\n"),
    ("(id, a, b) FROM STDIN (FORMAT csv, FORCE_NOT_NULL (a), FORCE_NULL (b))", b'50,,""\n51,x,\n52,"",1\n'),
    ("(id, a) FROM STDIN (FORMAT csv, FORCE_NULL (b))", b""),
    ("(id, a) FROM STDIN (FORCE_NULL (a))", b""),
    ("(id, a) FROM STDIN (FORMAT csv, FORCE_QUOTE (a))", b""),
    ("(id, a) FROM STDIN (ENCODING 'nope')", b""),
    ("(id, a) FROM STDIN (ENCODING 'latin1')", b"27\t\xe9\n"),
    ("(id, a) FROM STDIN WHERE g AND h = 'dd' AND id > 70", b"70\tx\n71\tx\n"),
    ("(id, a) FROM STDIN WHERE a > (SELECT 'x')", b""),
    ("(id, a) FROM STDIN WHERE nosuch > 1", b""),
]
OUT = [
    "t (id) TO STDOUT (HEADER MATCH)",
    "(SELECT id, a, b FROM t ORDER BY id) TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE *)",
    "(SELECT id, a FROM t ORDER BY id) TO STDOUT (FORMAT csv, FORCE_QUOTE (a))",
    "(SELECT id, a FROM t ORDER BY id) TO STDOUT (FORMAT csv, FORCE_QUOTE (b))",
    "(SELECT id, a || '^' FROM t WHERE id = 10) TO STDOUT (FORMAT csv, QUOTE '\"', ESCAPE '^')",
    "(SELECT id, a FROM t WHERE id = 27) TO STDOUT (ENCODING 'latin1')",
    "(SELECT id, '€' FROM t WHERE id = 27) TO STDOUT (ENCODING 'latin1')",
    "(DELETE FROM t WHERE id = 71) TO STDOUT",
    "(DELETE FROM t WHERE id = 71 RETURNING id, a, h) TO STDOUT",
]


def test_copy_is_answered_as_postgresql_answers_it(node: Server, postgres: Server) -> None:
    different = []
    with (
        psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as ours,
        psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native,
    ):
        native.execute(TABLE)
        ours.execute(TABLE)
        for statement, data in [*[(f"COPY t {each}", data) for each, data in IN], *[(f"COPY {each}", None) for each in OUT]]:
            expected, seen = answered(native, statement, data), answered(ours, statement, data)
            if expected != seen:
                different.append(f"{statement}\n  PostgreSQL: {expected!r}\n  node:       {seen!r}")
    assert not different, "\n" + "\n".join(different)


def answered(connection: psycopg.Connection, statement: str, data: bytes | None) -> bytes | str:
    cursor = connection.cursor()
    try:
        with cursor.copy(statement.encode()) as copy:
            if data is None:
                return b"".join(bytes(each) for each in copy)
            copy.write(data)
        return str(cursor.statusmessage)
    except psycopg.Error as error:
        said = error.diag
        return f"{said.sqlstate} {said.message_primary} {said.message_detail} {said.context}"


@pytest.mark.parametrize(
    "query", ["SELECT i, i * 2 FROM t ORDER BY i", "SELECT i, i FROM t WHERE i > 9", "SELECT 1, 2", "SELECT oid FROM pg_am WHERE oid < 0"]
)
def test_the_binary_header_came_in_a_message_of_its_own(node: Server, postgres: Server, query: str) -> None:
    """psycopg takes a message for a row; PostgreSQL sends the header with the first, or with the trailer where there is none."""

    def messages(server: Server) -> list[bytes]:
        with psycopg.connect(server.conninfo(server.new_database())) as session:
            session.execute("CREATE TABLE t (i int)")
            session.execute("INSERT INTO t VALUES (1), (2), (3)")
            with session.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()) as copy:
                return [bytes(piece) for piece in copy]

    assert messages(node) == messages(postgres)
