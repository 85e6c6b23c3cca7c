"""A filter that CREATE PUBLICATION accepts passes PostgreSQL's rows, and raises errors only on rows on which PostgreSQL raises them.

Conditions are drawn from the grammar of the expressions (`tests.expression.generated`), over one table that has a column for each of its
types, filled with edge values. Each condition is a publication on a node and on PostgreSQL. Then rows are inserted, updated and deleted in
several batches. For each publication and batch, the test compares the messages of a slot of each server. For one batch it also compares a
COPY of the rows that pass: the same rows, or an error. The order of a scan decides which of several failing rows is reported first. A batch
has few rows, so that a row on which a condition raises does not hide all others. The stream is filtered in the driver if that is exact, and
the copy by Spark, so both evaluations are compared. A copy costs six times as much as a stream, so each condition has one.

Two thousand conditions run with `make test-all`. The differences that they found have tests in `tests/expression` and `tests/commands`. A
difference is printed with the condition and the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import Server
from tests.expression.comparison import type_of
from tests.expression.generated import GRAMMAR
from tests.expression.grammar import plain
from tests.publisher import slots

from headgate.errors import PostgresError
from headgate.types.text import text

BATCHES, ROWS = 3, 6
BEYOND = "beyond the last timestamp of Delta"
"""The result for a timestamp in PostgreSQL's last 29 years, which a node rejects, also within an expression (docs/types.md)."""


def is_stored(kind: str, value: str) -> bool:
    """Return whether a node can store the value. Delta's timestamps and dates end before PostgreSQL's."""
    try:
        text.read_text(pa.array([value], pa.string()), *type_of(kind))
    except PostgresError:
        return False
    return True


VALUES = {kind: [value for value in GRAMMAR.values[kind] if is_stored(kind, value)] for _, kind in GRAMMAR.columns}
COLUMNS = ", ".join(f'"{name}"' for name, _ in GRAMMAR.columns)
TYPED = ", ".join(f'"{name}" {kind}' for name, kind in GRAMMAR.columns)
TABLES = (
    f"CREATE TABLE t (place int, {TYPED}); ALTER TABLE t REPLICA IDENTITY FULL;"
    "CREATE TABLE source AS SELECT 0 AS batch, false AS changed, * FROM t"
)


class Publisher:
    """A database of one of the servers. Table `source` has the rows that `write` copies into table `t`."""

    def __init__(self, server: Server, rows: list[tuple[object, ...]]) -> None:
        self.name = server.new_database()
        self.session = psycopg.connect(server.conninfo(self.name), autocommit=True)
        self.session.execute(TABLES.encode())
        marks = ", ".join(["%s", "%s", "%s", *(f"%s::{kind}" for _, kind in GRAMMAR.columns)])
        with self.session.transaction(), self.session.cursor() as cursor:
            query = f"INSERT INTO source VALUES {', '.join([f'({marks})'] * len(rows))}"
            cursor.execute(query.encode(), [value for row in rows for value in row])

    def ask(self, sql: str) -> str | list[tuple[object, ...]]:
        """Return the rows, or the SQLSTATE."""
        try:
            cursor = self.session.execute(sql.encode(), binary=True)
        except psycopg.Error as error:
            return BEYOND if "cannot store" in str(error) else str(error.sqlstate)
        return cursor.fetchall() if cursor.description else "done"

    def write(self, batch: int) -> None:
        """Create a slot for the batch. Then insert its rows, update half of them and delete a third."""
        setters = ", ".join(f'"{name}" = s."{name}"' for name, _ in GRAMMAR.columns)
        for sql in (
            f"SELECT pg_create_logical_replication_slot('{self.slot(batch)}', 'pgoutput')",
            f"INSERT INTO t SELECT place, {COLUMNS} FROM source WHERE batch = {batch} AND NOT changed",
            f"UPDATE t SET {setters} FROM source s WHERE s.batch = {batch} AND s.changed AND s.place = t.place",
            "DELETE FROM t WHERE place % 3 = 0",
        ):
            self.session.execute(sql.encode())

    def slot(self, batch: int) -> str:
        """Return the slot's name."""
        return f"{self.name}_{batch}"

    def stream(self, batch: int, publication: str, end: str) -> str | list[str]:
        """Return the slot's changes of one batch, sorted, or the SQLSTATE."""
        options = f"'proto_version', '1', 'publication_names', '{publication}'"
        rows = self.ask(f"SELECT data FROM pg_logical_slot_peek_binary_changes('{self.slot(batch)}', '{end}', NULL, {options})")
        if isinstance(rows, str):
            return rows
        messages = slots.as_texts([bytes(row[0]) for row in rows])  # type: ignore[arg-type]
        return sorted(message for message in messages if not message.startswith(("Begin", "Commit", "Relation")))

    def copied(self, condition: str) -> str | list[str]:
        """Return the rows of the table's initial copy, sorted, or the SQLSTATE."""
        try:
            with self.session.cursor().copy(f"COPY (SELECT place, {COLUMNS} FROM t WHERE {condition}) TO STDOUT".encode()) as copy:
                return sorted(bytes(row).decode() for row in b"".join(bytes(part) for part in copy).splitlines())
        except psycopg.Error as error:
            return BEYOND if "cannot store" in str(error) else str(error.sqlstate)


def draw_rows(random: Random) -> list[tuple[object, ...]]:
    """Return the rows of all batches, and the rows to which some of them are updated."""
    rows: list[tuple[object, ...]] = []
    for batch in range(BATCHES):
        for number in range(1, ROWS + 1):
            for changed in (False, True) if number % 2 else (False,):
                values = [None if random.random() < 0.15 else random.choice(VALUES[kind]) for _, kind in GRAMMAR.columns]
                rows.append((batch, changed, number, *values))
    return rows


def differences(servers: tuple[Server, Server], random: Random, count: int, outcomes: Counter[str]) -> Iterator[str]:
    """Publish each condition on both servers, and yield where the servers differ."""
    rows = draw_rows(random)
    native, node_publisher = (Publisher(server, rows) for server in servers)
    with native.session, node_publisher.session:
        yield from _compared(native, node_publisher, random, count, outcomes)


def _compared(native: Publisher, node_publisher: Publisher, random: Random, count: int, outcomes: Counter[str]) -> Iterator[str]:
    conditions: dict[str, str] = {}
    for number in range(count):
        condition = plain(GRAMMAR.expression(random, 1 + number % 3, "boolean"))
        answers = [server.ask(f"CREATE PUBLICATION p{number} FOR TABLE t WHERE ({condition})") for server in (native, node_publisher)]
        if answers == ["done", "done"]:
            conditions[f"p{number}"] = condition
        elif "done" in answers and answers[1] != "0A000":
            yield f"CREATE PUBLICATION … WHERE ({condition}): PostgreSQL {answers[0]}, the node {answers[1]}"
        outcomes["published" if answers[1] == "done" else "refused"] += 1
    for batch in range(BATCHES):
        ends = []
        for publisher in (native, node_publisher):
            publisher.write(batch)
            [(end,)] = publisher.session.execute("SELECT pg_current_wal_lsn()").fetchall()
            ends.append(str(end))
        for number, (publication, condition) in enumerate(conditions.items()):
            ways = [
                (
                    "stream",
                    *(publisher.stream(batch, publication, end) for publisher, end in zip((native, node_publisher), ends, strict=True)),
                )
            ]
            if number % BATCHES == batch:
                ways.append(("copy", *(server.copied(condition) for server in (native, node_publisher))))
            for way, expected, actual in ways:
                outcomes["raised" if isinstance(expected, str) else "compared"] += 1
                if actual != BEYOND and actual != expected and not (isinstance(expected, str) and isinstance(actual, str)):
                    yield f"{way} of batch {batch} WHERE {condition}: PostgreSQL {_short(expected, actual)}, the node {_short(actual, expected)}"
        for publisher in (native, node_publisher):
            publisher.session.execute(f"SELECT pg_drop_replication_slot('{publisher.slot(batch)}')".encode())
            publisher.session.execute("TRUNCATE t")


def _short(messages: str | list[str], other_messages: str | list[str]) -> str:
    """Return the messages of one server that the other one does not have."""
    if isinstance(messages, str) or isinstance(other_messages, str):
        return messages if isinstance(messages, str) else f"{len(messages)} changes"
    return str([message for message in messages if message not in set(other_messages)][:2])


@pytest.mark.parametrize(
    ("rounds", "count"),
    [pytest.param(1, 6, marks=pytest.mark.slow), pytest.param(50, 40, marks=[pytest.mark.slow, pytest.mark.timeout(6 * 3600)])],
)
def test_accepted_filter_fails_on_no_row_on_which_postgresqls_does_not(postgres: Server, node: Server, rounds: int, count: int) -> None:
    outcomes: Counter[str] = Counter()
    for round_number in range(rounds):
        assert list(differences((postgres, node), Random(f"{count}/{round_number}"), count, outcomes)) == []
    assert outcomes["published"] > rounds * count / 3, outcomes
    assert outcomes["compared"] > outcomes["raised"], outcomes


@pytest.mark.parametrize(
    "condition",
    [
        "s = width_bucket(n, 0, 10, 5) AND d + 1 = m::date",
        "(s, d + 1) = (width_bucket(n, 0, 10, 5), m::date)",
        "NOT ((s = width_bucket(n, 0, 10, 5)) IS TRUE OR (d + 1 <> m::date) IS TRUE)",
        "s > 1 AND s = width_bucket(n, 0, 10, 5)",
    ],
)
def test_conditions_are_evaluated_in_postgresqls_order_whether_or_not_they_need_python(
    postgres: Server, node: Server, condition: str
) -> None:
    results = []
    for server in (postgres, node):
        with psycopg.connect(server.conninfo(server.new_database()), autocommit=True) as session:
            session.execute("CREATE TABLE t (s int, d date, n numeric, m timestamp)")
            session.execute("INSERT INTO t VALUES (1, '2023-12-31', 'NaN', '2024-01-05')")
            try:
                results.append(str(session.execute(f"SELECT s FROM t WHERE {condition}".encode()).fetchall()))
            except psycopg.Error as error:
                results.append(str(error.sqlstate))
    assert results[1] == results[0]
