"""Scenes of pg8000, which implements the protocol in Python."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pg8000.dbapi
import pg8000.native
from conversation import NULLS, VALUES, answer


def scene(play: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a scene that runs `play` with a connection, which begins transactions implicitly."""

    def connected(url: str) -> Any:
        parts = urlsplit(url)
        parameters = {"user": parts.username, "host": parts.hostname, "port": parts.port, "database": parts.path[1:]}
        with closing(pg8000.dbapi.connect(**parameters, timeout=120)) as connection:
            return play(connection)

    return connected


def values(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.execute("SET TimeZone = 'UTC'")
    for row in (VALUES, NULLS):
        cursor.execute(f"INSERT INTO items VALUES ({', '.join(['%s'] * len(row))})", list(row.values()))
    connection.commit()
    cursor.execute("SELECT * FROM items WHERE id = ANY (%s) ORDER BY id", [[1, 2]])
    return cursor.fetchall()


def errors(connection: Any) -> Any:
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("INSERT INTO items (id) VALUES (1)")
    answers = []
    for statement, parameters in (
        ("INSERT INTO items (id) VALUES (%s)", [1]),
        ("SELEC 1", []),
        ("SELECT CAST(CAST(%s AS text) AS int)", ["x"]),
        ("SELECT nosuch FROM items", []),
    ):
        try:
            cursor.execute(statement, parameters)
        except pg8000.dbapi.DatabaseError as error:
            answers.append([error.args[0]["C"], error.args[0].get("n")])
    cursor.execute("SELECT 1")
    return [*answers, cursor.fetchone()[0]]


def transaction(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO items (id, name) VALUES (1, 'outer')")
    cursor.execute("SAVEPOINT deeper")
    try:
        cursor.execute("INSERT INTO items (id, name) VALUES (2, 'inner'), (1, 'again')")
    except pg8000.dbapi.DatabaseError:
        cursor.execute("ROLLBACK TO SAVEPOINT deeper")
    cursor.execute("INSERT INTO items (id, name) VALUES (3, 'behind')")
    connection.commit()
    cursor.execute("DELETE FROM items")
    connection.rollback()


def copy(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.execute("COPY items (id, name) FROM STDIN (FORMAT csv)", stream=io.StringIO('1,"a,b"\n2,\n3,""\n'))
    row_count = cursor.rowcount
    out = io.StringIO()
    cursor.execute("COPY (SELECT id, name FROM items ORDER BY id) TO STDOUT (FORMAT csv)", stream=out)
    connection.commit()
    return [row_count, out.getvalue()]


def parts(connection: Any) -> Any:
    """Read a large result in parts. pg8000 fetches whole results, so this uses DECLARE and FETCH."""
    cursor = connection.cursor()
    cursor.execute("DECLARE parts NO SCROLL CURSOR FOR SELECT g FROM generate_series(1, 20000) g")
    ids = []
    while True:
        cursor.execute("FETCH 1000 FROM parts")
        rows = cursor.fetchall()
        if not rows:
            return [len(ids), sum(ids)]
        ids += [row[0] for row in rows]


def types(connection: Any) -> Any:
    """Read values of types that the scene `values` does not have."""
    cursor = connection.cursor()
    cursor.execute("SELECT '1 day'::interval, '{\"a\": [1]}'::jsonb, 'infinity'::date, '10.0.0.1'::inet, '[1,5)'::int4range")
    row = cursor.fetchone()
    return [str(row[0]), row[1], str(row[2]), str(row[3]), str(row[4])]


def prepared(url: str) -> Any:
    parts = urlsplit(url)
    with closing(pg8000.native.Connection(parts.username, host=parts.hostname, port=parts.port, database=parts.path[1:])) as connection:
        statement = connection.prepare("INSERT INTO items (id, name) VALUES (:id, :name)")
        for number in range(3):
            statement.run(id=number, name=None)
        statement.close()
        return connection.run("SELECT count(*), sum(id) FROM items")


SCENES = (values, errors, transaction, copy, parts, types)
answer({**{play.__name__: scene(play) for play in SCENES}, "prepared": prepared})
