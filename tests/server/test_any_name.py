"""A node accepts, prints and rejects any name and any text as PostgreSQL does.

Names that a Delta table cannot have (docs/compatibility.md) have separate tests.
"""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.conftest import Server
from tests.session import Session

from headgate.storage.delta.delta_log import _READERS_OWN, _RESERVED

FAVOURITES = [
    "..", ".a", "a.b", "`", '"', "'", "\\", "*", "%", "_", " ", "\n", "\t", "\r", "\x01", "\x02", "\x7f", "\u00a0", "\u2028", "\ufeff", "\ufffd", "İ", "ß",
    "a\u0301", "😀", "\U0010ffff", "pg_x", "none", "public", "NULL", "select", "A", "ü" * 40, "x" * 70, "a" * 62 + "ü", "$1", "{}", "[]", "(", ";", "--", "/*",
    "E'", "\\N", "\\.", "$$", "k0", "v0", "old", "new", "filename",
]  # fmt: skip
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NAMES = st.one_of(
    st.sampled_from(FAVOURITES), st.text(CHARACTERS, min_size=1, max_size=70), st.text(".`\"'\\ a%_é😀", min_size=1, max_size=8)
)
TEXTS = st.one_of(st.sampled_from([*FAVOURITES, ""]), st.text(CHARACTERS, max_size=200))


def quoted(name: str) -> str:
    """Quote a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def statements(schema: str, table: str, column: str, text: str) -> list[str]:
    """Return statements that use the names and the text."""
    t, c, v = f"{quoted(schema)}.{quoted(table)}", quoted(column), literal(text)
    role = quoted(f"r{column}")  # the names public and none have other messages
    in_full = ".".join(quoted(name.encode()[:63].decode(errors="ignore")) for name in (schema, table))
    return [
        f"CREATE SCHEMA {quoted(schema)}",
        f"CREATE TABLE {t} ({c} text PRIMARY KEY, n serial)",
        f"INSERT INTO {t} VALUES ({v}), ({v} || 'b'), ({v})",
        f"INSERT INTO {t} ({c}) VALUES ({v}), ({v} || 'b')",
        f"UPDATE {t} SET {c} = {c} || {v} WHERE {c} = {v}",
        f"SELECT {c}, length({c}), {c} LIKE '%b', quote_ident({c}), quote_literal({c}), n FROM {t} ORDER BY {c}",
        f"SELECT upper({v}), md5({v}), octet_length({v}), reverse({v}), {v}::bytea IS NULL FROM {t}" if "\\" not in text else "SELECT 1",
        f"CREATE PUBLICATION {quoted(table)} FOR TABLE {t} ({c}) WHERE ({c} <> {v})",
        "SELECT pubname, schemaname, tablename, attnames, rowfilter FROM pg_publication_tables ORDER BY 1, 2, 3",
        f"SELECT {literal(t)}::regclass::text, pg_get_serial_sequence({literal(in_full)}, 'n')",
        f"SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = {literal(t)}::regclass",
        f"SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = {literal(t)}::regclass",
        f"CREATE VIEW {quoted(schema)}.v AS SELECT {c} AS {quoted(table)} FROM {t} WHERE {c} <> {v}",
        f"SELECT pg_get_viewdef({literal(quoted(schema) + '.v')}::regclass)",
        f"SELECT * FROM {quoted(schema)}.v ORDER BY 1",
        f"COMMENT ON COLUMN {t}.{c} IS {v}",
        f"SELECT col_description({literal(t)}::regclass, 1)",
        f"CREATE SUBSCRIPTION {quoted(table)} CONNECTION 'dbname=nowhere' PUBLICATION {quoted(column)} WITH (connect = false, slot_name = NONE)",
        "SELECT subname, subpublications FROM pg_subscription s JOIN pg_database d ON d.oid = subdbid WHERE datname = current_database()",
        f"DROP SUBSCRIPTION {quoted(table)}",
        f"SELECT pg_create_logical_replication_slot({literal(table)}, 'nosuch')",
        f"CREATE ROLE {role}",
        f"GRANT SELECT ({c}) ON {t} TO {role}",
        f"SELECT attname, attacl FROM pg_attribute WHERE attrelid = {literal(t)}::regclass AND attnum = 1",
        f"ALTER TABLE {t} RENAME {c} TO {quoted(table)}",
        f"TABLE {t}",
        f"COPY {t} TO STDOUT",
        f"DROP SCHEMA {quoted(schema)} CASCADE",
        f"DROP PUBLICATION {quoted(table)}",
        f"DROP ROLE {role}",
    ]


class Answers:
    """A session that runs statements as they are and returns their results."""

    def __init__(self, conninfo: str) -> None:
        self.notices: list[str] = []
        self.connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
        self.connection.add_notice_handler(self._hear)

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if "will be truncated to" not in str(notice.message_primary):  # a node truncates names without a notice
            self.notices.append(f"{notice.severity}: {notice.message_primary}")

    def of(self, statement: str) -> str:
        """Return the rows, or the error with its DETAIL, and the notices."""
        self.notices = []
        try:
            cursor = self.connection.cursor()
            if statement.startswith("COPY"):
                with cursor.copy(statement) as copy:
                    return b"".join(copy).decode()
            cursor_result = cursor.execute(statement)
            rows = cursor_result.fetchall() if cursor_result.description else [cursor_result.statusmessage]
        except psycopg.Error as error:
            diagnostic = error.diag
            if diagnostic.sqlstate is None:
                raise  # the session has ended, so later results would not say more
            return f"{diagnostic.sqlstate} {diagnostic.message_primary} | {diagnostic.message_detail} | {diagnostic.message_hint}"
        return "\n".join([*self.notices, *map(str, rows)])


def check(postgres: Answers, node: Answers, schema: str, table: str, column: str, text: str) -> None:
    if column in _RESERVED | _READERS_OWN or table in _RESERVED | _READERS_OWN or column[:63].lower() == "n":
        column = table = "other"
    for statement in statements(schema, table, column, text):
        assert node.of(statement) == postgres.of(statement), statement


@pytest.fixture(scope="module")
def pair(postgres: Server, node: Server):
    sessions = [Answers(server.conninfo(server.new_database())) for server in (postgres, node)]
    yield sessions
    for session in sessions:
        session.connection.close()


@settings(max_examples=1, phases=[Phase.generate])
@given(schema=NAMES, table=NAMES, column=NAMES, text=TEXTS)
def test_any_name_and_any_text_behave_as_in_postgresql(pair, schema, table, column, text) -> None:
    check(*pair, schema, table, column, text)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a quarter of an hour: at five minutes the limit of all tests cut a statement in two
@settings(max_examples=150, phases=[Phase.generate])
@given(schema=NAMES, table=NAMES, column=NAMES, text=TEXTS)
def test_any_name_and_any_text_behave_as_in_postgresql_in_many_examples(pair, schema, table, column, text) -> None:
    check(*pair, schema, table, column, text)


@pytest.mark.parametrize("name", sorted(_RESERVED | _READERS_OWN))
def test_column_name_reserved_by_delta_is_rejected_at_its_creation(node: Server, name: str) -> None:
    session = Session(node.conninfo(node.new_database()))
    for statement in (f"CREATE TABLE t (a int, {name} int)", f"CREATE TABLE u (a int); ALTER TABLE u ADD COLUMN {name} int"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="is reserved by Delta Lake"):
            session.sql(statement)
    session.sql("CREATE TABLE w (a int)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="is reserved by Delta Lake"):
        session.sql(f"ALTER TABLE w RENAME COLUMN a TO {name}")
    session.close()
