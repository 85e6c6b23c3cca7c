"""Scenes of psycopg2."""

from __future__ import annotations

import io
import select
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extras
from conversation import NULLS, VALUES, answer

psycopg2.extras.register_uuid()


def scene(play: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a scene that runs `play` with a connection, which begins transactions implicitly."""

    def connected(url: str) -> Any:
        with closing(psycopg2.connect(url, options="-c TimeZone=UTC")) as connection:
            return play(connection)

    return connected


def values(connection: Any) -> Any:
    cursor = connection.cursor()
    for row in (VALUES, NULLS):
        cursor.execute(f"INSERT INTO items VALUES ({', '.join(['%s'] * len(row))})", list(row.values()))
    connection.commit()
    cursor.execute("SELECT * FROM items WHERE id = ANY (%s) ORDER BY id", [[1, 2]])
    return cursor.fetchall()


def errors(connection: Any) -> Any:
    connection.autocommit = True
    cursor = connection.cursor()
    answers = []
    cursor.execute("INSERT INTO items (id) VALUES (1)")
    for statement, parameters in (
        ("INSERT INTO items (id) VALUES (%s)", [1]),
        ("SELEC 1", []),
        ("SELECT %s::text::int", ["x"]),
        ("SELECT nosuch FROM items", []),
    ):
        try:
            cursor.execute(statement, parameters)
        except psycopg2.Error as error:
            answers.append([error.pgcode, error.diag.constraint_name])
    cursor.execute("SELECT 1")
    return [*answers, cursor.fetchone()[0]]


def transaction(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO items (id, name) VALUES (1, 'outer')")
    cursor.execute("SAVEPOINT deeper")
    try:
        cursor.execute("INSERT INTO items (id, name) VALUES (2, 'inner'), (1, 'again')")
    except psycopg2.errors.UniqueViolation:
        cursor.execute("ROLLBACK TO SAVEPOINT deeper")
    cursor.execute("INSERT INTO items (id, name) VALUES (3, 'behind')")
    connection.commit()
    cursor.execute("DELETE FROM items")
    connection.rollback()


def copy(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.copy_expert("COPY items (id, name) FROM STDIN (FORMAT csv)", io.StringIO('1,"a,b"\n2,\n3,""\n'))
    row_count = cursor.rowcount
    out = io.StringIO()
    cursor.copy_expert("COPY (SELECT id, name FROM items ORDER BY id) TO STDOUT (FORMAT csv)", out)
    connection.commit()
    return [row_count, out.getvalue()]


def parts(connection: Any) -> Any:
    with connection.cursor("parts") as cursor:
        cursor.itersize = 1000
        cursor.execute("SELECT g FROM generate_series(1, %s) g", [20000])
        ids = [row[0] for row in cursor]
    return [len(ids), sum(ids)]


def cancel(connection: Any) -> Any:
    timer = threading.Timer(0.2, connection.cancel)
    timer.start()
    cursor = connection.cursor()
    try:
        cursor.execute("SELECT pg_sleep(100)")
    except psycopg2.errors.QueryCanceled as error:
        connection.rollback()
        cursor.execute("SELECT 1")
        return [error.pgcode, cursor.fetchone()[0]]
    finally:
        timer.join()


def batches(connection: Any) -> Any:
    """Send many rows in one VALUES list, and several statements in one message. Return their results."""
    cursor = connection.cursor()
    rows = [(number, f"n{number}") for number in range(1000)]
    insert = "INSERT INTO items (id, name) VALUES %s RETURNING id"
    returned = psycopg2.extras.execute_values(cursor, insert, rows, page_size=300, fetch=True)
    psycopg2.extras.execute_batch(cursor, "UPDATE items SET name = %s WHERE id = %s", [("x", 1), ("y", 2), ("z", 5000)], page_size=2)
    connection.commit()
    cursor.execute("SELECT count(*), count(*) FILTER (WHERE name IN ('x', 'y')) FROM items")
    return [len(returned), returned[-1][0], *cursor.fetchone()]


def notifications(connection: Any) -> Any:
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("LISTEN news")
    cursor.execute("NOTIFY news, 'first'; SELECT pg_notify('news', 'second')")
    while len(connection.notifies) < 2:
        assert select.select([connection], [], [], 60)[0]
        connection.poll()
    return [[notify.channel, notify.payload] for notify in connection.notifies]


def cursors(connection: Any) -> Any:
    with connection.cursor("scrolled", scrollable=True) as cursor:
        cursor.execute("SELECT id FROM items ORDER BY id")
        answers = [cursor.fetchmany(2)]
        cursor.scroll(10)
        answers.append(cursor.fetchone())
        cursor.scroll(-5)
        answers.append(cursor.fetchone())
        cursor.scroll(0, mode="absolute")
        answers.append(cursor.fetchone())
    holdable = connection.cursor("held", withhold=True)
    holdable.execute("SELECT id FROM items WHERE id > 15 ORDER BY id")
    connection.commit()
    answers.append(holdable.fetchone())
    holdable.close()
    return answers


def current_of(connection: Any) -> Any:
    """Change and delete the current row of a named cursor with another cursor of the connection."""
    answers, changing = [], connection.cursor()
    with connection.cursor("current") as cursor:
        cursor.execute("SELECT id, name FROM items ORDER BY id FOR UPDATE")
        while (row := cursor.fetchone()) is not None:
            if row[0] % 2:
                changing.execute("UPDATE items SET name = %s WHERE CURRENT OF current RETURNING id, name", [f"row {row[0]}"])
                answers.append(changing.fetchone())
            else:
                changing.execute("DELETE FROM items WHERE CURRENT OF current")
                answers.append(changing.rowcount)
    connection.commit()
    return answers


def types(connection: Any) -> Any:
    cursor = connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor)
    cursor.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    cursor.execute(
        "SELECT 'happy'::mood AS m, ARRAY['sad']::mood[] AS n, '{\"a\": [1]}'::jsonb AS j, '[1,5)'::int4range AS r, 'NaN'::numeric AS d"
    )
    row = cursor.fetchone()
    return [row["m"], row["n"], row["j"], [row["r"].lower, row["r"].upper], str(row["d"])]


SCENES = (values, errors, transaction, copy, parts, cancel, batches, notifications, cursors, current_of, types)
answer({play.__name__: scene(play) for play in SCENES})
