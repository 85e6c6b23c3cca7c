"""Queries and changes of one table have the same rows from the driver's Arrow columns, from Spark and from PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import psycopg
import pytest
from tests import spark_pages
from tests.conftest import NodeServer, Server
from tests.spark_pages import SparkPages

MADE = """
CREATE TABLE measured (id int PRIMARY KEY, s smallint, i int, b bigint, n numeric(12,3), u numeric, t text, c char(4), d date, at timestamptz,
    f float8, r real, o bool);
INSERT INTO measured SELECT g, g % 5, nullif(g * 7919 % 1000, 3), (g % 50)::bigint * 184467440737095516, nullif(g % 400, 7) / 8.0, g / 7.0,
    (ARRAY['', 'a', 'ä', 'Z', 'zz', 'é😀', NULL])[g % 7 + 1], nullif('c' || g % 3, 'c2'), date '2020-01-01' + nullif(g % 300, 9),
    timestamptz '2021-05-05 12:00+00' + nullif(g % 700, 5) * interval '37 minutes', nullif(g % 9, 4) / 4.0, g % 6,
    CASE g % 3 WHEN 0 THEN true WHEN 1 THEN false END
FROM generate_series(1, {rows}) g;
UPDATE measured SET i = -i, t = 'new' WHERE id % 31 = 0;
DELETE FROM measured WHERE id % 37 = 0;
INSERT INTO measured (id, f, i, b) VALUES (-1, {float}, 2147483647, 9223372036854775807), (-2, 0, -2147483648, -9223372036854775808)
"""
ROWS = 3_000  # more than the driver holds of a small table
CONDITIONS = (
    "i > 500", "b < 184467440737095516 * 20", "n BETWEEN 3 AND 20.125", "t = 'a'", "t > 'Z'", "t LIKE 'z%'", "d >= date '2020-03-01'", "o", "NOT o",
    "at < timestamptz '2021-05-08 00:00+00'", "f = 0", "f > 1", "s IN (1, 2)", "i IS NULL", "t IS NOT NULL", "lower(t) = 'z'", "id % 3 = 1",
    "id BETWEEN 200 AND 300", "id = 77", "c = 'c1'", "length(t) > 1", "i + s > 700", "coalesce(i, 0) < 10", "t IS DISTINCT FROM 'a'", "u > 40",
    "12 / (id % 4) > 3", "id < 0", "1 > id", "n <> 1.5", "r < 3", "i = NULL", "false",
)  # fmt: skip
AGGREGATES = (
    "count(*)", "count(i)", "count(DISTINCT t)", "count(DISTINCT n)", "count(DISTINCT i)", "count(*) FILTER (WHERE o)", "sum(s)", "sum(i)", "sum(b)",
    "sum(n)", "avg(s)", "avg(i)", "avg(b)", "avg(n)", "min(i)", "max(b)", "min(n)", "max(n)", "min(t)", "max(t)", "max(d)", "min(at)", "min(f)",
    "max(r)", "bool_and(o)", "bool_or(o)", "every(i > 0)", "sum(i) FILTER (WHERE t = 'a')", "sum(u)", "min(u)", "max(c)", "sum(i + 1)",
    "count(*) + 1", "max(i) - min(i)", "sum(i % 7)", "stddev(s)", "string_agg(t, ',' ORDER BY id)",
)  # fmt: skip
GROUPS = ("s", "t", "o", "i % 10", "n", "d", "lower(t)", "f", "c", "i IS NULL", "r", "b")
COLUMNS = ("id", "s", "i", "b", "n", "u", "t", "d", "f", "o", "i + 1", "i * 2", "lower(t)", "t || 'x'", "i IS NULL", "c")


def _queries(random: Random, count: int) -> Iterator[str]:
    """Yield queries whose rows, and whose order if they have one, do not depend on the plan."""
    for _ in range(count):
        where = " AND ".join(random.sample(CONDITIONS, random.choice((0, 1, 1, 2))))
        rows = f"FROM measured {f'WHERE {where}' if where else ''}"
        match random.choice(("aggregates", "groups", "groups", "rows", "distinct")):
            case "aggregates":
                yield f"SELECT {', '.join(random.sample(AGGREGATES, 3))} {rows}"
            case "groups":
                items = random.sample(GROUPS, random.choice((1, 1, 2)))
                having = random.choice(("", "", "HAVING count(*) > 3", "HAVING max(i) > 900"))
                places = range(1, len(items) + 1)
                order = ", ".join(f"{position} {random.choice(('', 'DESC', 'NULLS FIRST', 'DESC NULLS LAST'))}" for position in places)
                limit = random.choice(("", "LIMIT 5", "LIMIT 7 OFFSET 2"))
                selected = ", ".join([*items, *random.sample(AGGREGATES, 2)])
                yield f"SELECT {selected} {rows} GROUP BY {', '.join(items)} {having} ORDER BY {order} {limit}"
            case "rows":
                order = random.choice(COLUMNS)
                direction = random.choice(("", "DESC", "NULLS FIRST", "DESC NULLS LAST"))
                selected = ", ".join(random.sample(COLUMNS, 3))
                yield f"SELECT {selected} {rows} ORDER BY {order} {direction}, id LIMIT {random.choice((0, 1, 20))} OFFSET {random.choice((0, 3))}"
            case _:
                yield f"SELECT DISTINCT {', '.join(random.sample(('s', 't', 'o', 'n', 'f', 'i % 10'), 2))} {rows} ORDER BY 1, 2"


SETTERS = (
    "i = i % 1000 + 1", "t = t || 'x'", "n = n * 2", "o = NOT o", "d = d + 1", "s = NULL", "id = id + 100000", "b = i, i = s", "f = f / 2",
    "at = at + interval '1 day'", "c = 'c' || s",
)  # fmt: skip


def _changes(random: Random, count: int) -> Iterator[str]:
    """Yield UPDATE and DELETE statements of some rows."""
    for _ in range(count):
        where = " AND ".join(random.sample(CONDITIONS, random.choice((1, 2, 3))))
        yield random.choice((f"UPDATE measured SET {random.choice(SETTERS)} WHERE {where}", f"DELETE FROM measured WHERE {where}"))


def _changed(session: psycopg.Connection, change: str) -> list[tuple[str, ...]] | str:
    """Return the table's rows after a change, which is rolled back, or the error."""
    session.execute("BEGIN")
    try:
        session.execute(change.encode())
        return _answer(session, "SELECT * FROM measured ORDER BY id")
    except psycopg.Error as error:
        return str(error)
    finally:
        session.execute("ROLLBACK")


def _answer(session: psycopg.Connection, query: str) -> list[tuple[str, ...]] | str:
    """Return the rows as text, in their order, or the error."""
    try:
        rows = session.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        return str(error)
    return [tuple(map(str, row)) for row in rows]


def _differences(
    node: Server, postgres: Server, statements: Iterator[str], double: str,
    result: Callable[[psycopg.Connection, str], list[tuple[str, ...]] | str] = _answer,
) -> list[str]:  # fmt: skip
    """Return the statements that have another result from the driver or from Spark than from PostgreSQL."""
    differing = []
    databases = [server.new_database() for server in (node, postgres)]
    for server, database in zip((node, postgres), databases, strict=True):
        server.psql(database, MADE.format(rows=ROWS, float=double))
    with psycopg.connect(node.conninfo(databases[0])) as node_session, psycopg.connect(postgres.conninfo(databases[1])) as native:
        for session in (node_session, native):
            session.autocommit = True
        for statement in statements:
            expected = result(native, statement)
            for memory in ("64MB", "0"):
                node_session.execute(f"SET driver_query_memory = '{memory}'".encode())
                answer = result(node_session, statement)
                if answer != expected:
                    differing.append(f"{memory}: {statement}\n  {answer!r:.300}\n  {expected!r:.300}")
    return differing


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("double", ["'NaN'", "'-0'", "2.5"])
def test_random_queries_have_postgresqls_rows(node: Server, postgres: Server, double: str) -> None:
    assert not _differences(node, postgres, _queries(Random(f"{double} 55"), 24), double)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
def test_random_changes_leave_postgresqls_rows(node: Server, postgres: Server, seed: int) -> None:
    assert not _differences(node, postgres, _changes(Random(seed), 20), "2.5", _changed)


def test_range_is_updated_and_deleted_as_in_postgresql(node: Server, postgres: Server) -> None:
    changes = ("UPDATE measured SET i = i % 1000 + 1, t = t || 'x' WHERE id BETWEEN 20 AND 80", "DELETE FROM measured WHERE i > 500 AND o")

    assert not _differences(node, postgres, iter(changes), "2.5", _changed)


def test_grouped_sorted_and_filtered_rows_equal_postgresqls(node: Server, postgres: Server) -> None:
    queries = (
        "SELECT s, count(*), sum(b), avg(n), min(t) FROM measured WHERE i > 10 GROUP BY s HAVING count(*) > 3 ORDER BY 3 DESC",
        "SELECT id, t, n FROM measured WHERE id BETWEEN 200 AND 260 ORDER BY t DESC NULLS LAST, id LIMIT 9 OFFSET 2",
    )

    assert not _differences(node, postgres, iter(queries), "2.5")


DRIVERS_OWN = (
    "SELECT count(*) FROM measured WHERE id = 77",
    "SELECT count(*), sum(i), avg(n), max(t) FROM measured WHERE id BETWEEN 200 AND 300",
    "SELECT t, count(*), sum(b) FROM measured GROUP BY t HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 3",
    "SELECT id, n FROM measured WHERE lower(t) = 'z' ORDER BY d DESC, id LIMIT 5",
    "SELECT DISTINCT s, o FROM measured",
    "UPDATE measured SET i = i % 1000 + 1 WHERE id BETWEEN 200 AND 300",
    "DELETE FROM measured WHERE t = 'zz' AND s < 2 RETURNING id",
)


@pytest.mark.slow  # starts a separate node
def test_driver_starts_no_job_up_to_driver_query_memory(own_node: Callable[..., NodeServer]) -> None:
    node = own_node(**spark_pages.SETTINGS)
    pages = SparkPages(node)
    node.psql("postgres", MADE.format(rows=ROWS, float="2.5"))

    jobs_before = pages.jobs()
    for query in DRIVERS_OWN:
        node.psql("postgres", query)
    assert pages.jobs() == jobs_before

    for query in DRIVERS_OWN[1:]:
        jobs_before = pages.jobs()
        node.psql("postgres", f"SET driver_query_memory = '4kB'; {query}")
        assert pages.jobs() > jobs_before, query


@pytest.mark.slow  # 200,000 rows
@pytest.mark.parametrize(
    ("condition", "first", "last"),
    [
        ("id = 65536", 65536, 65536), ("id BETWEEN 65530 AND 65540", 65530, 65540), ("id < 3", 1, 2), ("131073 <= id", 131073, 200000),
        ("id > 199999::bigint", 200000, 200000), ("id = 9999999999", None, None), ("id > 70000 AND id <= 70001", 70001, 70001),
        ("10 > id AND t = 'row 9'", 9, 9), ("t < 'row 10'", 1, 1), ("day = date '2020-01-02' + 65536", 65537, 65537),
    ],
)  # fmt: skip
def test_range_finds_the_rows_of_every_row_group(
    several_row_groups: psycopg.Connection, condition: str, first: int | None, last: int | None
) -> None:
    row = several_row_groups.execute(f"SELECT min(id), max(id), max(length(t)) FROM grouped WHERE {condition}".encode()).fetchone()

    assert row is not None
    assert row[:2] == (first, last)

    several_row_groups.execute("BEGIN")
    changed = several_row_groups.execute(f"UPDATE grouped SET id = -id WHERE {condition} RETURNING id".encode()).fetchall()
    remaining = several_row_groups.execute("SELECT count(*), max(-id), min(-id) FROM grouped WHERE id < 0").fetchone()
    several_row_groups.execute("ROLLBACK")
    numbers = [-number for (number,) in changed]
    assert remaining == (len(numbers), max(numbers, default=None), min(numbers, default=None))
    assert (min(numbers, default=None), max(numbers, default=None)) == (first, last)


@pytest.fixture(scope="module")
def several_row_groups(node: Server) -> Iterator[psycopg.Connection]:
    """A session in a database with a table whose file has several row groups of 65,536 rows."""
    database = node.new_database()
    node.psql(
        database, "CREATE TABLE grouped AS SELECT g AS id, 'row ' || g AS t, date '2020-01-01' + g AS day FROM generate_series(1, 200000) g"
    )
    with psycopg.connect(node.conninfo(database), autocommit=True) as session:
        yield session


@pytest.mark.slow
def test_privileges_row_security_and_own_changes_are_respected(node: Server) -> None:
    database, role = node.new_database(), "column_reader"
    node.psql(database, MADE.format(rows=ROWS, float="2.5"))
    node.psql(database, f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; GRANT SELECT (id, s) ON measured TO {role}")
    with psycopg.connect(node.conninfo(database, role), autocommit=True) as reader, psycopg.connect(node.conninfo(database)) as owner:
        assert len(reader.execute("SELECT s, count(id) FROM measured WHERE id > 0 GROUP BY s").fetchall()) == 5
        for query in (
            "SELECT s, sum(b) FROM measured GROUP BY s",
            "SELECT s FROM measured ORDER BY b",
            "SELECT count(*) FROM measured WHERE i > 1",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(query.encode())

        owner.execute("INSERT INTO measured (id, s) VALUES (100001, 77), (100002, 77)")
        assert owner.execute("SELECT count(*), max(id) FROM measured WHERE s = 77").fetchone() == (2, 100002)
        assert reader.execute("SELECT count(id) FROM measured WHERE s = 77").fetchone() == (0,)
        owner.rollback()

    node.psql(database, "ALTER TABLE measured ENABLE ROW LEVEL SECURITY; CREATE POLICY even ON measured USING (s % 2 = 0)")
    assert node.psql(database, "SELECT s, 1 FROM measured WHERE id > 0 GROUP BY s ORDER BY s", user=role) == "0|1\n2|1\n4|1"
