"""COPY answers as in PostgreSQL: options, headers, quoting, encodings, WHERE, and errors."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import psycopg
import pytest
from tests.conftest import Server

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a text, b numeric(6,2) CHECK (b < 1000), g bool DEFAULT true, h text DEFAULT 'dd')"
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
    (
        "(id, a) FROM STDIN (FORMAT csv, ESCAPE '\\')",
        b'80,"a\\"b"\n81,"c\\\\"\n83,"\\n\n\\"q\\""\n84,"d""e"\n85,"\\"\\",\\\\"\n86,\\\n',
    ),
    ("(id, a) FROM STDIN (FORMAT csv)", b'101,"x"y"z"\n102,ab"c,d"e\n103,a""b\n104,"a"""\n105,""""\n106,x"\n"y\n'),
    ("(id, a) FROM STDIN (FORMAT csv)", b'107,""x\n108,x""\n109,"a""b"c"d""e"\n110,\n'),
    ("(id, a) FROM STDIN (FORMAT csv, HEADER, QUOTE '''', ESCAPE '^')", b"id,a\n90,'it^'s'\n91,'^^'\n92,''\n93,'^x'\n94,^\n"),
    ("(id, a) FROM STDIN (FORMAT csv, ESCAPE '\\')", b'87,"never closed\n88,x\n'),
    ("(id, a) FROM STDIN (FORMAT csv, ESCAPE 'ab')", b""),
    ("(id, a) FROM STDIN WHERE g AND h = 'dd' AND id > 70", b"70\tx\n71\tx\n"),
    ("(id, a) FROM STDIN WHERE a > (SELECT 'x')", b""),
    ("(id, a) FROM STDIN WHERE nosuch > 1", b""),
    ("(id, b) FROM STDIN", b"120\t1\n121\t5000\n"),
    ("(id, a) FROM STDIN", b"122\tx\n\\N\ty\n"),
    ("(id, a) FROM STDIN", b"123\tx\n124\ty\n123\tz\n"),
    ("(id, a, b) FROM STDIN (FORMAT csv, HEADER)", b'id,a,b\n125,"x\ny",1\n126,"z\nw",5000\n127,v,1\n'),
    ("(id, a, b) FROM STDIN (FORMAT csv, HEADER)", b'id,a,b\n125,"x\ny",1\n1x,"z\nw",1\n'),
    ("(id, b, a) FROM STDIN (FORMAT csv)", b"128,5000," + 120 * b"x"),
    ("(id, b) FROM STDIN", b"129\tx\n1x\t1\n"),
    ("(id, b) FROM STDIN (FORMAT csv)", 120 * b"x" + b",1\n"),
]
HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)


def binary_row(*values: bytes | None) -> bytes:
    return struct.pack("!h", len(values)) + b"".join(
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values
    )


WHOLE = binary_row(struct.pack("!i", 1), b"a", None)
BROKEN = {
    "no header": b"1\ta\n",
    "with oids": HEADER[:11] + struct.pack("!ii", 1 << 16, 0),
    "other flags": HEADER[:11] + struct.pack("!ii", 1 << 17, 0),
    "negative length of the header": HEADER[:11] + struct.pack("!ii", 0, -3),
    "too few columns": HEADER + WHOLE + binary_row(b"1234"),
    "too many columns": HEADER + struct.pack("!h", 7),
    "short integer": HEADER + WHOLE + binary_row(b"123", b"a", None),
    "long integer": HEADER + WHOLE + binary_row(b"12345678", b"a", None),
    "short before a later long one": HEADER + binary_row(b"1234", b"a", b"123") + binary_row(b"12345678", b"a", None),
    "NULL": HEADER + WHOLE + binary_row(None, b"a", None),
    "check": HEADER + binary_row(b"1234", b"bad", None),
    "no character": HEADER + WHOLE + binary_row(b"1234", b"\xff", None),
    "zero byte": HEADER + WHOLE + binary_row(b"1234", b"a\0b", None),
    "end in a value": HEADER + WHOLE + WHOLE[:-6],
    "negative size": HEADER + WHOLE + struct.pack("!h", 3) + struct.pack("!i", -5),
    "rows behind the end": HEADER + WHOLE + struct.pack("!h", -1) + WHOLE,
}
GIVEN_UP = [
    ("", [b""]),
    ("", [b"1\ta\t\\N\n2\tb\t\\N\n"]),
    ("", [b"1\ta\t\\N\n", b"2\tb"]),
    ("(FORMAT csv)", [b'1,a,\n2,"a\n",\n3,"']),
    ("(FORMAT binary)", [b""]),
    ("(FORMAT binary)", [HEADER, WHOLE + WHOLE, WHOLE[:5]]),
]
OUT = [
    "t (id) TO STDOUT (HEADER MATCH)",
    "(SELECT id, a, b FROM t ORDER BY id) TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE *)",
    "(SELECT id, a FROM t ORDER BY id) TO STDOUT (FORMAT csv, FORCE_QUOTE (a))",
    "(SELECT id, a FROM t ORDER BY id) TO STDOUT (FORMAT csv, FORCE_QUOTE (b))",
    "(SELECT id, a || '^' FROM t WHERE id = 10) TO STDOUT (FORMAT csv, QUOTE '\"', ESCAPE '^')",
    "(SELECT id, a FROM t WHERE id BETWEEN 80 AND 120 ORDER BY id) TO STDOUT (FORMAT csv, ESCAPE '\\')",
    "(SELECT id, a FROM t WHERE id = 27) TO STDOUT (ENCODING 'latin1')",
    "(SELECT id, '€' FROM t WHERE id = 27) TO STDOUT (ENCODING 'latin1')",
    "(DELETE FROM t WHERE id = 71) TO STDOUT",
    "(DELETE FROM t WHERE id = 71 RETURNING id, a, h) TO STDOUT",
]


def test_copy_answers_as_in_postgresql(node: Server, postgres: Server) -> None:
    different = []
    with (
        psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as node_session,
        psycopg.connect(postgres.conninfo(postgres.new_database()), autocommit=True) as native,
    ):
        native.execute(TABLE)
        node_session.execute(TABLE)
        for statement, data in [
            *[(f"COPY t {arguments}", data) for arguments, data in IN],
            *[(f"COPY {arguments}", None) for arguments in OUT],
        ]:
            expected, actual = answered(native, statement, data), answered(node_session, statement, data)
            if expected != actual:
                different.append(f"{statement}\n  PostgreSQL: {expected!r}\n  node:       {actual!r}")
    assert not different, "\n" + "\n".join(different)


def answered(connection: psycopg.Connection, statement: str, data: bytes | None) -> bytes | str:
    cursor = connection.cursor()
    try:
        with cursor.copy(statement.encode()) as copy:
            if data is None:
                return b"".join(bytes(chunk) for chunk in copy)
            copy.write(data)
        return str(cursor.statusmessage)
    except psycopg.Error as error:
        diag = error.diag
        return f"{diag.sqlstate} {diag.message_primary} {diag.message_detail} {diag.context}"


@pytest.fixture(scope="module")
def both(node: Server, postgres: Server) -> Iterator[list[psycopg.Connection]]:
    """Sessions of PostgreSQL and of the node with the table b."""
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(server.conninfo(server.new_database()))) for server in (postgres, node)]
        for session in sessions:
            session.execute("CREATE TABLE b (id int NOT NULL, a text CHECK (a <> 'bad'), t timestamp)")
            session.commit()
        yield sessions


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_error_in_the_binary_format_names_its_line_and_column(both: list[psycopg.Connection], data: bytes) -> None:
    expected, actual = [answered(session, "COPY b FROM STDIN (FORMAT binary)", data) for session in both]
    for session in both:
        session.rollback()
    assert actual == expected


@pytest.mark.parametrize(("options", "pieces"), GIVEN_UP)
def test_copy_that_the_client_gives_up_names_the_line(both: list[psycopg.Connection], options: str, pieces: list[bytes]) -> None:
    def answer(session: psycopg.Connection) -> list[str]:
        session.pgconn.exec_(b"BEGIN")
        session.pgconn.exec_(f"COPY b FROM STDIN {options}".encode())
        for piece in pieces:
            session.pgconn.put_copy_data(piece)
        session.pgconn.put_copy_end(b"given up")
        messages = []
        while (result := session.pgconn.get_result()) is not None:
            messages.append(result.error_message.decode())
        session.pgconn.exec_(b"ROLLBACK")
        return messages

    expected, actual = map(answer, both)
    assert "given up" in expected[0]
    assert actual == expected


@pytest.mark.parametrize(
    "query", ["SELECT i, i * 2 FROM t ORDER BY i", "SELECT i, i FROM t WHERE i > 9", "SELECT 1, 2", "SELECT oid FROM pg_am WHERE oid < 0"]
)
def test_binary_header_is_sent_with_the_first_row(node: Server, postgres: Server, query: str) -> None:
    """psycopg takes each message for a row. PostgreSQL sends the header with the first row, or with the trailer if there are no rows."""

    def messages(server: Server) -> list[bytes]:
        with psycopg.connect(server.conninfo(server.new_database())) as session:
            session.execute("CREATE TABLE t (i int)")
            session.execute("INSERT INTO t VALUES (1), (2), (3)")
            with session.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()) as copy:
                return [bytes(piece) for piece in copy]

    assert messages(node) == messages(postgres)


@pytest.mark.slow
def test_copied_files_of_a_table_have_the_rows_that_the_statement_sees(node: Server, postgres: Server) -> None:
    """Without deleted rows, with the current columns, and with the rows that the transaction itself has written."""
    preparation = [
        "CREATE TABLE t (id int PRIMARY KEY, a text, gone int, n numeric(8,2), at timestamptz, raw bytea)",
        "INSERT INTO t SELECT g, 'text ' || g, g, g / 3.0, timestamptz '2026-01-01' + g * interval '1 s', '\\x00ff' FROM generate_series(1, 20000) g",
        "DELETE FROM t WHERE id IN (1, 5000, 16384, 16385, 19999)",
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t ADD COLUMN late int",
        "INSERT INTO t VALUES (30000, E'tab\\t\\\\', 1, NULL, NULL, 7)",
    ]
    changes = ["UPDATE t SET n = -1, late = 8 WHERE id = 7", "DELETE FROM t WHERE id = 30000", "INSERT INTO t (id) VALUES (40000)"]
    copies = [
        "COPY t TO STDOUT",
        "COPY t (late, b, id) TO STDOUT (FORMAT csv)",
        "COPY t (late) TO STDOUT",
        "COPY t TO STDOUT (FORMAT binary)",
    ]

    def seen(server: Server) -> list[list[bytes]]:
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
            for statement in preparation:
                session.execute(statement.encode())
            with session.transaction():
                for statement in changes:
                    session.execute(statement.encode())
                copied = []
                for statement in copies:
                    with session.cursor().copy(statement.encode()) as copy:
                        copied.append(sorted(bytes(row) for piece in copy for row in lines(bytes(piece), statement)))
                return copied

    def lines(piece: bytes, statement: str) -> list[bytes]:
        """Return the lines of COPY. psycopg returns one line at a time from PostgreSQL, but a node sends CSV in larger pieces."""
        return piece.splitlines(keepends=True) if "csv" in statement else [piece.removeprefix(b"PGCOPY\n\xff\r\n\0" + bytes(8))]

    assert seen(node) == seen(postgres)
