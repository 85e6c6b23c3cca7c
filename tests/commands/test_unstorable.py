"""What PostgreSQL holds and Delta cannot is an error that names table and column, never another value; domains inside arrays keep theirs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

VALUES = ("'NaN'", "timestamp '294246-06-01' + interval '2 years'", "'294247-06-01'")


def test_an_insert_names_the_table_and_the_column_that_cannot_hold_the_value(node: Any) -> None:
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


def test_a_domain_that_a_column_holds_in_arrays_cannot_get_a_constraint(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE DOMAIN d AS int; CREATE DOMAIN over AS d; CREATE TABLE lists (a d[]); CREATE TABLE plain (b over)")
        session.execute("INSERT INTO plain VALUES (-1)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r'cannot alter type "d" because column "lists\.a" uses it'):
            session.execute("ALTER DOMAIN d ADD CHECK (VALUE > 0)")
        session.execute("DROP TABLE lists")
        with pytest.raises(psycopg.errors.CheckViolation, match='column "b" of table "plain" contains values that violate'):
            session.execute("ALTER DOMAIN d ADD CHECK (VALUE > 0)")


def test_a_text_that_begins_as_a_failure_does_comes_out_of_a_set_as_it_is(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE texts (t text)")
        session.execute(r"INSERT INTO texts VALUES (E'\x01a,\x02b,c')")
        rows = session.execute("SELECT s FROM texts, unnest(string_to_array(t, ',')) s").fetchall()
        assert rows == [("\x01a",), ("\x02b",), ("c",)]


def test_a_foreign_key_sets_a_default_that_is_infinite(node: Any) -> None:
    with psycopg.connect(node.conninfo(node.new_database()), autocommit=True) as session:
        session.execute("CREATE TABLE days (d date PRIMARY KEY)")
        session.execute("CREATE TABLE uses (d date DEFAULT 'infinity' REFERENCES days ON DELETE SET DEFAULT)")
        session.execute("INSERT INTO days VALUES ('infinity'), ('2024-01-01')")
        session.execute("INSERT INTO uses VALUES ('2024-01-01')")
        session.execute("DELETE FROM days WHERE d = '2024-01-01'")
        assert session.execute("SELECT d::text FROM uses").fetchall() == [("infinity",)]
