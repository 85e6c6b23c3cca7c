"""Each statement of each role has PostgreSQL's result on a node: the same SQLSTATE or the same rows.

The statements, the roles and their objects are data (`tests.server.rights`). The whole matrix is slow, because permitted statements are
executed. Every run executes every twentieth statement of each group.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.conftest import Server
from tests.server.rights import (
    ALONE,
    DIFFERENT,
    DIFFERENT_AFTER_REVOKE,
    FIXTURE,
    OTHERS,
    REPLICATION,
    REVOKED,
    ROLES,
    SEQUENCES,
    STATEMENTS,
)

Both = tuple[tuple[Server, str], tuple[Server, str]]
"""The PostgreSQL and the node, each with its database."""
Cells = dict[tuple[str, str], Any]
"""The result of each statement for each role."""


@pytest.fixture(scope="module")
def both(postgres: Server, node: Server) -> Iterator[Both]:
    """Both servers, with the roles and the database of the matrix."""
    (first, one), (second, other) = scenes = tuple((server, server.new_database()) for server in (postgres, node))
    for server, database in scenes:
        make(server, database)
    yield (first, one), (second, other)
    for server, database in scenes:
        drop(server, database)


def make(server: Server, database: str) -> None:
    """Create the roles and the objects."""
    roles = {**{role: f"LOGIN {attributes}" for role, attributes in ROLES.items()}, **OTHERS}
    server.psql("postgres", ";".join(f"CREATE ROLE {role} {attributes}" for role, attributes in roles.items()))
    server.psql(database, FIXTURE.format(database=database))


def drop(server: Server, database: str) -> None:
    """Drop the roles and the database."""
    roles = (*ROLES, *OTHERS)
    owned = "; ".join(f"DROP OWNED BY {role} CASCADE" for role in roles)
    server.psql(
        database,
        f"DROP SUBSCRIPTION rights_subscription; {owned}; DROP ROLE {', '.join(roles)}",
    )


def session(server: Server, database: str, role: str, **more: str) -> psycopg.Connection[Any]:
    """Open a connection of a role."""
    return psycopg.connect(server.conninfo(database, role, **more), autocommit=True, prepare_threshold=None)


def answer(connection: psycopg.Connection[Any], sql: str) -> Any:
    """Return the SQLSTATE of an error, else the result of the last statement: its rows in order, the lines of a COPY, or the command tag."""
    try:
        if sql.startswith("COPY") and "STD" in sql:
            with connection.cursor().copy(sql.encode()) as copy:
                return sorted(bytes(line) for line in copy) if "TO STDOUT" in sql else copy.write(b"")
        cursor = connection.execute(sql.encode())
        while cursor.nextset():
            pass
        if cursor.description is None:
            return cursor.statusmessage
        return cursor.fetchall() if "ORDER BY" in sql else sorted(cursor.fetchall(), key=str)
    except psycopg.Error as error:
        return error.sqlstate or str(error)


def cells(server: Server, database: str, statements: list[str], roles: tuple[str, ...] = tuple(ROLES)) -> Cells:
    """Run each statement as each role, in a transaction that is rolled back."""
    answers: Cells = {}
    for role in roles:
        with session(server, database, role) as connection:
            for sql in statements:
                connection.execute("BEGIN")
                answers[sql, role] = answer(connection, sql.format(role=role, database=database))
                connection.execute("ROLLBACK")
    return answers


def after_revoke(server: Server, database: str, statements: list[str], isolation: str, roles: tuple[str, ...] = tuple(ROLES)) -> Cells:
    """Run each statement as each role in a transaction whose snapshot is older than the revocation of the role's privileges."""
    answers: Cells = {}
    for role in roles:
        revoke, give_back = (text.format(role=role, database=database) for text in REVOKED[role])
        with session(server, database, role) as connection:
            connection.execute(f"BEGIN ISOLATION LEVEL {isolation}".encode())
            connection.execute("SELECT 1")
            server.psql(database, revoke)
            try:
                for sql in statements:
                    connection.execute("SAVEPOINT s")
                    answers[sql, role] = answer(connection, sql.format(role=role, database=database))
                    connection.execute("ROLLBACK TO s")
                connection.execute("ROLLBACK")
            finally:
                server.psql(database, give_back)
    return answers


def alone(server: Server, database: str) -> Cells:
    """Run each statement that cannot run in a transaction, as the roles that are listed for it."""
    answers: Cells = {}
    for role in ROLES:
        with session(server, database, role) as connection:
            for sql, roles in ALONE.items():
                if role in roles:
                    answers[sql, role] = answer(connection, sql.format(role=role, database=database))
    return answers


def sequences(server: Server, database: str, roles: tuple[str, ...] = tuple(ROLES)) -> Cells:
    """Run each sequence as each role. DISCARD ALL resets the session for the next one."""
    answers: Cells = {}
    for role in roles:
        with session(server, database, role) as connection:
            for name, statements in SEQUENCES.items():
                answers[name, role] = [(sql, answer(connection, sql.format(role=role, database=database))) for sql in statements]
                connection.execute("ROLLBACK")
                connection.execute("DISCARD ALL")
    return answers


def replication(server: Server, database: str) -> Cells:
    """Run each walsender command as each role. Return its error, or the reason for which the connection is rejected."""
    answers: Cells = {}
    for role in ROLES:
        for kind in (database, "true"):
            try:
                with session(server, database, role, replication="database" if kind == database else "true") as connection:
                    for sql in REPLICATION:
                        refusal = answer(connection, sql.format(role=role))
                        answers[f"{sql} ({'database' if kind == database else 'physical'})", role] = (
                            refusal if isinstance(refusal, str) else "done"
                        )
            except psycopg.OperationalError as error:
                answers["a walsender" if kind == database else "a physical walsender", role] = str(error).rsplit("FATAL:")[-1].strip()
    return answers


def without_conflicts(both: Both, ask: Any, *arguments: Any) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Return the differences without statements that a node rejects with 40001.

    Under REPEATABLE READ a node does not change a catalog object that another session has changed since the snapshot.
    """
    differing = differences(both, ask, *arguments)
    return {cell: answers for cell, answers in differing.items() if answers[1] != "40001" or arguments[1] == "READ COMMITTED"}


def differences(both: Both, ask: Any, *arguments: Any) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Return the cells in which the node's result differs from PostgreSQL's, except for intended differences."""
    with ThreadPoolExecutor(2) as pool:
        expected, actual = pool.map(lambda scene: ask(*scene, *arguments), both)
    assert expected.keys() == actual.keys()
    differing = {cell: (expected[cell], actual[cell]) for cell in expected if expected[cell] != actual[cell]}
    return {(sql, role): answers for (sql, role), answers in differing.items() if not _meant(sql, role, answers[1])}


def _meant(sql: str, role: str, node_answer: Any) -> bool:
    listed = DIFFERENT.get((sql, role)) or DIFFERENT.get((sql, "")) or DIFFERENT_AFTER_REVOKE.get((sql, role))
    return listed is not None and listed[0] == node_answer


def test_statements_of_roles_are_permitted_as_in_postgresql(both: Both) -> None:
    assert differences(both, cells, [sql for group in STATEMENTS.values() for sql in group[::20]]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("group", STATEMENTS)
def test_statements_of_roles_are_permitted_as_in_postgresql_in_the_whole_matrix(both: Both, group: str) -> None:
    assert differences(both, cells, STATEMENTS[group]) == {}


def test_revoked_privileges_are_lost_in_open_transactions(both: Both) -> None:
    statements = [sql for group in STATEMENTS.values() for sql in group[7::40]]
    roles = ("rights_super", "rights_owner", "rights_reader", "rights_writer")
    assert without_conflicts(both, after_revoke, statements, "REPEATABLE READ", roles) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("group", STATEMENTS)
def test_revoked_privileges_are_lost_in_open_transactions_in_the_whole_matrix(both: Both, group: str, isolation: str) -> None:
    assert without_conflicts(both, after_revoke, STATEMENTS[group], isolation) == {}


def test_statements_outside_transactions_are_permitted_as_in_postgresql(both: Both) -> None:
    assert differences(both, alone) == {}


@pytest.mark.slow
def test_privileges_follow_the_current_role(both: Both) -> None:
    assert differences(both, sequences, ("rights_super", "rights_heir")) == {}


@pytest.mark.slow
def test_privileges_follow_the_current_role_in_the_whole_matrix(both: Both) -> None:
    assert differences(both, sequences) == {}


def test_replication_is_permitted_as_in_postgresql(both: Both) -> None:
    assert differences(both, replication) == {}


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_revoked_execute_is_lost_in_an_open_transaction(postgres: Server, node: Server, isolation: str) -> None:
    outcomes = [_calls_around_revoke(server, isolation) for server in (postgres, node)]
    assert outcomes == [[[(2,)], "42501"]] * 2


def _calls_around_revoke(server: Server, isolation: str) -> list[object]:
    """Return the results of a call before and after another session revokes EXECUTE. The query locks a table, as PostgreSQL requires."""
    conninfo = server.conninfo(server.new_database())
    with psycopg.connect(conninfo, autocommit=True) as owner, psycopg.connect(conninfo, autocommit=True) as caller:
        owner.execute("CREATE TABLE t (i int); INSERT INTO t VALUES (1); GRANT SELECT ON t TO public")
        owner.execute("CREATE FUNCTION f(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN i + 1; END $$")
        owner.execute("DROP ROLE IF EXISTS f_caller; CREATE ROLE f_caller")
        caller.execute("SET SESSION AUTHORIZATION f_caller")
        caller.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        results: list[object] = [caller.execute("SELECT f(i) FROM t").fetchall()]
        owner.execute("REVOKE EXECUTE ON FUNCTION f(int) FROM public")
        with pytest.raises(psycopg.Error) as raised:
            caller.execute("SELECT f(i) FROM t")
        return [*results, raised.value.sqlstate]
