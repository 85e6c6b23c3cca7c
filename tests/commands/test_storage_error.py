"""A value that PostgreSQL can store and Delta cannot is an error that names table and column. It is never stored as another value."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

VALUES = ("'NaN'", "timestamp '294246-06-01' + interval '2 years'", "'294247-06-01'")


def test_insert_names_the_table_and_the_column_that_cannot_store_the_value(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE narrow (p numeric(10,2), t timestamp)")
        for column, value in zip(("p", "t", "t"), VALUES, strict=True):
            with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
                session.execute(f"INSERT INTO narrow ({column}) VALUES ({value})".encode())
            assert (refused.value.diag.table_name, refused.value.diag.column_name) == ("narrow", column)
            assert refused.value.diag.context == f'column "{column}" of table "narrow"'
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused, session.cursor().copy("COPY narrow (p) FROM STDIN") as copy:
            copy.write(b"NaN\n")
        assert refused.value.diag.context == 'COPY narrow, line 1, column p: "NaN"'
        assert session.execute("SELECT count(*) FROM narrow").fetchone() == (0,)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO narrow SELECT 1, 'NaN'::numeric, t FROM source",
        *(
            pytest.param(statement, marks=pytest.mark.slow)
            for statement in (
                "INSERT INTO narrow SELECT 1, 1, t + interval '2 years' FROM source",
                "INSERT INTO narrow SELECT 1, 1, t + interval '2 years' FROM source RETURNING *",
                "UPDATE narrow SET p = n FROM source",
                "UPDATE narrow SET t = s.t + interval '2 years' FROM source s",
            )
        ),
        "UPDATE leaves SET p = n FROM source",
    ],
)
def test_rows_computed_together_name_the_column_that_cannot_store_the_value(node: Any, statement: str) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE narrow (i int PRIMARY KEY, p numeric(10,2), t timestamp); INSERT INTO narrow VALUES (2, 2, now())")
        session.execute("CREATE TABLE leaves (i int, p numeric(10,2)) PARTITION BY LIST (i); CREATE TABLE leaf PARTITION OF leaves DEFAULT")
        session.execute("INSERT INTO leaves VALUES (1, 1)")
        session.execute("CREATE TABLE source (n numeric, t timestamp); INSERT INTO source VALUES ('NaN', '294246-06-01')")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot store") as refused:
            session.execute(statement.encode())
        column_name = ("leaves" if "leaves" in statement else "narrow", "t" if "interval" in statement else "p")
        assert (refused.value.diag.table_name, refused.value.diag.column_name) == column_name
        assert session.execute("SELECT i, p FROM narrow").fetchall() == [(2, 2)]


def test_domain_in_an_array_column_cannot_get_a_constraint(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE DOMAIN d AS int; CREATE DOMAIN over AS d; CREATE TABLE lists (a d[]); CREATE TABLE plain (b over)")
        session.execute("INSERT INTO plain VALUES (-1)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r'cannot alter type "d" because column "lists\.a" uses it'):
            session.execute("ALTER DOMAIN d ADD CHECK (VALUE > 0)")
        session.execute("DROP TABLE lists")
        with pytest.raises(psycopg.errors.CheckViolation, match='column "b" of table "plain" contains values that violate'):
            session.execute("ALTER DOMAIN d ADD CHECK (VALUE > 0)")


def test_text_that_begins_like_a_failure_is_returned_unchanged_by_a_set(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE texts (t text)")
        session.execute(r"INSERT INTO texts VALUES (E'\x01a,\x02b,c')")
        rows = session.execute("SELECT s FROM texts, unnest(string_to_array(t, ',')) s").fetchall()
        assert rows == [("\x01a",), ("\x02b",), ("c",)]


def test_foreign_key_can_set_an_infinite_default(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE days (d date PRIMARY KEY)")
        session.execute("CREATE TABLE uses (d date DEFAULT 'infinity' REFERENCES days ON DELETE SET DEFAULT)")
        session.execute("INSERT INTO days VALUES ('infinity'), ('2024-01-01')")
        session.execute("INSERT INTO uses VALUES ('2024-01-01')")
        session.execute("DELETE FROM days WHERE d = '2024-01-01'")
        assert session.execute("SELECT d::text FROM uses").fetchall() == [("infinity",)]
