"""Statements that need too many resources are rejected early, or end soon after a cancel. No other session waits for them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from typing import Any, Self

import psycopg
import pytest
from tests.conftest import Server, until

from headgate.commands.copy.copy_reader import LONGEST
from headgate.types.binary.copy_binary import HEADER

REFUSED = {
    "repeat": ("SELECT repeat('x', 2000000000)", "54000", "requested length too large"),
    "repeat of a column": ("SELECT repeat(b, 2000000000) FROM t", "54000", "requested length too large"),
    "lpad": ("SELECT lpad('x', 2000000000)", "54000", "requested length too large"),
    "rpad": ("SELECT rpad('x', 268435455, 'ab')", "54000", "requested length too large"),
    "format": ("SELECT format('%2000000000s', 'x')", "54000", "out of memory"),
    "below PostgreSQL's limit": ("SELECT length(repeat('x', 500000000))", "53200", "out of memory"),
    "decode": ("SELECT decode(repeat('00', 500000000), 'hex')", "53200", "out of memory"),
    "string_to_array": ("SELECT string_to_array(repeat('a,', 100000000), ',')", "53200", "out of memory"),
    "array_fill": ("SELECT array_fill(0, ARRAY[100000000])", "53200", "out of memory"),
    "regexp_replace": ("SELECT length(regexp_replace(repeat('a', 100000), 'a', repeat('b', 100000), 'g'))", "53200", "out of memory"),
    "repeat over a catalog": ("SELECT repeat(relname, 100000000) FROM pg_class", "54000", "requested length too large"),
    "lpad over a catalog": ("SELECT lpad(relname, 200000000) FROM pg_class", "53200", "out of memory"),
    "join of catalogs": ("SELECT a.attname, b.attname FROM pg_attribute a, pg_attribute b", "53200", "out of memory"),
}
ENDLESS = {
    "rows": "SELECT * FROM generate_series(1, 1000000000000)",
    "a count": "SELECT count(*) FROM generate_series(1, 1000000000000)",
    "a group": "SELECT string_agg(g::text, ',') FROM generate_series(1, 1000000000) g",
    "an insert": "INSERT INTO t SELECT g FROM generate_series(1, 1000000000000) g",
    "pairs": "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 3000000) b WHERE a + b = -1",
    "workers": r"SELECT count(*) FROM generate_series(1, 1000000000) g WHERE g::text ~ '(1|2).*\1\1\1x'",
    "conditions": "SELECT count(*) FROM t WHERE " + " AND ".join(f"a <> {number}" for number in range(20000)),
    # Spark's planner works on each part, a hundred times
    "sums": "SELECT count(*) FROM t, t u WHERE " + " AND ".join(f"t.a <> {number} + u.a" for number in range(6000)),
    # Spark's planner computes what depends on no row
    "the planner": "SELECT translate(repeat('a', 60000000), repeat('b', 10000) || 'a', repeat('c', 10001))",
    "the catalog": "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c WHERE a.attname || b.attname < c.attname",
}
MOMENTS = 5.0
"""The limit in seconds. A statement takes 2 s on a machine without other work."""


@pytest.fixture(scope="module")
def database(node: Server) -> str:
    name = node.new_database()
    node.psql(name, "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x')")
    return name


def connected(node: Server, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(node.conninfo(database), autocommit=True, prepare_threshold=None)


class Running:
    """A statement that runs in a separate thread, and its error. It is cancelled when the context ends, also after a failure."""

    def __init__(self, session: psycopg.Connection[Any], statement: str) -> None:
        self.session, self.statement = session, statement
        self.state: str | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread.is_alive():
            self.session.cancel()
            self.thread.join()

    def _run(self) -> None:
        try:
            self.session.execute(self.statement)  # type: ignore[arg-type]
        except psycopg.Error as error:
            self.state = error.sqlstate


@pytest.mark.parametrize("which", [pytest.param(kind, marks=[pytest.mark.slow] if kind == "regexp_replace" else []) for kind in REFUSED])
def test_too_large_result_is_rejected_before_it_is_computed(node: Server, database: str, which: str) -> None:
    statement, state, message = REFUSED[which]
    with connected(node, database) as session:
        began = time.monotonic()
        with pytest.raises(psycopg.Error) as caught:
            session.execute(statement)  # type: ignore[arg-type]
        assert (caught.value.sqlstate, caught.value.diag.message_primary) == (state, message)
        assert time.monotonic() - began < 6 * MOMENTS
        assert session.execute("SELECT count(*) FROM t").fetchone() == (1,)


@pytest.mark.parametrize("how", ["cancel", pytest.param("terminate", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "which",
    [pytest.param(kind, marks=[] if kind == "a group" else pytest.mark.slow) for kind in ENDLESS],
)
def test_endless_statement_ends_soon_after_a_cancel_and_blocks_no_other_session(node: Server, database: str, which: str, how: str) -> None:
    with connected(node, database) as watcher, connected(node, database) as session:
        pid = session.info.backend_pid
        watcher.execute("SELECT count(*) FROM t")
        with Running(session, ENDLESS[which]) as running:
            active = f"SELECT state = 'active' AND now() - query_start > interval '1 s' FROM pg_stat_activity WHERE pid = {pid}"
            until(lambda: not running.thread.is_alive() or watcher.execute(active).fetchone() == (True,), "the statement does not run")  # type: ignore[arg-type]
            query_start = time.monotonic()
            watcher.execute("SELECT 1")
            assert time.monotonic() - query_start < MOMENTS / 2
            cancel_time = time.monotonic()
            watcher.execute(f"SELECT pg_{how}_backend({pid})")  # type: ignore[arg-type]
            running.thread.join(6 * MOMENTS)
            assert time.monotonic() - cancel_time < MOMENTS
            assert running.state == ("57014" if how == "cancel" else "57P01")
            assert watcher.execute("SELECT count(*) FROM t").fetchone() == (1,)
            cancel_time = time.monotonic()  # the tasks of the statement have ended, so other statements do not wait
            assert watcher.execute("SELECT count(*) FROM t WHERE b ~ 'x'").fetchone() == (1,)
            assert time.monotonic() - cancel_time < MOMENTS
            if how == "cancel":
                assert session.execute("SELECT count(*) FROM t WHERE b ~ 'x'").fetchone() == (1,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM big x, big y WHERE x.a + y.a = -1",
        "UPDATE big x SET b = 'y' FROM big y WHERE x.a + y.a = -1",
        "DELETE FROM big x USING big y WHERE x.a + y.a = -1",
    ],
)
def test_join_without_equality_ends_soon_after_a_cancel(node: Server, database: str, statement: str) -> None:
    with connected(node, database) as watcher, connected(node, database) as session:
        watcher.execute("CREATE TABLE IF NOT EXISTS big (a int, b text)")
        watcher.execute("INSERT INTO big SELECT g, 'x' FROM generate_series(1, 400000) g")
        pid = session.info.backend_pid
        with Running(session, statement) as running:
            active = f"SELECT state = 'active' AND now() - query_start > interval '4 s' FROM pg_stat_activity WHERE pid = {pid}"
            until(lambda: not running.thread.is_alive() or watcher.execute(active).fetchone() == (True,), "the statement does not run")  # type: ignore[arg-type]
            watcher.execute(f"SELECT pg_cancel_backend({pid})")  # type: ignore[arg-type]
            running.thread.join(6 * MOMENTS)
            assert running.state == "57014"
            query_start = time.monotonic()
            assert watcher.execute("SELECT count(*) FROM t WHERE b ~ 'x'").fetchone() == (1,)
            assert time.monotonic() - query_start < MOMENTS


@pytest.mark.slow
@pytest.mark.parametrize("form", ["({0}, 'x{0}')", "(a = {0} AND b = 'x{0}')"])
def test_list_of_thousands_of_pairs_is_evaluated(node: Server, database: str, form: str) -> None:
    pairs = [form.format(number) for number in range(4000)]
    condition = f"(a, b) IN ({', '.join(pairs)})" if form.startswith("({0}") else " OR ".join(pairs)

    with connected(node, database) as session:
        assert session.execute(f"SELECT count(*) FROM t WHERE b = 'x' OR {condition}").fetchone() == (1,)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(1200)  # beside other runs it takes five minutes until the memory is full
@pytest.mark.parametrize("aggregate", ["jsonb_object_agg(g, g)", "array_agg(ARRAY[g])"])
def test_group_that_fills_the_memory_fails_alone(node: Server, database: str, aggregate: str) -> None:
    statement = f"SELECT {aggregate} FROM generate_series(1, 1000000000) g"
    with connected(node, database) as watcher, connected(node, database) as session, Running(session, statement) as running:
        while running.thread.is_alive():
            running.thread.join(1)
            query_start = time.monotonic()
            watcher.execute("SELECT 1")
            assert time.monotonic() - query_start < MOMENTS
        assert running.state == "53200"
        assert watcher.execute("SELECT count(*) FROM t").fetchone() == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", ["array_agg(g)", "array_agg(g::text)", "jsonb_agg(g)", "string_agg(g::text, ',')"])
def test_million_values_can_be_aggregated(node: Server, database: str, aggregate: str) -> None:
    with connected(node, database) as session:
        row = session.execute(f"SELECT ({aggregate})::text FROM generate_series(1, 1000000) g").fetchone()  # type: ignore[arg-type]
    assert row is not None
    assert sum(map(int, row[0].strip("{}[]").split(","))) == 500000500000


@pytest.mark.slow
def test_temp_file_limit_of_a_role_ends_its_statement(node: Server, database: str) -> None:
    role = f"spiller_{database}"
    node.psql(database, f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET temp_file_limit = '1MB'; GRANT SELECT ON t TO {role}")
    with psycopg.connect(node.conninfo(database, user=role), autocommit=True) as session:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SET temp_file_limit = -1")
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match=r"temporary file size exceeds temp_file_limit \(1024kB\)"):
            session.execute("SELECT count(DISTINCT md5(g::text)) FROM generate_series(1, 1000000000) g")
        assert session.execute("SELECT count(*) FROM t").fetchone() == (1,)


ROWS = {
    "text": ("", b"x" * (1 << 20)),
    "continued lines": ("", b"\\\n" * (1 << 19)),
    "csv": ("(FORMAT csv)", b'"' + b"\n" * ((1 << 20) - 1)),
    "binary": ("(FORMAT binary)", HEADER + (1).to_bytes(2, "big") + (1 << 28).to_bytes(4, "big") + b"x" * (1 << 20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", ROWS)
def test_endless_row_of_copy_is_rejected(node: Server, database: str, which: str) -> None:
    options, first = ROWS[which]
    node.psql(database, f"CREATE TABLE IF NOT EXISTS copied_{which[:3]} (a text)")
    rest = {"continued lines": first, "csv": b"\n" * (1 << 20)}.get(which, b"x" * (1 << 20))
    with connected(node, database) as session:
        with pytest.raises(psycopg.errors.OutOfMemory, match="out of memory"):
            copied(
                session,
                f"COPY copied_{which[:3]} FROM STDIN {options}",
                itertools.chain([first], itertools.repeat(rest, 2 * LONGEST >> 20)),
            )
        assert session.execute("SELECT count(*) FROM t").fetchone() == (1,)


def copied(session: psycopg.Connection[Any], statement: str, pieces: Iterable[bytes]) -> None:
    with session.cursor().copy(statement.encode()) as copy:
        for piece in pieces:
            copy.write(piece)


@pytest.mark.slow
def test_statement_larger_than_max_statement_size_is_skipped_and_the_session_continues(node: Server, database: str) -> None:
    with connected(node, database) as session:
        assert session.execute("SHOW max_statement_size").fetchone() == ("64MB",)
        for limit, parameters in ((64 << 20, ()), (64 << 20, (1,)), (1280 << 10, ())):
            session.execute(f"SET max_statement_size = {limit >> 10}")  # type: ignore[arg-type]
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="statement is too large") as caught:
                session.execute(b"SELECT " + b"%s " * len(parameters) + b" " * limit, parameters)
            assert '"max_statement_size"' in (caught.value.diag.message_hint or "")
            assert session.execute(b"SELECT count(*) FROM t" + b" " * (limit - 40)).fetchone() == (1,)


def test_parameters_do_not_count_as_statement_size(node: Server, database: str) -> None:
    with connected(node, database) as session:
        session.execute("SET max_statement_size = '64kB'")
        result = session.pgconn.exec_params(b"SELECT length($1)", [b"x" * 3_000_000])
        assert (result.error_message, result.get_value(0, 0)) == (b"", b"3000000")


def test_role_cannot_raise_the_limit_that_a_superuser_has_set(node: Server, database: str) -> None:
    role = f"sender_{database}"
    node.psql(database, f"CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET max_statement_size = '1MB'")
    try:
        with psycopg.connect(node.conninfo(database, user=role), autocommit=True) as session:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("SET max_statement_size = '64MB'")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                session.execute(b"SELECT 1" + b" " * (1 << 20))
    finally:
        node.psql(database, f"DROP ROLE {role}")


PARTS = {
    "the walk of a tree": "VALUES " + ", ".join(["(1)"] * 300_000),
    "one list": f"SELECT 1 WHERE 1 IN ({', '.join(['1'] * 300_000)})",
    "one value": f"SELECT '[{','.join(['1'] * 8_000_000)}]'::jsonb",
}


@pytest.mark.parametrize("which", [pytest.param(kind, marks=[] if kind == "one list" else pytest.mark.slow) for kind in PARTS])
def test_statement_of_many_parts_can_be_cancelled_in_each_phase(node: Server, database: str, which: str) -> None:
    with connected(node, database) as watcher, connected(node, database) as session, Running(session, PARTS[which]) as running:
        active = (
            f"SELECT state = 'active' AND now() - query_start > interval '1 s' FROM pg_stat_activity WHERE pid = {session.info.backend_pid}"
        )
        until(lambda: not running.thread.is_alive() or watcher.execute(active).fetchone() == (True,), "the statement does not run")  # type: ignore[arg-type]
        cancel_time = time.monotonic()
        session.cancel()
        running.thread.join(6 * MOMENTS)
        assert (running.state, time.monotonic() - cancel_time < MOMENTS) == ("57014", True)


@pytest.mark.slow
def test_statement_ends_after_its_client_has_disconnected(node: Server, database: str) -> None:
    with connected(node, database) as watcher:
        for statement in ("SELECT pg_sleep(1000)", PARTS["the walk of a tree"], "SELECT count(*) FROM generate_series(1, 1000000000000)"):
            session = connected(node, database)
            pid = session.info.backend_pid
            session.pgconn.send_query(statement.encode())
            session.pgconn.flush()
            active = f"SELECT state = 'active' FROM pg_stat_activity WHERE pid = {pid}"
            until(lambda: watcher.execute(active).fetchone() == (True,), "the statement does not run")  # type: ignore[arg-type]  # noqa: B023
            session.close()
            until(lambda: watcher.execute(active).fetchone() is None, "the statement is still running", MOMENTS)  # type: ignore[arg-type]  # noqa: B023


def test_error_message_that_quotes_a_large_value_is_truncated(node: Server, database: str) -> None:
    with connected(node, database) as session:
        for statement in (f"SELECT '{'x' * 300_000}'::int", f"SELECT 1 /* {'x' * 300_000}"):
            with pytest.raises(psycopg.Error) as caught:
                session.execute(statement)  # type: ignore[arg-type]
            assert 60_000 < len(caught.value.diag.message_primary or "") < 70_000


@pytest.mark.parametrize("link", ["::int", "+1"])
def test_deeply_nested_statement_is_rejected(node: Server, database: str, link: str) -> None:
    with connected(node, database) as session:
        with pytest.raises(psycopg.errors.StatementTooComplex):
            session.execute("SELECT 1" + link * 100_000)  # type: ignore[arg-type]
        assert session.execute("SELECT count(*) FROM t").fetchone() == (1,)
