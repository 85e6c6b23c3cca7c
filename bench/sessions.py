"""Measure single statements through one connection, on a table of 1,000,000 rows at full scale.

Called by `__main__` for PostgreSQL and the node in turn. Each figure is the median of several statements with different keys.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import psycopg

from headgate.cli.demo.servers import DemoServer

TARGETS = {
    "SELECT by key": "30 ms", "SELECT by = ANY of 5 keys": "", "SELECT ... LIMIT 10": "50 ms", "SELECT count(*)": "100 ms",
    "SELECT count(*) by key": "20 ms", "SELECT of a range of 100 keys": "40 ms", "GROUP BY of all rows, 1,000 groups": "250 ms",
    "ORDER BY of all rows, LIMIT 10": "",
    "UPDATE by key": "120 ms", "UPDATE by key, RETURNING": "", "DELETE by key": "120 ms", "INSERT of one row": "60 ms",
    "INSERT ... ON CONFLICT DO UPDATE, the row exists": "", "CREATE TABLE with a primary key": "50 ms",
    "UPDATE by key with numeric, CASE and now()": "", "INSERT of one row, a CHECK and a generated column": "",
    "INSERT of one row, a unique index on lower(mail)": "", "INSERT ... ON CONFLICT (lower(mail)) DO UPDATE": "",
    "CREATE TABLE without a key": "", "SELECT 1, first of a session": "3 x", "SELECT by key, first of a session": "3 x",
    "1,000 single-row statements in one transaction": "10 s",
}  # fmt: skip
"""Each measured statement, and the target for the node."""


def fill(session: psycopg.Connection, rows: int) -> None:
    """Create table `one` with keys 1 to `rows`."""
    session.execute("DROP TABLE IF EXISTS one")
    session.execute("CREATE TABLE one (id int PRIMARY KEY, a int, t text)")
    session.execute(f"INSERT INTO one SELECT g, g % 1000, 'text ' || g FROM generate_series(1, {rows}) g".encode())


def fill_ruled(session: psycopg.Connection, rows: int) -> None:
    """Create table `ruled` with a CHECK, a generated column and a unique index on an expression, keys 1 to `rows`."""
    session.execute("DROP TABLE IF EXISTS ruled")
    session.execute("CREATE TABLE ruled (id int PRIMARY KEY, mail text, n numeric(12,2) CHECK (n >= 0), seen timestamptz)")
    session.execute("ALTER TABLE ruled ADD twice numeric(14,2) GENERATED ALWAYS AS (n * 2) STORED")
    session.execute(f"INSERT INTO ruled SELECT g, 'Mail ' || g, g % 1000, now() FROM generate_series(1, {rows}) g".encode())


def milliseconds(server: DemoServer, rows: int, times: int = 15) -> dict[str, float]:
    """Return the median milliseconds of each statement of `TARGETS`."""
    medians: dict[str, float] = {}
    with server.connect() as session:
        fill(session, rows)
        keys = (1 + number * 7919 % rows for number in itertools.count(1))
        new_keys = itertools.count(rows + 1)
        tables = itertools.count(1)

        def measure(name: str, run: Callable[[], object], repetitions: int = times) -> None:
            medians[name] = median(run, repetitions)

        measure("SELECT by key", lambda: session.execute("SELECT * FROM one WHERE id = %s", (next(keys),)).fetchall())
        five_keys = "SELECT * FROM one WHERE id = ANY(%s)"
        measure("SELECT by = ANY of 5 keys", lambda: session.execute(five_keys, ([next(keys) for _ in range(5)],)).fetchall())
        measure("SELECT ... LIMIT 10", lambda: session.execute("SELECT * FROM one LIMIT 10").fetchall())
        measure("SELECT count(*)", lambda: session.execute("SELECT count(*) FROM one").fetchall())
        measure("SELECT count(*) by key", lambda: session.execute("SELECT count(*) FROM one WHERE id = %s", (next(keys),)).fetchall())
        hundred_keys = "SELECT * FROM one WHERE id BETWEEN %s AND %s"
        measure("SELECT of a range of 100 keys", lambda: session.execute(hundred_keys, ((key := next(keys)), key + 99)).fetchall())
        groups = "SELECT a, count(*), sum(id), min(t) FROM one GROUP BY a"
        measure("GROUP BY of all rows, 1,000 groups", lambda: session.execute(groups.encode()).fetchall())
        measure("ORDER BY of all rows, LIMIT 10", lambda: session.execute("SELECT * FROM one ORDER BY a DESC, id LIMIT 10").fetchall())
        measure("UPDATE by key", lambda: session.execute("UPDATE one SET a = a + 1 WHERE id = %s", (next(keys),)))
        returning = "UPDATE one SET a = a + 1 WHERE id = %s RETURNING *"
        measure("UPDATE by key, RETURNING", lambda: session.execute(returning, (next(keys),)).fetchall())
        measure("DELETE by key", lambda: session.execute("DELETE FROM one WHERE id = %s", (next(keys),)))
        measure("INSERT of one row", lambda: session.execute("INSERT INTO one VALUES (%s, 1, 'new')", (next(new_keys),)))
        upsert = "INSERT INTO one VALUES (%s, 1, 'x') ON CONFLICT (id) DO UPDATE SET a = one.a + excluded.a"
        measure("INSERT ... ON CONFLICT DO UPDATE, the row exists", lambda: session.execute(upsert, (next(keys),)))
        fill_ruled(session, rows)
        change = "UPDATE ruled SET n = n * 1.5 + 1, mail = CASE WHEN n > 5 THEN mail ELSE lower(mail) END, seen = now() WHERE id = %s"
        measure("UPDATE by key with numeric, CASE and now()", lambda: session.execute(change, (next(keys),)))
        add = "INSERT INTO ruled (id, mail, n) VALUES (%(new)s, 'new ' || %(new)s, 1)"
        measure("INSERT of one row, a CHECK and a generated column", lambda: session.execute(add, {"new": next(new_keys)}))
        session.execute("CREATE UNIQUE INDEX ON ruled (lower(mail))")
        measure("INSERT of one row, a unique index on lower(mail)", lambda: session.execute(add, {"new": next(new_keys)}))
        upsert_mail = f"{add} ON CONFLICT (lower(mail)) DO UPDATE SET n = excluded.n + ruled.n"
        measure("INSERT ... ON CONFLICT (lower(mail)) DO UPDATE", lambda: session.execute(upsert_mail, {"new": rows + 1}))
        keyed = "CREATE TABLE keyed_{} (id int PRIMARY KEY, a text)"
        measure("CREATE TABLE with a primary key", lambda: session.execute(keyed.format(next(tables)).encode()))
        measure("CREATE TABLE without a key", lambda: session.execute(f"CREATE TABLE bare_{next(tables)} (a text)".encode()))
        measure("1,000 single-row statements in one transaction", lambda: transaction(session, keys, new_keys), 1)
    first = {"SELECT 1, first of a session": "SELECT 1", "SELECT by key, first of a session": "SELECT * FROM one WHERE id = 4711"}
    for name, statement in first.items():
        medians[name] = statistics.median(first_milliseconds(server, statement) for _ in range(5))
    return {name: medians[name] for name in TARGETS}


def transaction(session: psycopg.Connection, keys: Iterator[int], new_keys: Iterator[int], statements: int = 1000) -> None:
    """Run single-row statements in one transaction: half of them INSERTs, a quarter each UPDATEs and DELETEs."""
    with session.transaction():
        for number in range(statements):
            if number % 2:
                session.execute("INSERT INTO one VALUES (%s, 1, 'new')", (next(new_keys),))
            elif number % 4:
                session.execute("DELETE FROM one WHERE id = %s", (next(keys),))
            else:
                session.execute("UPDATE one SET a = a + 1 WHERE id = %s", (next(keys),))


def median(run: Callable[[], object], times: int) -> float:
    """Return the median milliseconds. If `times` > 1, two more calls come first and are not counted, so that plans are cached."""
    milliseconds = []
    for number in range(times + 2 * (times > 1)):
        began = time.perf_counter()
        run()
        if number >= 2 or times == 1:
            milliseconds.append((time.perf_counter() - began) * 1000)
    return statistics.median(milliseconds)


def first_milliseconds(server: DemoServer, statement: str) -> float:
    """Return the milliseconds of the first statement of a new session, without those of the connection."""
    with server.connect() as session:
        began = time.perf_counter()
        session.execute(statement.encode()).fetchall()
        return (time.perf_counter() - began) * 1000
