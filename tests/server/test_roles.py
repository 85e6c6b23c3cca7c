"""No statement lets a role with CREATEROLE become a superuser. Roles behave on a node as on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.conftest import Server

MADE = (
    "riser LOGIN CREATEROLE", "boss SUPERUSER", "copier REPLICATION", "plain", "admin LOGIN", "team",
)  # fmt: skip
TOO_FAR = {
    "GRANT boss TO riser": "must be superuser to alter superusers",
    "GRANT postgres TO riser": "must be superuser to alter superusers",
    "REVOKE boss FROM plain": "must be superuser to alter superusers",
    "CREATE ROLE risen IN ROLE boss": "must be superuser to alter superusers",
    "CREATE ROLE risen SUPERUSER": "must be superuser to create superusers",
    "ALTER GROUP boss ADD USER riser": "must be superuser to alter superuser roles or change superuser attribute",
    "ALTER ROLE riser SUPERUSER": "must be superuser to alter superuser roles or change superuser attribute",
    "ALTER ROLE boss PASSWORD 'mine'": "must be superuser to alter superuser roles or change superuser attribute",
    "ALTER ROLE boss NOLOGIN": "must be superuser to alter superuser roles or change superuser attribute",
    "ALTER ROLE copier NOLOGIN": "must be superuser to alter replication roles or change replication attribute",
    "ALTER ROLE riser REPLICATION": "must be superuser to alter replication roles or change replication attribute",
    "ALTER ROLE riser BYPASSRLS": "must be superuser to change bypassrls attribute",
    "ALTER ROLE boss RENAME TO fallen": "must be superuser to rename superusers",
    "DROP ROLE boss": "must be superuser to drop superusers",
    "DROP ROLE plain, boss": "must be superuser to drop superusers",
}
ALLOWED = (
    "GRANT team TO plain",
    "REVOKE team FROM plain",
    "CREATE ROLE another IN ROLE team",
    "ALTER ROLE plain CREATEDB",
    "DROP ROLE another",
)


def make(server: Server) -> None:
    """Create the roles."""
    for role in MADE:
        server.psql("postgres", f"CREATE ROLE {role}")


def drop(server: Server) -> None:
    """Drop the roles."""
    for role in MADE:
        server.psql("postgres", f"DROP ROLE IF EXISTS {role.split()[0]}")


@pytest.fixture
def roles(server: Server) -> Iterator[Server]:
    """A server with the roles."""
    make(server)
    server.psql("postgres", "GRANT team TO admin WITH ADMIN OPTION; GRANT boss TO plain")
    yield server
    drop(server)


@pytest.fixture
def both(postgres: Server, node: Server) -> Iterator[tuple[Server, Server]]:
    """Both servers with the roles."""
    for server in (postgres, node):
        make(server)
    yield postgres, node
    for server in (postgres, node):
        drop(server)


def refusal(server: Server, user: str, sql: str) -> str | None:
    """Return the message of a 42501, or None if the statement succeeds."""
    with psycopg.connect(server.conninfo(user=user), autocommit=True) as session:
        try:
            session.execute(sql.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            return error.diag.message_primary
    return None


def test_createrole_cannot_become_superuser(roles: Server) -> None:
    assert {sql: refusal(roles, "riser", sql) for sql in TOO_FAR} == TOO_FAR
    assert roles.psql("postgres", "SELECT rolsuper FROM pg_roles WHERE rolname = 'riser'") == "f"
    assert roles.psql("postgres", "SELECT pg_has_role('riser', 'boss', 'MEMBER')") == "f"
    assert [refusal(roles, "riser", sql) for sql in ALLOWED] == [None] * len(ALLOWED)
    with pytest.raises(psycopg.errors.InternalError_, match="cannot have explicit members"):
        refusal(roles, "riser", "GRANT pg_database_owner TO riser")


def test_admin_option_grants_memberships_of_its_role_only(roles: Server) -> None:
    assert refusal(roles, "admin", "GRANT team TO plain") is None
    assert refusal(roles, "admin", "REVOKE team FROM plain") is None
    assert refusal(roles, "admin", "GRANT plain TO admin") == 'must have admin option on role "plain"'
    assert refusal(roles, "admin", "CREATE ROLE x") == "permission denied to create role"


WHO = "SELECT current_user, session_user, current_setting('is_superuser'), current_setting('role')"
STATES = {
    "RESET ROLE is rolled back": ["SET ROLE plain", "BEGIN", "RESET ROLE", WHO, "ROLLBACK", WHO],
    "SET ROLE is rolled back": ["BEGIN", "SET ROLE plain", WHO, "ROLLBACK", WHO],
    "SET LOCAL ROLE ends with its transaction": ["BEGIN", "SET LOCAL ROLE plain", WHO, "COMMIT", WHO],
    "a savepoint": ["BEGIN", "SAVEPOINT s", "SET ROLE plain", WHO, "ROLLBACK TO s", WHO, "SET ROLE team", "COMMIT", WHO],
    "DISCARD ALL": ["SET ROLE plain", "DISCARD ALL", WHO, "SET SESSION AUTHORIZATION plain", "DISCARD ALL", WHO],
    "RESET ALL keeps the role": ["SET ROLE plain", "RESET ALL", WHO],
    "set_config": ["SELECT set_config('role', 'plain', false)", WHO, "SELECT set_config('role', 'none', false)", WHO],
    "set_config that is local to a transaction": ["BEGIN", "SELECT set_config('role', 'plain', true)", WHO, "COMMIT", WHO],
    "set_config before a privilege check in the same query": [
        f"SELECT set_config('role', 'plain', false), {WHO[7:]}",
        f"SELECT current_user, {WHO[7:]}",
    ],
    "set_config between": [
        f"SELECT current_user, set_config('role', 'plain', false), current_user, set_config('role', 'none', false), {WHO[7:]}"
    ],
    "set_config of a role without membership": [
        "SELECT set_config('a.b', 'x', false), current_setting('a.b'), set_config('search_path', 'pg_catalog', false), current_schema"
    ],
    "set_config of a missing role": ["SELECT set_config('role', 'nobody', false)", WHO],
    "several statements in one message": [f"BEGIN; SET LOCAL ROLE plain; COMMIT; {WHO}", f"SET ROLE plain; {WHO}"],
    "an error undoes SET ROLE": ["BEGIN", "SET ROLE plain", "SELECT 1/0", "ROLLBACK", WHO],
    "session authorization": ["SET SESSION AUTHORIZATION riser", WHO, "SET ROLE boss", "RESET SESSION AUTHORIZATION", WHO],
    "SET SESSION AUTHORIZATION is rolled back": ["BEGIN", "SET SESSION AUTHORIZATION plain", WHO, "ROLLBACK", WHO],
    "SET LOCAL SESSION AUTHORIZATION": ["BEGIN", "SET LOCAL SESSION AUTHORIZATION plain", WHO, "COMMIT", WHO],
    "privileges follow the role": [
        "BEGIN",
        "SET LOCAL ROLE team",
        "CREATE ROLE x",
        "ROLLBACK",
        "SET ROLE team",
        "CREATE ROLE x",
        "RESET ROLE",
    ],
}


@pytest.mark.parametrize("name", STATES)
def test_current_role_follows_from_the_settings(both: tuple[Server, Server], name: str) -> None:
    answers_of_servers = []
    for server in both:
        answers: list[object] = []
        with psycopg.connect(server.conninfo(), autocommit=True) as session:
            for sql in STATES[name]:
                try:
                    cursor = session.execute(sql.encode())
                    while cursor.nextset():
                        pass
                    answers.append(cursor.fetchall() if cursor.description else "done")
                except psycopg.Error as error:
                    answers.append(error.sqlstate)
        answers_of_servers.append(answers)
    assert answers_of_servers[1] == answers_of_servers[0]


def test_reused_name_of_a_renamed_role_gives_a_session_no_privileges(roles: Server) -> None:
    with psycopg.connect(roles.conninfo(user="admin"), autocommit=True) as session:
        session.execute("SELECT 1")
        roles.psql("postgres", "ALTER ROLE admin RENAME TO other; CREATE ROLE admin SUPERUSER")
        try:
            assert session.execute("SELECT current_user, session_user").fetchone() == ("other", "other")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("SELECT rolpassword FROM pg_authid")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("CREATE ROLE x")
        finally:
            roles.psql("postgres", "DROP ROLE admin; ALTER ROLE other RENAME TO admin")


def test_role_loses_superuser_privileges_in_its_open_sessions(roles: Server) -> None:
    roles.psql("postgres", "ALTER ROLE admin SUPERUSER")
    with psycopg.connect(roles.conninfo(user="admin"), autocommit=True) as session:
        session.execute("SELECT rolpassword FROM pg_authid")
        roles.psql("postgres", "ALTER ROLE admin NOSUPERUSER")
        for sql in ("SELECT rolpassword FROM pg_authid", "ALTER SYSTEM SET work_mem = '5MB'", "SET log_statement = 'all'", "CREATE ROLE x"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(sql.encode())


def test_role_in_the_start_up_options_is_checked(roles: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match='permission denied to set role "boss"'):
        psycopg.connect(roles.conninfo(user="riser", options="'-c role=boss'"))
    with psycopg.connect(roles.conninfo(user="admin", options="'-c role=team'")) as session:
        assert session.execute("SELECT current_user, session_user").fetchone() == ("team", "admin")


ASKED = (
    "SELECT has_table_privilege('plain', 'hidden', 'SELECT'), has_table_privilege('plain', 'shown', 'SELECT')",
    "SELECT has_table_privilege('plain'::name, 'hidden'::regclass, 'SELECT'::text), has_table_privilege('boss', 'hidden', 'SELECT')",
    "SELECT has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = 'plain'), 'hidden', 'SEL' || 'ECT')",
    "SELECT has_any_column_privilege('plain', 'hidden', 'SELECT'), has_column_privilege('plain', 'hidden', 'a', 'SELECT')",
    "SELECT has_schema_privilege('plain', 'public', 'CREATE'), has_database_privilege('plain', current_database(), 'CREATE')",
    "SELECT has_sequence_privilege('plain', 'counted', 'USAGE'), pg_has_role('plain', 'boss', 'MEMBER'), pg_has_role('plain', 'team', 'MEMBER')",
    "SELECT pg_has_role('plain'::name, 'boss'::name, 'USAGE'), pg_has_role('admin', 'team', 'USAGE')",
    "SELECT has_table_privilege('nobody', 'hidden', 'SELECT')",
    "SELECT has_table_privilege('plain', 'hidden', 'READ')",
    "SELECT a, has_table_privilege('plain', 'hidden', 'SELECT') FROM shown",
    "SELECT relname, has_table_privilege('plain', oid, 'SELECT') FROM pg_class WHERE relname IN ('hidden', 'shown') ORDER BY 1",
    "SELECT has_function_privilege('plain', 'now()', 'EXECUTE'), has_tablespace_privilege('plain', 'pg_default', 'CREATE')",
)


def test_privilege_functions_answer_as_in_postgresql(both: tuple[Server, Server]) -> None:
    answers_of_servers = []
    for server in both:
        answers = []
        server.psql("postgres", "GRANT team TO admin")
        database = server.new_database()
        server.psql(
            database, "CREATE TABLE hidden (a int); CREATE TABLE shown (a int); INSERT INTO shown VALUES (1); CREATE SEQUENCE counted"
        )
        server.psql(database, "GRANT SELECT ON shown TO plain")
        with psycopg.connect(server.conninfo(database), autocommit=True) as session:
            for sql in ASKED:
                try:
                    answers.append(session.execute(sql.encode()).fetchall())
                except psycopg.Error as error:
                    answers.append([(str(error.sqlstate),)])
        server.psql(database, "DROP TABLE shown")
        answers_of_servers.append(answers)
    assert answers_of_servers[1] == answers_of_servers[0]
    assert answers_of_servers[1][0] == [(False, True)]


def test_members_of_a_role_and_of_pg_signal_backend_can_terminate_its_sessions(roles: Server) -> None:
    for role in ("worker LOGIN", "colleague LOGIN IN ROLE worker", "ender LOGIN IN ROLE pg_signal_backend", "stranger LOGIN"):
        roles.psql("postgres", f"CREATE ROLE {role}")
    try:
        refusals = {}
        for target in ("worker", "postgres"):
            with psycopg.connect(roles.conninfo(user=target), autocommit=True) as session:
                for member_name in ("stranger", "ender", "colleague", "worker"):
                    refusals[target, member_name] = refusal(roles, member_name, f"SELECT pg_terminate_backend({session.info.backend_pid})")
        member = "must be a member of the role whose process is being terminated or member of pg_signal_backend"
        superuser = "must be a superuser to terminate superuser process"
        expected = {("worker", member_name): None for member_name in ("ender", "colleague", "worker")} | {("worker", "stranger"): member}
        assert refusals == expected | {("postgres", member_name): superuser for member_name in ("stranger", "ender", "colleague", "worker")}
    finally:
        roles.psql("postgres", "DROP ROLE worker, colleague, ender, stranger")
