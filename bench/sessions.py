"""Milliseconds of single statements through one connection on a table of 1,000,000 rows, whichever kind of server runs them.

Called by `__main__` for PostgreSQL and the node in turn. Each figure is the median of so many statements, each with another key.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import psycopg

from headgate.cli.demo.servers import DemoServer

WANTED = {
    "SELECT by key": "30 ms", "SELECT by = ANY of 5 keys": "", "SELECT ... LIMIT 10": "50 ms", "SELECT count(*)": "100 ms",
    "SELECT count(*) by key": "20 ms", "SELECT of a range of 100 keys": "40 ms", "GROUP BY of all rows, 1,000 groups": "250 ms",
    "ORDER BY of all rows, LIMIT 10": "",
    "UPDATE by key": "120 ms", "UPDATE by key, RETURNING": "", "DELETE by key": "120 ms", "INSERT of one row": "60 ms",
    "INSERT ... ON CONFLICT DO UPDATE, the row is there": "", "CREATE TABLE with a primary key": "50 ms",
    "UPDATE by key with numeric, CASE and now()": "", "INSERT of one row, a CHECK and a generated column": "",
    "INSERT of one row, a unique index on lower(mail)": "", "INSERT ... ON CONFLICT (lower(mail)) DO UPDATE": "",
    "CREATE TABLE without a key": "", "SELECT 1, first of a session": "3 x", "SELECT by key, first of a session": "3 x",
    "1,000 single-row statements in one transaction": "10 s",
}  # fmt: skip
"""What is measured and what the node shall reach."""


def fill(session: psycopg.Connection, rows: int) -> None:
    """The table of keys 1 to `rows`."""
    session.execute("DROP TABLE IF EXISTS one")
    session.execute("CREATE TABLE one (id int PRIMARY KEY, a int, t text)")
    session.execute(f"INSERT INTO one SELECT g, g % 1000, 'text ' || g FROM generate_series(1, {rows}) g".encode())


def fill_ruled(session: psycopg.Connection, rows: int) -> None:
    """The table `ruled` with a CHECK, a generated column and a unique index on an expression, keys 1 to `rows`."""
    session.execute("DROP TABLE IF EXISTS ruled")
    session.execute("CREATE TABLE ruled (id int PRIMARY KEY, mail text, n numeric(12,2) CHECK (n >= 0), seen timestamptz)")
    session.execute("ALTER TABLE ruled ADD twice numeric(14,2) GENERATED ALWAYS AS (n * 2) STORED")
    session.execute(f"INSERT INTO ruled SELECT g, 'Mail ' || g, g % 1000, now() FROM generate_series(1, {rows}) g".encode())


def milliseconds(server: DemoServer, rows: int, times: int = 15) -> dict[str, float]:
    """The medians."""
    found: dict[str, float] = {}
    with server.connect() as session:
        fill(session, rows)
        keys = (1 + number * 7919 % rows for number in itertools.count(1))
        new = itertools.count(rows + 1)
        tables = itertools.count(1)

        def note(what: str, run: Callable[[], object], most: int = times) -> None:
            found[what] = median(run, most)

        note("SELECT by key", lambda: session.execute("SELECT * FROM one WHERE id = %s", (next(keys),)).fetchall())
        five = "SELECT * FROM one WHERE id = ANY(%s)"
        note("SELECT by = ANY of 5 keys", lambda: session.execute(five, ([next(keys) for _ in range(5)],)).fetchall())
        note("SELECT ... LIMIT 10", lambda: session.execute("SELECT * FROM one LIMIT 10").fetchall())
        note("SELECT count(*)", lambda: session.execute("SELECT count(*) FROM one").fetchall())
        note("SELECT count(*) by key", lambda: session.execute("SELECT count(*) FROM one WHERE id = %s", (next(keys),)).fetchall())
        hundred = "SELECT * FROM one WHERE id BETWEEN %s AND %s"
        note("SELECT of a range of 100 keys", lambda: session.execute(hundred, ((key := next(keys)), key + 99)).fetchall())
        groups = "SELECT a, count(*), sum(id), min(t) FROM one GROUP BY a"
        note("GROUP BY of all rows, 1,000 groups", lambda: session.execute(groups.encode()).fetchall())
        note("ORDER BY of all rows, LIMIT 10", lambda: session.execute("SELECT * FROM one ORDER BY a DESC, id LIMIT 10").fetchall())
        note("UPDATE by key", lambda: session.execute("UPDATE one SET a = a + 1 WHERE id = %s", (next(keys),)))
        returning = "UPDATE one SET a = a + 1 WHERE id = %s RETURNING *"
        note("UPDATE by key, RETURNING", lambda: session.execute(returning, (next(keys),)).fetchall())
        note("DELETE by key", lambda: session.execute("DELETE FROM one WHERE id = %s", (next(keys),)))
        note("INSERT of one row", lambda: session.execute("INSERT INTO one VALUES (%s, 1, 'new')", (next(new),)))
        upsert = "INSERT INTO one VALUES (%s, 1, 'x') ON CONFLICT (id) DO UPDATE SET a = one.a + excluded.a"
        note("INSERT ... ON CONFLICT DO UPDATE, the row is there", lambda: session.execute(upsert, (next(keys),)))
        fill_ruled(session, rows)
        change = "UPDATE ruled SET n = n * 1.5 + 1, mail = CASE WHEN n > 5 THEN mail ELSE lower(mail) END, seen = now() WHERE id = %s"
        note("UPDATE by key with numeric, CASE and now()", lambda: session.execute(change, (next(keys),)))
        add = "INSERT INTO ruled (id, mail, n) VALUES (%(new)s, 'new ' || %(new)s, 1)"
        note("INSERT of one row, a CHECK and a generated column", lambda: session.execute(add, {"new": next(new)}))
        session.execute("CREATE UNIQUE INDEX ON ruled (lower(mail))")
        note("INSERT of one row, a unique index on lower(mail)", lambda: session.execute(add, {"new": next(new)}))
        upsert_mail = f"{add} ON CONFLICT (lower(mail)) DO UPDATE SET n = excluded.n + ruled.n"
        note("INSERT ... ON CONFLICT (lower(mail)) DO UPDATE", lambda: session.execute(upsert_mail, {"new": rows + 1}))
        keyed = "CREATE TABLE keyed_{} (id int PRIMARY KEY, a text)"
        note("CREATE TABLE with a primary key", lambda: session.execute(keyed.format(next(tables)).encode()))
        note("CREATE TABLE without a key", lambda: session.execute(f"CREATE TABLE bare_{next(tables)} (a text)".encode()))
        note("1,000 single-row statements in one transaction", lambda: transaction(session, keys, new), 1)
    note_first = {"SELECT 1, first of a session": "SELECT 1", "SELECT by key, first of a session": "SELECT * FROM one WHERE id = 4711"}
    for what, statement in note_first.items():
        found[what] = statistics.median(first(server, statement) for _ in range(5))
    return {what: found[what] for what in WANTED}


def transaction(session: psycopg.Connection, keys: itertools.count[int], new: itertools.count[int], statements: int = 1000) -> None:
    """Single-row statements between BEGIN and COMMIT: half of them INSERTs, a quarter each UPDATEs and DELETEs."""
    with session.transaction():
        for number in range(statements):
            if number % 2:
                session.execute("INSERT INTO one VALUES (%s, 1, 'new')", (next(new),))
            elif number % 4:
                session.execute("DELETE FROM one WHERE id = %s", (next(keys),))
            else:
                session.execute("UPDATE one SET a = a + 1 WHERE id = %s", (next(keys),))


def median(run: Callable[[], object], times: int) -> float:
    """Milliseconds, where the first two of several are not counted: a plan is cached, code is compiled."""
    taken = []
    for number in range(times + 2 * (times > 1)):
        began = time.perf_counter()
        run()
        if number >= 2 or times == 1:
            taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def first(server: DemoServer, statement: str) -> float:
    """Milliseconds of the first statement of a new session, without the connecting."""
    with server.connect() as session:
        began = time.perf_counter()
        session.execute(statement.encode()).fetchall()
        return (time.perf_counter() - began) * 1000
