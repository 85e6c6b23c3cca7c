"""A transaction's inserted rows are written late, and every statement answers as if they were written immediately."""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import unwritten
from headgate.catalog.cursor import Answers, CatalogCursor
from headgate.catalog.unwritten import to_arrow, to_insert

TABLES = """CREATE SCHEMA hg;
CREATE TABLE hg.pg_class (dbid UINTEGER, oid UINTEGER, relname VARCHAR, relhasindex BOOLEAN, reloptions VARCHAR[]);
CREATE TABLE hg.pg_attribute (dbid UINTEGER, attrelid UINTEGER, attname VARCHAR, attnum SMALLINT);
INSERT INTO hg.pg_class VALUES (0, 1, 'a', false, NULL), (5, 2, 'b', true, ['x=1']);
INSERT INTO hg.pg_attribute VALUES (0, 1, 'n', 1), (5, 2, 'm', 1)"""
NAMES = st.sampled_from("abc")
READS = (
    ("SELECT oid, relname, relhasindex, reloptions FROM hg.pg_class WHERE relname = ? AND dbid IN (0, ?)", ("name", "database")),
    ("SELECT relname FROM hg.pg_class WHERE oid = ? AND dbid = ?", ("oid", "database")),
    ("SELECT attname, attnum FROM hg.pg_attribute WHERE (attrelid = ? OR attnum = ?)", ("oid", "number")),
    ("SELECT attname FROM hg.pg_attribute WHERE attrelid = ? AND dbid IN (0, ?)", ("oid", "database")),
    ("SELECT count(*) FROM hg.pg_class", ()),
    ("SELECT c.relname, a.attname FROM hg.pg_class c JOIN hg.pg_attribute a ON a.attrelid = c.oid WHERE c.oid = ?", ("oid",)),
)
WRITES = (
    ("UPDATE hg.pg_class SET relhasindex = ?, relname = ? WHERE dbid = ? AND oid = ?", ("truth", "name", "database", "oid")),
    ("UPDATE hg.pg_class SET relname = ? WHERE relname = ?", ("name", "name")),
    ("UPDATE hg.pg_attribute SET attname = ? WHERE attrelid = ?", ("name", "oid")),
    ("DELETE FROM hg.pg_attribute WHERE attrelid = ? AND attnum = ?", ("oid", "number")),
    ("DELETE FROM hg.pg_class WHERE dbid = ? AND oid = ?", ("database", "oid")),
    ("DELETE FROM hg.pg_attribute WHERE attrelid NOT IN (SELECT oid FROM hg.pg_class)", ()),
)
STEP = st.one_of(
    st.tuples(st.just("table"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("columns"), st.integers(0, 9), st.integers(1, 3)),
    st.tuples(st.just("statement"), st.sampled_from(READS + WRITES), st.integers(0, 9), NAMES, NAMES),
    st.tuples(st.just("end"), st.sampled_from(("COMMIT", "ROLLBACK"))),
)


def opened() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(TABLES)
    return connection


@given(st.lists(STEP, max_size=25), st.sampled_from((2, 256)))
@settings(max_examples=20, deadline=None)
def test_answers_equal_those_of_a_connection_that_writes_immediately(steps: list[Any], most_rows: int) -> None:
    plain, delayed = opened(), opened()
    cursor = CatalogCursor(delayed.cursor(), Answers(delayed))
    oids, new = [1, 2], itertools.count(16384)

    def run(sql: str, parameters: list[object]) -> None:
        if sql.startswith("SELECT"):
            assert sorted(cursor.rows(sql, parameters), key=str) == sorted(plain.execute(sql, parameters).fetchall(), key=str), sql
        else:
            cursor.execute(sql, parameters)
            plain.execute(sql, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unwritten, "MOST_ROWS", most_rows)
        run("BEGIN", [])
        for step in steps:
            match step:
                case "table", name, columns:
                    oids.append(next(new))
                    run("INSERT INTO hg.pg_class (dbid, oid, relname, relhasindex) VALUES (?, ?, ?, ?)", [5, oids[-1], name, False])
                    for number in range(columns):
                        run("INSERT INTO hg.pg_attribute (dbid, attrelid, attnum) VALUES (?, ?, ?)", [5, oids[-1], number])
                case "columns", at, count:
                    rows = [value for number in range(count) for value in (5, oids[at % len(oids)], "n", number)]
                    marks = ", ".join(["(?, ?, ?, ?)"] * count)
                    run(f"INSERT INTO hg.pg_attribute (dbid, attrelid, attname, attnum) VALUES {marks}", rows)
                case "statement", (sql, kinds), at, first, second:
                    names = iter((first, second))
                    values = {"database": 5, "oid": oids[at % len(oids)], "number": at % 3, "truth": at % 2 == 0}
                    run(sql, [next(names) if kind == "name" else values[kind] for kind in kinds])
                case "end", word:
                    run(word, [])
                    run("BEGIN", [])
        run("COMMIT", [])
        for table in ("pg_class", "pg_attribute"):
            assert sorted(cursor.rows(f"SELECT * FROM hg.{table}"), key=str) == sorted(
                plain.execute(f"SELECT * FROM hg.{table}").fetchall(), key=str
            )


def test_rows_of_a_new_relation_are_read_without_duckdb() -> None:
    connection = opened()
    cursor = CatalogCursor(connection.cursor(), Answers(connection))
    cursor.execute("BEGIN")
    cursor.execute("INSERT INTO hg.pg_class (dbid, oid, relname) VALUES (?, ?, ?)", [5, 16384, "t"])
    connection.execute("DROP TABLE hg.pg_attribute")  # a query on it would fail
    assert cursor.rows("SELECT attname FROM hg.pg_attribute WHERE attrelid = ? AND dbid IN (0, ?)", [16384, 5]) == []


@pytest.mark.parametrize(
    ("between", "expected_rows"),
    [
        ("SELECT count(*) FROM hg.pg_attribute", [("n",)]),
        ("SELECT count(*) FROM hg.pg_class", [("n",)]),
        ("UPDATE hg.pg_attribute SET attname = 'm' WHERE attnum = 1", [("m",)]),
        ("DELETE FROM hg.pg_attribute WHERE attnum = 1", []),
    ],
)
def test_rows_of_a_new_relation_are_found_after_another_statement_has_written_them(between: str, expected_rows: list[tuple[str]]) -> None:
    connection = opened()
    cursor = CatalogCursor(connection.cursor(), Answers(connection))
    cursor.execute("BEGIN")
    cursor.execute("INSERT INTO hg.pg_class (dbid, oid, relname) VALUES (?, ?, ?)", [5, 16384, "t"])
    cursor.execute("INSERT INTO hg.pg_attribute (dbid, attrelid, attname, attnum) VALUES (?, ?, ?, ?)", [5, 16384, "n", 1])
    cursor.execute(between)
    assert cursor.rows("SELECT attname FROM hg.pg_attribute WHERE attrelid = ? AND dbid IN (0, ?)", [16384, 5]) == expected_rows
    cursor.execute("COMMIT")
    assert connection.execute("SELECT attname FROM hg.pg_attribute WHERE attrelid = 16384").fetchall() == expected_rows


def test_many_rows_are_inserted_as_an_arrow_table_and_few_by_an_insert() -> None:
    rows: list[dict[str, Any]] = [{"oid": number, "relname": "t"} for number in range(5)]
    assert to_insert("pg_class", rows[:2]) == ("INSERT INTO hg.pg_class (oid, relname) VALUES (?, ?), (?, ?)", [0, "t", 1, "t"])
    assert to_insert("pg_class", rows) is None
    assert to_insert("pg_class", [rows[0], {"oid": 1}]) is None, "their columns differ"
    schema = pa.schema([("dbid", pa.uint32()), ("oid", pa.uint32()), ("relname", pa.string())])
    assert to_arrow([rows[0], {"oid": 1}], schema).to_pylist() == [{"oid": 0, "relname": "t"}, {"oid": 1, "relname": None}]
