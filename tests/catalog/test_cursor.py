"""Cached answers of catalog queries equal what DuckDB would answer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog.cursor import Answers, CatalogCursor

NAMES = "SELECT a FROM hg.names ORDER BY a"
QUERIES = (
    NAMES,
    "SELECT count(*) FROM hg.others",
    "SELECT n.a, o.a FROM hg.names n JOIN hg.others o USING (a) ORDER BY ALL",
    "SELECT * FROM hg.both_kinds ORDER BY ALL",
    "SELECT hg.how_many()",
)


def open_catalog() -> tuple[duckdb.DuckDBPyConnection, Answers]:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA hg")
    for table in ("names", "others"):
        connection.execute(f"CREATE TABLE hg.{table} (a INTEGER)")
    connection.execute("CREATE VIEW hg.both_kinds AS SELECT a FROM hg.names UNION ALL SELECT a FROM hg.others")
    connection.execute("CREATE MACRO hg.how_many() AS (SELECT count(*) FROM hg.both_kinds)")
    return connection, Answers(connection)


@pytest.fixture
def opened() -> Iterator[tuple[duckdb.DuckDBPyConnection, Answers]]:
    connection, answers = open_catalog()
    yield connection, answers
    connection.close()


def duckdb_rows(cursor: CatalogCursor, query: str) -> list[Any]:
    """Return the rows that DuckDB itself returns."""
    return list(cursor.execute(query).fetchall())


def test_answer_is_cached_until_a_commit_writes_a_table_that_the_query_reads(opened: tuple[duckdb.DuckDBPyConnection, Answers]) -> None:
    connection, answers = opened
    reader, writer = CatalogCursor(connection.cursor(), answers), CatalogCursor(connection.cursor(), answers)
    assert reader.rows(NAMES) == []
    connection.execute("INSERT INTO hg.names VALUES (1)")  # without the knowledge of any cursor
    assert reader.rows(NAMES) == [], "the query was sent to DuckDB again"
    writer.execute("INSERT INTO hg.others VALUES (1)")
    assert reader.rows(NAMES) == [], "a write to another table invalidates the answer"
    writer.execute("INSERT INTO hg.names VALUES (2)")
    assert reader.rows(NAMES) == [(1,), (2,)]


def test_transaction_keeps_its_snapshot(opened: tuple[duckdb.DuckDBPyConnection, Answers]) -> None:
    connection, answers = opened
    first, second = CatalogCursor(connection.cursor(), answers), CatalogCursor(connection.cursor(), answers)
    first.execute("BEGIN TRANSACTION")
    duckdb_rows(first, "SELECT count(*) FROM hg.others")
    second.execute("INSERT INTO hg.names VALUES (1)")
    assert second.rows(NAMES) == [(1,)]
    assert first.rows(NAMES) == []
    first.execute("INSERT INTO hg.names VALUES (7)")
    assert first.rows(NAMES) == [(7,)]
    assert second.rows(NAMES) == [(1,)]
    first.execute("COMMIT")
    assert first.rows(NAMES) == second.rows(NAMES) == [(1,), (7,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, now() FROM hg.names",
        "SELECT a, random() FROM hg.names",
        "SELECT 1",
        "SELECT a FROM mine",
        "SELECT table_name FROM duckdb_tables()",
    ],
)
def test_query_on_unversioned_data_is_never_cached(query: str, opened: tuple[duckdb.DuckDBPyConnection, Answers]) -> None:
    connection, answers = opened
    CatalogCursor(connection.cursor(), answers).register("mine", pa.table({"a": [1]}))
    assert answers.reads(query) is None


def test_table_created_later_has_versions(opened: tuple[duckdb.DuckDBPyConnection, Answers]) -> None:
    connection, answers = opened
    cursor = CatalogCursor(connection.cursor(), answers)
    assert answers.reads("SELECT a FROM hg.later") is None
    cursor.execute("CREATE TABLE hg.later (a INTEGER)")
    assert answers.reads("SELECT a FROM hg.later") == ("later",)
    assert answers.reads("SELECT hg.how_many() FROM hg.later") == ("later", "names", "others")


def test_cache_is_limited(opened: tuple[duckdb.DuckDBPyConnection, Answers]) -> None:
    connection, answers = opened
    cursor = CatalogCursor(connection.cursor(), answers)
    cursor.execute("INSERT INTO hg.names SELECT range FROM range(100)")
    long = "x" * 500_000
    for number in range(100):
        assert cursor.rows("SELECT a, ? FROM hg.names WHERE a = ?", [long, number]) == [(number, long)]
    cursor.rows(NAMES)
    assert answers._characters <= 16 << 20
    assert sum(size for _, size in answers._entries.values()) == answers._characters
    assert all(len(rows) <= 64 for rows, _ in answers._entries.values())


DEED = st.tuples(st.integers(0, 2), st.sampled_from(["begin", "commit", "rollback", "names", "others", "remove", *["look"] * 4]))


@pytest.mark.slow
@given(st.lists(DEED, max_size=40))
@settings(max_examples=25, deadline=None)
def test_three_transactions_are_answered_as_by_duckdb(deeds: list[tuple[int, str]]) -> None:
    connection, answers = open_catalog()
    cursors = [CatalogCursor(connection.cursor(), answers) for _ in range(3)]
    begun = [False] * 3
    for number, (index, deed) in enumerate(deeds):
        cursor = cursors[index]
        try:
            if deed == "begin" and not begun[index]:
                cursor.execute("BEGIN TRANSACTION")
                begun[index] = True
            elif deed in ("commit", "rollback") and begun[index]:
                begun[index] = False
                cursor.execute(deed.upper())
            elif deed in ("names", "others"):
                cursor.execute(f"INSERT INTO hg.{deed} VALUES (?)", [number])
            elif deed == "remove":
                cursor.execute("DELETE FROM hg.names")
        except duckdb.TransactionException:  # another transaction has written the row first
            begun[index] = False
            cursor.execute("ROLLBACK") if deed != "commit" else None
        for query in QUERIES:
            assert cursor.rows(query) == duckdb_rows(cursor, query)
    connection.close()


OBJECTS = """CREATE SCHEMA hg;
CREATE TABLE hg.pg_class (dbid UINTEGER, oid UINTEGER, relname VARCHAR, relnamespace UINTEGER, relacl VARCHAR);
CREATE TABLE hg.pg_constraint (dbid UINTEGER, conrelid UINTEGER, confrelid UINTEGER, conname VARCHAR);
INSERT INTO hg.pg_class VALUES (5, 1, 'a', 9, NULL), (5, 2, 'b', 9, NULL);
INSERT INTO hg.pg_constraint VALUES (5, 1, 2, 'c')"""
ON_OBJECTS = (
    ("SELECT relnamespace, oid FROM hg.pg_class WHERE dbid IN (0, ?) AND relname = ?", "dn"),
    ("SELECT oid, relname FROM hg.pg_class WHERE (oid = ?) AND dbid IN (0, ?)", "od"),
    ("SELECT oid, relname FROM hg.pg_class WHERE (oid = ? OR oid = ?) AND dbid IN (0, ?)", "ood"),
    ("SELECT relacl FROM hg.pg_class WHERE oid = ?", "o"),
    ("SELECT conname FROM hg.pg_constraint WHERE (conrelid = ? OR confrelid = ?) AND dbid IN (0, ?)", "ood"),
    ("SELECT count(*) FROM hg.pg_class c JOIN hg.pg_constraint k ON k.conrelid = c.oid", ""),
)
OF_OBJECTS = (
    ("INSERT INTO hg.pg_class (dbid, oid, relname, relnamespace) VALUES (?, ?, ?, ?)", "d+no"),
    ("INSERT INTO hg.pg_class (dbid, oid, relnamespace) VALUES (?, ?, ?)", "d+o"),
    ("INSERT INTO hg.pg_constraint (dbid, conrelid, confrelid, conname) VALUES (?, ?, ?, ?)", "doon"),
    ("UPDATE hg.pg_class SET relname = ? WHERE dbid = ? AND oid = ?", "ndo"),
    ("UPDATE hg.pg_class SET relnamespace = ? WHERE dbid = ? AND relname = ?", "odn"),
    ("UPDATE hg.pg_class SET relacl = ? WHERE dbid IN (0, ?) AND oid = ?", "ndo"),
    ("UPDATE hg.pg_class SET relacl = relname WHERE oid = ?", "o"),
    ("UPDATE hg.pg_constraint SET confrelid = ? WHERE conrelid = ?", "oo"),
    ("DELETE FROM hg.pg_class WHERE oid = ?", "o"),
    ("DELETE FROM hg.pg_constraint WHERE conrelid = ? AND conname = ?", "on"),
    ("DELETE FROM hg.pg_constraint WHERE conrelid NOT IN (SELECT oid FROM hg.pg_class)", ""),
)
ACT = st.tuples(
    st.integers(0, 2),
    st.one_of(st.sampled_from(("BEGIN", "COMMIT", "ROLLBACK")), st.sampled_from(OF_OBJECTS)),
    st.integers(1, 3),
    st.sampled_from("abc"),
    st.booleans(),
)


@given(st.lists(ACT, max_size=20))
@settings(max_examples=max(5, settings.default.max_examples // 12), deadline=None)
def test_cached_lookups_of_single_objects_equal_duckdbs_answers(acts: list[tuple[int, Any, int, str, bool]]) -> None:
    connection = duckdb.connect()
    connection.execute(OBJECTS)
    answers = Answers(connection)
    cursors, begun = [CatalogCursor(connection.cursor(), answers) for _ in range(3)], [False] * 3
    new = itertools.count(3)

    def values(kinds: str, oid: int, name: str) -> list[object]:
        return [next(new) if kind == "+" else {"d": 5, "o": oid, "n": name}[kind] for kind in kinds]

    for index, act, oid, name, is_compared in acts:
        cursor = cursors[index]
        try:
            if isinstance(act, str):
                if begun[index] != (act == "BEGIN"):
                    begun[index] = not begun[index]
                    cursor.execute(act)
            else:
                cursor.execute(act[0], values(act[1], oid, name))
        except duckdb.TransactionException:  # another transaction has written the row first
            cursor.execute("ROLLBACK") if begun[index] else None
            begun[index] = False
        for (query, kinds), number, letter in itertools.product(ON_OBJECTS, (1, 3), "a"):
            parameters = values(kinds, number, letter)
            rows = cursor.rows(query, parameters)
            # A query on DuckDB makes the transaction write its buffered rows. Without it they are written at COMMIT.
            if is_compared or not begun[index]:
                assert sorted(rows, key=str) == sorted(cursor.execute(query, parameters).fetchall(), key=str), query
    connection.close()


def test_change_of_one_table_keeps_the_cached_lookups_of_another() -> None:
    connection = duckdb.connect()
    connection.execute(OBJECTS)
    answers = Answers(connection)
    reader, writer = CatalogCursor(connection.cursor(), answers), CatalogCursor(connection.cursor(), answers)
    by_oid, by_name = ON_OBJECTS[1][0], ON_OBJECTS[0][0]
    assert reader.rows(by_oid, [1, 5]) == [(1, "a")]
    assert reader.rows(by_name, [5, "a"]) == [(9, 1)]
    connection.execute("UPDATE hg.pg_class SET relname = 'x' WHERE oid = 1")  # without the knowledge of the catalog's cursors
    writer.execute("UPDATE hg.pg_class SET relname = ? WHERE oid = ?", ["y", 2])
    assert reader.rows(by_oid, [1, 5]) == [(1, "a")], "the query was sent to DuckDB again"
    assert reader.rows(by_name, [5, "a"]) == [], "a renamed table invalidates all lookups by name"
    writer.execute("UPDATE hg.pg_class SET relacl = ? WHERE oid = ?", ["r", 1])
    assert reader.rows(by_oid, [1, 5]) == [(1, "a")], "the lookup does not depend on the table's privileges"
    writer.execute("UPDATE hg.pg_class SET relnamespace = ? WHERE oid = ?", [8, 1])
    assert reader.rows(by_oid, [1, 5]) == [(1, "x")]


def test_table_altered_by_a_transaction_is_not_loaded_again_by_the_next_one() -> None:
    connection = duckdb.connect()
    connection.execute(OBJECTS)
    answers = Answers(connection)
    reader, writer = CatalogCursor(connection.cursor(), answers), CatalogCursor(connection.cursor(), answers)
    (by_name, _), (by_oid, _), *_, (constraints, _), _ = ON_OBJECTS
    writer.execute("BEGIN")
    writer.execute("SELECT oid FROM hg.pg_class")  # takes the snapshot
    assert writer.rows(by_name, [5, "c"]) == []
    assert writer.rows(constraints, [1, 1, 5]) == [("c",)]
    writer.execute(OF_OBJECTS[0][0], [5, 3, "c", 9])
    writer.execute(OF_OBJECTS[2][0], [5, 3, 1, "k"])
    assert writer.rows(by_oid, [3, 5]) == [(3, "c")]
    writer.execute("COMMIT")
    connection.execute("DELETE FROM hg.pg_class; DELETE FROM hg.pg_constraint")  # without the knowledge of the catalog's cursors
    assert reader.rows(by_name, [5, "c"]) == [(9, 3)], "the query was sent to DuckDB again"
    assert reader.rows(by_oid, [3, 5]) == [(3, "c")]
    assert reader.rows(constraints, [1, 1, 5]) == [("c",), ("k",)]
    connection.close()


def test_concurrent_readers_and_writers_see_duckdbs_answers(opened: tuple[duckdb.DuckDBPyConnection, Answers]) -> None:
    connection, answers = opened
    wrong: list[str] = []
    finished = threading.Event()

    def write(table: str) -> None:
        cursor = CatalogCursor(connection.cursor(), answers)
        for number in range(150):
            cursor.execute("BEGIN TRANSACTION")
            cursor.execute(f"INSERT INTO hg.{table} VALUES (?)", [number])
            cursor.execute("COMMIT")

    def read() -> None:
        cursor = CatalogCursor(connection.cursor(), answers)
        while not finished.is_set():
            cursor.execute("BEGIN TRANSACTION")
            wrong.extend(query for query in QUERIES for _ in range(2) if cursor.rows(query) != duckdb_rows(cursor, query))
            cursor.execute("ROLLBACK")

    writers = [threading.Thread(target=write, args=(table,)) for table in ("names", "others")]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    finished.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    cursor = CatalogCursor(connection.cursor(), answers)
    assert cursor.rows("SELECT hg.how_many()") == [(300,)]
