"""With random publications and random changes, the stream of a node equals the stream of PostgreSQL.

Each example creates publications with filters, column lists and sets of actions. It changes three tables with different replica identities
in transactions of several statements, and alters the publications in between. Then it compares the messages of a slot of each server: the
same transactions with the same rows (in any order within a transaction), or the same error. So two subscribers of any kind are equal.

A few examples run with the suite, two hundred with `make test-all`. A failing example is printed as the SQL that was run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.conftest import Server
from tests.publisher import slots

TABLES = """
CREATE TABLE k (a int PRIMARY KEY, b int, c text);
CREATE TABLE f (a int, b int, c text); ALTER TABLE f REPLICA IDENTITY FULL;
CREATE TABLE i (a int PRIMARY KEY, b int NOT NULL, c text); CREATE UNIQUE INDEX i_b ON i (b); ALTER TABLE i REPLICA IDENTITY USING INDEX i_b;
CREATE PUBLICATION p; CREATE PUBLICATION q;
"""
FILTERS = [
    "a > 3",
    "b % 2 = 0",
    "c = 'x' OR b IS NULL",
    "a IN (1, 2, 5, 103) AND b < 4",
    "NOT b > 2",
    "c IS NOT NULL",
    "a = b",
    "c LIKE 'x%'",
]
COLUMNS = ["", "", "", " (a)", " (a, b)", " (b)", " (b, a)", " (a, b, c)"]
ACTIONS = ["insert", "update", "delete", "truncate"]

number = st.integers(0, 6)
text = st.sampled_from(["'x'", "'xy'", "'z'", "NULL"])
table = st.sampled_from(["k", "f", "i"])


@st.composite
def membership(draw: st.DrawFn) -> str:
    """Draw an ALTER PUBLICATION … SET TABLE."""
    members = []
    for name in draw(st.lists(table, min_size=1, max_size=3, unique=True)):
        where = f" WHERE ({draw(st.sampled_from(FILTERS))})" if draw(st.booleans()) else ""
        members.append(f"{name}{draw(st.sampled_from(COLUMNS))}{where}")
    return f"ALTER PUBLICATION {draw(st.sampled_from('ppq'))} SET TABLE {', '.join(members)}"


@st.composite
def actions(draw: st.DrawFn) -> str:
    """Draw an ALTER PUBLICATION … SET (publish)."""
    actions_drawn = draw(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=4, unique=True))
    return f"ALTER PUBLICATION {draw(st.sampled_from('pq'))} SET (publish = '{', '.join(actions_drawn)}')"


@st.composite
def change(draw: st.DrawFn) -> str:
    """Draw an INSERT, UPDATE, DELETE or TRUNCATE."""
    name = draw(table)
    kind = draw(st.sampled_from(["insert", "insert", "insert", "update", "update", "key", "delete", "truncate"]))
    if kind == "insert":
        rows = draw(st.lists(st.tuples(number, number, text), min_size=1, max_size=4))
        return f"INSERT INTO {name} VALUES " + ", ".join(f"({a}, {b}, {c})" for a, b, c in rows)
    if kind == "update":
        value = draw(
            st.sampled_from(["c = 'xx'", "c = NULL", "c = c || 'y'", "c = 'x'"] + ([] if name == "i" else ["b = b + 1", "b = NULL"]))
        )
        return (
            f"UPDATE {name} SET {value} WHERE {draw(st.sampled_from(['a', 'b']))} {draw(st.sampled_from(['=', '<', '>']))} {draw(number)}"
        )
    if kind == "key":
        column = draw(st.sampled_from(["a", "b"]))
        return f"UPDATE {name} SET {column} = {column} + 100 WHERE a = {draw(number)}"
    if kind == "delete":
        return f"DELETE FROM {name} WHERE {draw(st.sampled_from(['a', 'b']))} = {draw(number)}"
    return f"TRUNCATE {name}"


@st.composite
def transaction(draw: st.DrawFn) -> list[str]:
    """Draw the statements between BEGIN and COMMIT or ROLLBACK, some of them after a savepoint."""
    inner = draw(st.lists(change(), min_size=1, max_size=4))
    if draw(st.booleans()):
        end = draw(st.sampled_from(["ROLLBACK TO s", "RELEASE s"]))
        inner = [*inner, "SAVEPOINT s", *draw(st.lists(change(), min_size=1, max_size=2)), end, *draw(st.lists(change(), max_size=1))]
    return ["BEGIN", *inner, draw(st.sampled_from(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))]


step = st.one_of(transaction(), change().map(lambda sql: [sql]), change().map(lambda sql: [sql]), membership().map(lambda sql: [sql]),
                 actions().map(lambda sql: [sql]))  # fmt: skip


@dataclass
class Publisher:
    """A database of one of the two servers."""

    server: Server
    database: str
    session: psycopg.Connection[tuple[object, ...]]

    def run(self, sql: str) -> str:
        """Return the command's tag, or its error."""
        try:
            return str(self.session.execute(sql).statusmessage)
        except psycopg.Error as error:
            return f"{error.sqlstate} {error.diag.message_primary}"

    def begin(self) -> None:
        """Empty the tables and the publications, and create a new slot."""
        self.run("ROLLBACK")
        for sql in ("TRUNCATE k, f, i", "DROP PUBLICATION p", "DROP PUBLICATION q", "CREATE PUBLICATION p", "CREATE PUBLICATION q"):
            self.run(sql)
        self.run(f"SELECT pg_drop_replication_slot('{self.slot}')")
        self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")

    @property
    def slot(self) -> str:
        """Return the slot's name."""
        return f"{self.database}_property"

    def stream(self) -> list[list[str]] | str:
        """Return the transactions, each with its messages sorted, or the error."""
        sql = f"SELECT data FROM pg_logical_slot_get_binary_changes('{self.slot}', NULL, NULL, 'proto_version', '3', 'publication_names', 'p,q')"
        try:
            messages = slots.as_texts([bytes(row[0]) for row in self.session.execute(sql, binary=True)])  # type: ignore[arg-type]
        except psycopg.Error as error:
            return re.sub(r"[0-9A-F]+/[0-9A-F]+", "LSN", f"{error.sqlstate} {error.diag.message_primary}")
        transactions: list[list[str]] = []
        for message in messages:
            if message.startswith("Begin"):
                transactions.append([])
            elif not message.startswith(("Commit", "Relation")):
                transactions[-1].append(message)
        return [sorted(messages_of_transaction) for messages_of_transaction in transactions]


@pytest.fixture(scope="module")
def publishers(postgres: Server, node: Server) -> Iterator[list[Publisher]]:
    """A database on PostgreSQL, and one on the node."""
    servers = []
    for server in (postgres, node):
        database = server.new_database()
        server.psql(database, TABLES)
        servers.append(Publisher(server, database, psycopg.connect(server.conninfo(database), autocommit=True)))
    yield servers
    for publisher in servers:
        publisher.run("ROLLBACK")
        publisher.run(f"SELECT pg_drop_replication_slot('{publisher.slot}')")
        publisher.session.close()


@pytest.mark.parametrize("examples", [5, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_node_publishes_what_postgresql_publishes(publishers: list[Publisher], examples: int) -> None:
    @given(steps=st.lists(step, min_size=4, max_size=10), first=st.lists(membership(), min_size=1, max_size=2))
    @settings(max_examples=examples)
    def agree(first: list[str], steps: list[list[str]]) -> None:
        for publisher in publishers:
            publisher.begin()
        for sql in [*first, *[sql for statements in steps for sql in statements]]:
            answers = [publisher.run(sql) for publisher in publishers]
            note(f"{sql};  -- {answers[0]}")
            assert answers[1] == answers[0], sql
        expected, actual = (publisher.stream() for publisher in publishers)
        assert actual == expected

    agree()


def test_column_lists_that_no_truncate_needs_are_not_compared(publishers: list[Publisher]) -> None:
    streams = []
    for publisher in publishers:
        publisher.begin()
        for sql in (
            "ALTER PUBLICATION p SET TABLE k",
            "ALTER PUBLICATION q SET TABLE k (a)",
            "ALTER PUBLICATION p SET (publish = 'truncate')",
            "ALTER PUBLICATION q SET (publish = 'truncate')",
            "INSERT INTO k VALUES (0, 0, 'x')",
            "TRUNCATE k",
        ):
            publisher.run(sql)
        streams.append(publisher.stream())
    assert streams[1] == streams[0]
    assert "Truncate" in str(streams[0])
