"""Errors disclose no data that the role may not read, neither in a DETAIL nor by whether a hidden row makes a statement fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import psycopg
import pytest
from tests.conftest import Server

MADE = """
CREATE ROLE tells_owner LOGIN; CREATE ROLE tells_writer LOGIN; CREATE ROLE tells_reader LOGIN; GRANT CREATE ON SCHEMA public TO tells_owner;
SET ROLE tells_owner;
CREATE TABLE t (a int PRIMARY KEY, secret text NOT NULL, b int CHECK (b < 100), u int UNIQUE);
INSERT INTO t VALUES (1, 'alpha', 1, 1), (2, 'beta', 2, 2);
GRANT INSERT ON t TO tells_writer; GRANT SELECT (a), UPDATE (b, u, secret) ON t TO tells_reader;
CREATE TABLE p (a int, secret text, b int CHECK (b < 100)) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
INSERT INTO p VALUES (1, 'alpha', 1);
GRANT SELECT (b), UPDATE (a, b), INSERT ON p TO tells_reader;
CREATE TABLE parent (a int PRIMARY KEY); INSERT INTO parent VALUES (1);
CREATE TABLE child (a int REFERENCES parent); INSERT INTO child VALUES (1);
GRANT INSERT ON child TO tells_writer; GRANT DELETE ON parent TO tells_writer;
CREATE TABLE hidden (a int PRIMARY KEY, who text, n int CHECK (n < 100), v text);
INSERT INTO hidden VALUES (1, 'tells_reader', 5, '12'), (2, 'other', 0, 'topsecret'), (3, 'tells_reader', 7, '13');
ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON hidden USING (who = current_user);
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM hidden WHERE who = current_user;
CREATE TABLE bare (a int, who text, n int, v text); INSERT INTO bare SELECT a, 'other', 0, 'topsecret' FROM generate_series(4, 40) a;
INSERT INTO bare VALUES (1, 'tells_reader', 5, '12'), (2, 'other', 0, 'topsecret'), (3, 'tells_reader', 7, '13');
CREATE TABLE veiled AS SELECT * FROM bare;
ALTER TABLE veiled ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON veiled USING (who ~ ('^' || current_user || '(?=$)'));
CREATE VIEW veil WITH (security_barrier) AS SELECT * FROM bare WHERE who ~ ('^' || current_user || '(?=$)');
GRANT ALL ON hidden, barrier, veiled, veil TO tells_reader;
RESET ROLE;
CREATE SCHEMA shut; CREATE TYPE shut.kind AS ENUM ('a'); CREATE VIEW of_kind AS SELECT 'a'::shut.kind AS k; GRANT SELECT ON of_kind TO tells_reader;
"""
NOTHING = None
TOLD = {
    ("tells_writer", "INSERT INTO t VALUES (1, 'x', 1)"): NOTHING,
    ("tells_writer", "INSERT INTO t (a, b) VALUES (9, 1)"): "Failing row contains (a, b) = (9, 1).",
    ("tells_writer", "INSERT INTO t VALUES (9, 'x', 1000)"): "Failing row contains (a, secret, b) = (9, x, 1000).",
    ("tells_writer", "INSERT INTO t SELECT 9, 'x', 1000"): "Failing row contains (a, secret, b) = (9, x, 1000).",
    ("tells_writer", "INSERT INTO child VALUES (5)"): 'Key is not present in table "parent".',
    ("tells_writer", "DELETE FROM parent"): 'Key is still referenced from table "child".',
    ("tells_reader", "UPDATE t SET b = 1000 WHERE a = 1"): "Failing row contains (a, b) = (1, 1000).",
    ("tells_reader", "UPDATE t SET secret = NULL WHERE a = 1"): "Failing row contains (a, secret) = (1, null).",
    ("tells_reader", "UPDATE t SET u = 1 WHERE a = 2"): NOTHING,
    ("tells_reader", "UPDATE p SET b = 1000"): "Failing row contains (b) = (1000).",
    ("tells_reader", "UPDATE p SET a = 500"): NOTHING,
    ("tells_reader", "INSERT INTO p VALUES (500, 'x', 1)"): NOTHING,
    ("tells_reader", "UPDATE hidden SET n = 1000 WHERE a = 1"): NOTHING,
    ("tells_reader", "INSERT INTO hidden VALUES (2, 'tells_reader', 1, '')"): NOTHING,
    ("tells_owner", "UPDATE t SET b = 1000 WHERE a = 1"): "Failing row contains (1, alpha, 1000, 1).",
    ("tells_owner", "INSERT INTO t VALUES (1, 'x', 1)"): "Key (a)=(1) already exists.",
}
SEEN = ("1 / n > -1", "1 / (CASE WHEN v = 'topsecret' THEN 0 ELSE 1 END) > 0")


Scene: TypeAlias = tuple[Server, str]


@pytest.fixture(scope="module", params=["postgres", "node"])
def scene(request: pytest.FixtureRequest, postgres: Server, node: Server) -> Iterator[Scene]:
    """A server and its database, first PostgreSQL and then the node."""
    server = {"postgres": postgres, "node": node}[request.param]
    database = server.new_database()
    server.psql(database, MADE)
    yield server, database
    for role in ("tells_reader", "tells_writer", "tells_owner"):
        server.psql(database, f"DROP OWNED BY {role} CASCADE")
        server.psql(database, f"DROP ROLE {role}")


def session(scene: Scene, user: str, **more: str) -> psycopg.Connection:
    server, database = scene
    return psycopg.connect(server.conninfo(database), user=user, autocommit=True, **more)  # type: ignore[arg-type]


def test_error_shows_only_values_that_may_be_read_or_were_given(scene: Scene) -> None:
    details = {}
    for role, statement in TOLD:
        with session(scene, role) as connection, pytest.raises(psycopg.errors.IntegrityError) as error:
            connection.execute(statement)  # type: ignore[call-overload]
        details[role, statement] = error.value.diag.message_detail
    assert details == TOLD


def test_hidden_row_makes_no_statement_fail(scene: Scene) -> None:
    """Spark must not compute a repeated term of a condition for rows that a policy hides: a division would disclose them."""
    with session(scene, "tells_reader") as connection:
        for condition in SEEN:
            for name in ("hidden", "barrier"):
                rows = connection.execute(f"SELECT a FROM {name} WHERE {condition} ORDER BY 1").fetchall()  # type: ignore[call-overload]
                assert rows == [(1,), (3,)], condition
        assert connection.execute("SELECT a FROM hidden WHERE a = 2 AND 1 / n > 0").fetchall() == []


@pytest.mark.slow
def test_policy_that_needs_python_is_evaluated_before_the_conditions_of_the_query(scene: Scene) -> None:
    """Spark's optimizer would evaluate terms without Python first: a division would disclose rows that the policy hides."""
    with session(scene, "tells_reader") as connection:
        for source in ("veiled", "veil"):
            for query in (
                f"SELECT a FROM {source} WHERE 1 / n < 5 ORDER BY 1",
                f"SELECT s.a FROM {source} s JOIN generate_series(1, 9) g ON g = s.a AND {SEEN[1]} ORDER BY 1",
                f"SELECT a FROM (SELECT a, {SEEN[0]} AS met FROM {source}) s WHERE met ORDER BY 1",
            ):
                assert connection.execute(query).fetchall() == [(1,), (3,)], query  # type: ignore[call-overload]
        assert connection.execute("UPDATE veiled SET v = '1' WHERE 1 / n > -1").rowcount == 2


def test_session_can_start_only_as_a_role_that_it_may_set(scene: Scene) -> None:
    for setting, action in (("session_authorization", "set session authorization"), ("role", "set role")):
        with pytest.raises(psycopg.OperationalError, match=f'permission denied to {action} "tells_owner"'):
            session(scene, "tells_reader", options=f"-c {setting}=tells_owner")
    with session(scene, "postgres", options="-c role=tells_reader") as connection:
        for given_back in ("SELECT 1", "RESET ROLE", "RESET ALL", "DISCARD ALL"):
            connection.execute(given_back)  # type: ignore[call-overload]
            assert connection.execute("SELECT current_user").fetchone() == ("tells_reader",), given_back
        connection.execute("SET ROLE NONE")
        assert connection.execute("SELECT current_user").fetchone() == ("postgres",)


def test_function_privileges_follow_the_acl(scene: Scene) -> None:
    query = "SELECT has_function_privilege('tells_reader', {}, 'EXECUTE')"
    with session(scene, "tells_reader") as connection:
        for function, expected in (("'pg_read_file(text)'", False), ("'lower(text)'", True), ("3293", False), ("99999999", None)):
            assert connection.execute(query.format(function)).fetchone() == (expected,), function  # type: ignore[call-overload]
        with pytest.raises(psycopg.errors.UndefinedFunction, match=r'function "nope\(int\)" does not exist'):
            connection.execute(query.format("'nope(int)'"))  # type: ignore[call-overload]


def test_view_can_use_a_type_whose_schema_the_role_may_not_use(scene: Scene) -> None:
    with session(scene, "tells_reader") as connection:
        assert connection.execute("SELECT * FROM of_kind").fetchall() == [("a",)]
        assert answered(connection, "SELECT 'a'::shut.kind") == "42501"


def answered(connection: psycopg.Connection, statement: str) -> str:
    """Return the SQLSTATE."""
    try:
        connection.execute(statement)  # type: ignore[call-overload]
    except psycopg.Error as error:
        return str(error.sqlstate)
    return "00000"


def test_excessively_long_or_deep_input_is_rejected_with_a_sqlstate(scene: Scene) -> None:
    """Python rejects integers of thousands of digits and recursion a thousand calls deep."""
    with session(scene, "tells_reader") as connection:
        for statement in ("SELECT {} > 0", "SELECT 1 LIMIT {}", "SET work_mem = {}", "SELECT date '{}-01-01'", "SELECT interval '{} days'"):
            assert answered(connection, statement.format("9" * 5000)) in ("00000", "22003", "22007", "22008", "22023"), statement
        assert answered(connection, "SELECT 'a' ~ repeat('(', 10000)") in ("2201B", "54001")
        assert answered(connection, "SELECT repeat('a', 30000) LIKE repeat('%a', 3000) || 'b'") in ("00000", "54001")
