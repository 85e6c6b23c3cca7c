"""Statements under row security, on a PostgreSQL and on a node: equal outcomes, error messages and rows afterwards.

The data of the matrix is in `tests.server.row_security`. The whole matrix is slow; every run has a sample of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.conftest import Server
from tests.server.row_security import DIFFERENT, FIXTURE, POLICIES, STATEMENTS, TABLES, broken, ruled

from headgate.commands.query.row_security import RULES, Rule

Cells = dict[tuple[str, str, str], Any]
"""The outcome of each statement, by the table, the set of policies and the statement."""
ROLES = ("guarded", "elsewhere")


@pytest.fixture(scope="module")
def links(postgres: Server, node: Server) -> Iterator[list[psycopg.Connection[Any]]]:
    """Return a superuser's connection to a PostgreSQL and to a node, in databases that have the tables."""
    sessions, servers = [], [(server, server.new_database()) for server in (postgres, node)]
    for server, database in servers:
        server.psql("postgres", ";".join(f"CREATE ROLE {role}" for role in ROLES))
        server.psql(database, FIXTURE)
        sessions.append(psycopg.connect(server.conninfo(database), autocommit=True, prepare_threshold=None))
    yield sessions
    for link, (server, database) in zip(sessions, servers, strict=True):
        link.close()
        server.psql(database, f"DROP OWNED BY {', '.join(ROLES)} CASCADE; DROP ROLE {', '.join(ROLES)}")


def cells(link: psycopg.Connection[Any], table: str, policies: str, statements: list[str]) -> Cells:
    """Return the outcome of each statement for one table and one set of policies, which are gone afterwards."""
    named, guarded, *closed = TABLES[table]
    for statement in (guarded, *closed):
        link.execute(f"ALTER TABLE {statement} ENABLE ROW LEVEL SECURITY".encode())
    for statement in POLICIES[policies]:
        link.execute(f"CREATE POLICY {statement.format(t=guarded)}".encode())
    try:
        return {(table, policies, sql): outcome(link, sql.format(t=named)) for sql in statements}
    finally:
        for statement in POLICIES[policies]:
            link.execute(f"DROP POLICY {statement.split()[0]} ON {guarded}".encode())
        for statement in (guarded, *closed):
            link.execute(f"ALTER TABLE {statement} DISABLE ROW LEVEL SECURITY".encode())


def outcome(link: psycopg.Connection[Any], sql: str) -> Any:
    """Return the error of a statement of the guarded role, or its result and the rows of all tables after it."""
    link.execute("BEGIN; SET LOCAL ROLE guarded")
    try:
        return answer(link, sql), rows(link)
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    finally:
        link.execute("ROLLBACK")


def answer(link: psycopg.Connection[Any], sql: str) -> Any:
    """Return the rows or the command tag of the last statement."""
    *preparations, last = sql.split("; ")
    for preparation in preparations:
        link.execute(preparation.encode())
    if last.startswith("COPY"):
        with link.cursor().copy(last.encode()) as copy:
            return sorted(bytes(line) for line in copy) if "TO STDOUT" in last else copy.write("9\tother\t9\n")
    cursor = link.execute(last.encode())
    return cursor.statusmessage if cursor.description is None else sorted(cursor.fetchall(), key=str)


def rows(link: psycopg.Connection[Any]) -> list[list[Any]]:
    """Return the rows of the tables, as the superuser reads them."""
    link.execute("RESET ROLE")
    return [
        link.execute(f"SELECT * FROM {table} ORDER BY 1, 2".encode()).fetchall() for table in ("plain", "parted", "target", "referring")
    ]


def differences(
    links: list[psycopg.Connection[Any]], table: str, policies: str, statements: list[str], *, many: bool = False
) -> dict[Any, Any]:
    """Return the cells in which the node's outcome is not PostgreSQL's. `many`: two rows are many, and stay in Spark."""
    for link in links:
        link.execute(f"SET headgate.small_write_rows = {1 if many else 10000}".encode())
    left_out = tuple(DIFFERENT) if TABLES[table][0] == "parted" else ()
    chosen = [statement for statement in statements if not statement.startswith(left_out)]
    with ThreadPoolExecutor(2) as pool:
        expected, actual = pool.map(lambda link: cells(link, table, policies, chosen), links)
    return {cell: (expected[cell], actual[cell]) for cell in expected if expected[cell] != actual[cell]}


def under(link: psycopg.Connection[Any], sql: str, policy: str = "SELECT") -> Any:
    """Return the outcome of a statement on the table `single` once CREATE POLICY has run."""
    link.execute(f"BEGIN; {policy}; SET LOCAL ROLE guarded".encode())
    try:
        result = answer(link, sql)
        link.execute("RESET ROLE")
        return result, link.execute("SELECT * FROM single ORDER BY id").fetchall()
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    finally:
        link.execute("ROLLBACK")


def named(rule: Rule) -> str:
    """Return the name of a rule's test."""
    return f"{rule.statement.name}-{rule.rows.name}-{rule.command}"


LONG = ("MERGE-UPDATED-r", "MERGE-STORED-r", "MERGE-INSERTED-a", "DELETE-STORED-r")


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=named(rule), marks=pytest.mark.slow if named(rule) in LONG else []) for rule in RULES]
)
def test_policy_applies_to_the_rows_of_its_rule_as_in_postgresql(links: list[psycopg.Connection[Any]], rule: Rule) -> None:
    reading, blind = ruled(rule)
    expected, actual = (under(link, reading, broken(rule)) for link in links)
    assert actual == expected
    assert actual != under(links[1], reading)
    if rule.reading and blind:
        assert under(links[0], blind, broken(rule)) == under(links[1], blind, broken(rule)) == under(links[1], blind)


PLACES = [(table, policies) for table in TABLES for policies in POLICIES]
"""The tables, each with each set of policies."""


def test_statements_under_policies_agree_with_postgresql(links: list[psycopg.Connection[Any]]) -> None:
    for first, (table, policies) in enumerate(PLACES[::9]):
        assert differences(links, table, policies, STATEMENTS[first::30], many=bool(first % 2)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("table", "policies"), PLACES)
def test_statements_under_policies_agree_with_postgresql_in_the_whole_matrix(
    links: list[psycopg.Connection[Any]], table: str, policies: str
) -> None:
    first = PLACES.index((table, policies))
    assert differences(links, table, policies, STATEMENTS[first % 3 :: 3], many=bool(first % 2)) == {}


def test_cascade_changes_rows_that_row_security_hides(links: list[psycopg.Connection[Any]]) -> None:
    for statement in ("DELETE FROM plain WHERE id = 1", "UPDATE plain SET id = 10 WHERE id = 1"):
        expected, actual = (outcome(link, statement) for link in links)
        assert actual == expected
        assert expected[1][3] in ([], [(10, "other")])


def test_table_without_columns_accepts_the_rows_that_policies_allow(links: list[psycopg.Connection[Any]]) -> None:
    policy = "CREATE TABLE empty (); GRANT ALL ON empty TO guarded; ALTER TABLE empty ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON empty"
    for statement in ("INSERT INTO empty DEFAULT VALUES", "INSERT INTO empty SELECT FROM generate_series(1, 20000)"):
        for clause in ("USING (true)", "USING (current_user = 'elsewhere')"):
            expected, actual = (under(link, statement, f"{policy} {clause}") for link in links)
            assert actual == expected


def test_leaf_that_the_role_may_not_read_is_updated_by_a_conflict_in_its_root(links: list[psycopg.Connection[Any]]) -> None:
    for link in links:
        link.execute("REVOKE ALL ON leaf FROM guarded")
    expected, actual = (
        outcome(link, "INSERT INTO parted VALUES (1, 'me', 9) ON CONFLICT (id) DO UPDATE SET v = excluded.v + parted.v RETURNING v")
        for link in links
    )
    for link in links:
        link.execute("GRANT ALL ON leaf TO guarded")
    assert actual == expected
    assert expected[0] == [(14,)]
