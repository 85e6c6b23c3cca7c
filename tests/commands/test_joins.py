"""Joins under random conditions return PostgreSQL's rows, with any conditions beside an equality and in any order."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from tests.conftest import Server

TABLES = """
CREATE TABLE x (id int PRIMARY KEY, v int, s smallint, b text, c char(3), f float8, d numeric(8,2), n numeric, at timestamptz, day date);
CREATE TABLE y (id int PRIMARY KEY, v int, s smallint, b text, c char(3), f float8, d numeric(8,2), n numeric, at timestamptz, day date);
CREATE TABLE z (id int PRIMARY KEY, v int, s smallint, b text, c char(3), f float8, d numeric(8,2), n numeric, at timestamptz, day date);
"""
ROWS = """
INSERT INTO {table} SELECT g, nullif(g * {step} % 7, 3), g % 3, nullif(chr(97 + g * {step} % 5), 'c'), nullif(chr(97 + g % 4), 'd'),
    CASE g % 5 WHEN 0 THEN 'NaN' WHEN 1 THEN -0.0 WHEN 2 THEN NULL ELSE g % 4 END, nullif(g % 6, 2), nullif(g * {step} % 4, 1) + 0.50,
    CASE g % 6 WHEN 0 THEN 'infinity' WHEN 1 THEN NULL ELSE timestamptz '2020-01-01' + g % 4 * interval '1 day' END, date '2020-01-01' + g % 4
FROM generate_series(1, 14) g
"""
# what never raises for these rows, though some of it may for others
EQUALITIES = (
    "{0}.id = {1}.id", "{0}.b = {1}.b", "{1}.c = {0}.c", "{0}.f = {1}.f", "{0}.d = {1}.d", "{0}.n = {1}.n", "{0}.at = {1}.at", "{0}.day = {1}.day",
    "{0}.v + 1 = {1}.v", "{0}.v + 1 = {1}.v - 1", "{0}.s = {1}.id", "{0}.d = {1}.n", "{0}.d + 1 = {1}.n * 1", "{0}.c = {1}.b", "{0}.day = {1}.at",
    "{0}.b || 'x' = {1}.b || 'x'", "({0}.id, {0}.b) = ({1}.id, {1}.b)", "lower({0}.b) = lower({1}.b)", "{0}.at + interval '1 day' = {1}.at",
)  # fmt: skip
SINGLE = (
    "{0}.v > 2", "{0}.b LIKE 'a%'", "{0}.b <> 'b'", "{0}.f > 1", "{0}.f = 0", "{0}.d BETWEEN 1 AND 3", "{0}.n < 3", "{0}.at > '2020-01-02'",
    "{0}.day < date '2020-01-03'", "{0}.v IS NULL", "{0}.b IS NOT NULL", "{0}.v + {0}.s > 3", "length({0}.b) = 1", "{0}.id < 9", "{0}.c IN ('a', 'b')",
    "coalesce({0}.v, 0) + 1 < 5", "{0}.id % 2 = 0", "12 / {0}.id > 2", "NOT {0}.v > 3", "{0}.at IS DISTINCT FROM 'infinity'",
)  # fmt: skip
SEVERAL = (
    "{0}.v + {1}.v > 4", "{0}.id < {1}.id", "{0}.b < {1}.b", "{0}.f >= {1}.f", "coalesce({0}.b, {1}.b) = 'a'", "{0}.v IS DISTINCT FROM {1}.v",
    "{0}.day - {1}.day > 0", "{0}.d * {1}.n > 2", "greatest({0}.v, {1}.v) < 5",
)  # fmt: skip


class Drawn:
    """Random queries over x, y and z, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def term(self, tables: list[str], depth: int = 0) -> str:
        """Return a condition over some of the tables."""
        kind = self.random.random()
        if kind < 0.15 and depth < 2:
            word = self.random.choice((" OR ", " AND "))
            sides = [self.terms(tables, depth + 1) for _ in range(self.random.randint(2, 3))]
            if self.random.random() < 0.4:
                common = self.term(tables, 2)
                sides = [f"{common} AND {side}" for side in sides]
            return f"({word.join(sides)})"
        left, right = self.random.sample(tables, 2) if len(tables) > 1 else (tables[0], tables[0])
        forms = SINGLE if len(tables) == 1 else EQUALITIES if kind < 0.5 else SINGLE if kind < 0.8 else SEVERAL
        return self.random.choice(forms).format(left, right)

    def terms(self, tables: list[str], depth: int = 0) -> str:
        """Return some conditions, joined by AND."""
        return " AND ".join(self.term(tables, depth) for _ in range(self.random.randint(1, 4 - depth)))

    def member(self, table: str) -> str:
        """Return a condition with a subquery."""
        column = self.random.choice(("id", "v", "b", "d", "n"))
        inner = self.terms(["z"])
        return self.random.choice(
            (
                f"EXISTS (SELECT 1 FROM z WHERE {self.term([table, 'z'], 2)} AND {inner})",
                f"NOT EXISTS (SELECT 1 FROM z WHERE {inner} AND {self.terms([table, 'z'], 2)})",
                f"{table}.{column} IN (SELECT {column} FROM z WHERE {inner})",
                f"{table}.{column} NOT IN (SELECT {column} FROM z WHERE {inner} AND {column} IS NOT NULL)",
                f"{table}.n > (SELECT avg(z.n) FROM z WHERE {inner})",
                f"({table}.id, {table}.{column}) IN (SELECT id, max({column}) FROM z WHERE {inner} GROUP BY id)",
            )
        )

    def query(self) -> str:
        """Return a query whose rows are ordered."""
        where = self.terms(["x", "y"])
        if self.random.random() < 0.4:
            where = (
                f"{self.member(self.random.choice('xy'))} AND {where}" if self.random.random() < 0.5 else f"{where} AND {self.member('x')}"
            )
        join = f"{self.random.choice(('JOIN', 'LEFT JOIN', 'RIGHT JOIN'))} y ON {self.terms(['x', 'y'])}"
        source = self.random.choice(("x, y", f"x {join}", "x CROSS JOIN y", "(SELECT * FROM x WHERE id > 2) x, y"))
        if self.random.random() < 0.15:
            return f"SELECT x.id, y.id, z.id FROM {source}, z WHERE {where} AND {self.terms(['x', 'y', 'z'])} ORDER BY 1, 2, 3"
        return f"SELECT x.id, y.id FROM {source} WHERE {where} ORDER BY 1, 2"


@pytest.fixture(scope="module")
def sessions(postgres: Server, node: Server) -> Iterator[list[psycopg.Connection[Any]]]:
    opened = [psycopg.connect(server.conninfo(server.new_database()), autocommit=True) for server in (postgres, node)]
    for session in opened:
        session.execute(TABLES.encode())
        for table, step in (("x", 3), ("y", 5), ("z", 2)):
            session.execute(ROWS.format(table=table, step=step).encode())
    yield opened
    for session in opened:
        session.close()


PARTS = [(0, 4), *((first, first + 25) for first in range(4, 300, 25))]
"""Seeds of queries. The suite has few of them."""


@pytest.mark.parametrize(("first", "end"), [pytest.param(*part, marks=pytest.mark.slow if part[0] else ()) for part in PARTS])
def test_random_joins_return_postgresqls_rows(sessions: list[psycopg.Connection[Any]], first: int, end: int) -> None:
    for seed in range(first, end):
        query = Drawn(seed).query()
        expected, actual = (_answer(session, query) for session in sessions)
        assert actual == expected or actual == "0A000", query


def _answer(session: psycopg.Connection[Any], query: str) -> object:
    try:
        return session.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        return error.sqlstate
