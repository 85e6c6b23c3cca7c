"""Sessions of a running node behave as psql and psycopg expect: authentication, transactions, prepared statements, cursors, cancelling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.conftest import Server, SqlError

ENDLESS = "SELECT count(*) FROM pg_proc a, pg_proc b, pg_proc c WHERE a.proname || b.proname > c.proname"


@pytest.fixture
def connect(node: Any) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    connections: list[psycopg.Connection[Any]] = []

    def open_one(**more: Any) -> psycopg.Connection[Any]:
        autocommit = more.pop("autocommit", True)
        connections.append(psycopg.connect(node.conninfo(more.pop("dbname", "postgres"), **more), autocommit=autocommit))
        return connections[-1]

    yield open_one
    for connection in connections:
        connection.close()


def value(connection: psycopg.Connection[Any], query: str, *parameters: Any, **options: Any) -> Any:
    row = connection.execute(sql.SQL(query), parameters or None, **options).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row[0]


def test_parameters_are_bound_in_text_and_binary(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect()
    assert value(connection, "SELECT %s::int + 1", 41) == 42
    assert value(connection, "SELECT %b::int8", 2**40) == 2**40
    assert value(connection, "SELECT %s::text", "ü'x") == "ü'x"
    assert value(connection, "SELECT 7::int8", binary=True) == 7
    assert value(connection, "SELECT 'a'::text WHERE %s", True) == "a"


def test_settings_are_undone_with_their_transaction(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect(autocommit=False)
    connection.execute("SET timezone = 'Asia/Tokyo'")
    assert value(connection, "SHOW timezone") == "Asia/Tokyo"
    connection.rollback()
    assert value(connection, "SHOW timezone") == "UTC"
    connection.execute("SET LOCAL timezone = 'Asia/Tokyo'")
    connection.commit()
    assert value(connection, "SHOW timezone") == "UTC"
    connection.execute("SELECT set_config('application_name', 'x', false)")
    connection.commit()
    assert value(connection, "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()") == "x"


def test_rollback_to_a_savepoint_restores_a_failed_transaction(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect(autocommit=False)
    connection.execute("SAVEPOINT s")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM nosuch")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        connection.execute("SELECT 1")
    connection.execute("ROLLBACK TO s")
    assert value(connection, "SELECT 1") == 1
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
        connection.execute("RELEASE nosuch")


def test_prepared_statements_of_sql_and_of_the_protocol_share_their_names(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect()
    connection.execute("PREPARE add (int, int) AS SELECT $1 + $2")
    assert value(connection, "EXECUTE add (1 + 1, '40')") == 42
    with pytest.raises(psycopg.errors.DuplicatePreparedStatement):
        connection.execute("PREPARE add AS SELECT 1")
    with pytest.raises(psycopg.errors.SyntaxError, match="wrong number of parameters"):
        connection.execute("EXECUTE add (1)")
    connection.execute("DEALLOCATE add")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.execute("EXECUTE add (1, 2)")


def test_prepared_statements_with_parameters_are_listed(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    session = connect()
    session.execute("SELECT %s::int2, %s::text", [1, "x"], prepare=True)
    listed = "SELECT count(*) FROM pg_prepared_statements WHERE cardinality(parameter_types) = 2"
    assert value(session, listed) == 1
    assert (
        value(session, "SELECT parameter_types::text FROM pg_prepared_statements WHERE cardinality(parameter_types) = 2")
        == "{smallint,text}"
    )


@pytest.mark.parametrize(
    "alteration",
    ["ALTER b TYPE text", *(pytest.param(alteration, marks=pytest.mark.slow) for alteration in ("ADD c int", "RENAME b TO d"))],
)
def test_prepared_statement_whose_columns_have_changed_is_rejected(server: Server, alteration: str) -> None:
    database = server.new_database()
    with psycopg.connect(server.conninfo(database), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        session.execute("PREPARE s AS SELECT * FROM t")
        ask = lambda: session.execute("SELECT * FROM t WHERE a = %s", [1], prepare=True).fetchall()  # noqa: E731
        write = lambda: session.execute("UPDATE t SET a = a WHERE a = %s", [1], prepare=True).statusmessage  # noqa: E731
        assert (ask(), write()) == ([], "UPDATE 0")
        server.psql(database, f"ALTER TABLE t {alteration}")  # psycopg prepares again after an ALTER in the same session
        for again in (ask, lambda: session.execute("EXECUTE s")):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan must not change result type"):
                again()
        assert write() == "UPDATE 0"


def test_cursor_moves_forward_and_a_scrollable_one_backward(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect()
    with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
        connection.execute("DECLARE c CURSOR FOR SELECT 1")
    with connection.transaction():
        connection.execute("DECLARE c NO SCROLL CURSOR FOR VALUES (1), (2), (3)")
        assert connection.execute("FETCH 2 FROM c").fetchall() == [(1,), (2,)]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState), connection.transaction():
            connection.execute("FETCH PRIOR FROM c")
        connection.execute("DECLARE s SCROLL CURSOR FOR VALUES (1), (2), (3)")
        assert connection.execute("FETCH ALL FROM s").fetchall() == [(1,), (2,), (3,)]
        assert connection.execute("FETCH BACKWARD 2 FROM s").fetchall() == [(3,), (2,)]
        assert connection.execute("FETCH FIRST FROM s").fetchall() == [(1,)]
        assert connection.execute("MOVE 1 IN s").statusmessage == "MOVE 1"
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute("FETCH 1 FROM c")


@pytest.mark.parametrize("statement", ["SELECT pg_sleep(60)", ENDLESS], ids=["function", "catalog"])
def test_cancel_and_timeout_stop_the_statement_and_not_the_session(connect: Callable[..., psycopg.Connection[Any]], statement: str) -> None:
    connection = connect()
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        connection.execute(f"SET LOCAL statement_timeout = '200ms'; {statement}".encode())
    administrator = connect()
    cancelled = threading.Event()

    def cancel() -> None:
        while not cancelled.is_set():
            administrator.execute("SELECT pg_cancel_backend(%s::int)", [connection.info.backend_pid])
            cancelled.wait(0.1)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
        connection.execute(statement)
    cancelled.set()
    canceller.join()
    assert value(connection, "SELECT 1") == 1


@pytest.mark.parametrize("milliseconds", [1, 10, 30, 60])
def test_timeout_during_the_translation_of_a_query_takes_effect(connect: Callable[..., psycopg.Connection[Any]], milliseconds: int) -> None:
    connection, watcher = connect(), connect()
    connection.execute(f"SET statement_timeout = {milliseconds}")
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        connection.execute(ENDLESS)
    assert value(watcher, "SELECT state FROM pg_stat_activity WHERE pid = %s::int", connection.info.backend_pid) == "idle"


@pytest.mark.slow
def test_timeout_set_in_a_simple_query_applies_to_the_rest_of_it(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    connection = connect()
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        connection.execute("SET statement_timeout = '200ms'; SELECT pg_sleep(60)")
    connection.execute("SET statement_timeout = '2s'")
    connection.execute("SELECT pg_sleep(0.8); SELECT pg_sleep(0.8); SELECT pg_sleep(0.8)")


def test_terminated_backend_reports_the_reason_and_exits(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    victim, terminator = connect(), connect()
    pid = victim.info.backend_pid
    assert value(terminator, "SELECT pg_terminate_backend(%s::int, 5000)", pid) is True
    with pytest.raises(psycopg.OperationalError):
        victim.execute("SELECT 1")
    assert value(terminator, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s::int", pid) == 0


@pytest.mark.slow
def test_connection_limit_is_enforced_as_in_postgresql(spare_node: Any) -> None:
    server = spare_node(max_connections="3")
    connections = [psycopg.connect(server.conninfo()) for _ in range(3)]
    with pytest.raises(psycopg.OperationalError, match="sorry, too many clients already"):
        psycopg.connect(server.conninfo())
    for connection in connections:
        connection.close()


@pytest.mark.slow
def test_passwords_are_requested_and_checked(spare_node: Any) -> None:
    server = spare_node()
    server.psql("postgres", "CREATE ROLE alice LOGIN PASSWORD 'wonder'; CREATE ROLE asked LOGIN")
    lines = ["host all postgres all trust", "host all alice,asked all scram-sha-256", "host x all all trust", ""]
    (server.data / "pg_hba.conf").write_text("\n".join(lines))
    server.psql("postgres", "SELECT pg_reload_conf()")
    with psycopg.connect(server.conninfo(user="alice", password="wonder")) as connection:
        assert value(connection, "SELECT current_user") == "alice"
    for user, password in (("alice", "wrong"), ("asked", "any")):
        with pytest.raises(psycopg.OperationalError, match=f'password authentication failed for user "{user}"'):
            psycopg.connect(server.conninfo(user=user, password=password))
    with pytest.raises(
        psycopg.OperationalError, match=r'no pg_hba\.conf entry for host "127\.0\.0\.1", user "eve", database "postgres", no encryption'
    ):
        psycopg.connect(server.conninfo(user="eve"))
    assert "wonder" not in server.log()
    server.psql("postgres", "DROP ROLE alice, asked")


def test_on_conflict_do_update_checks_privileges_on_the_root(server: Server) -> None:
    database = server.new_database()
    role = f"upserter_{database}"
    upsert = f"SET ROLE {role}; INSERT INTO r VALUES (1, {{}}) ON CONFLICT (a) {{}}"
    server.psql(
        database,
        f"""CREATE TABLE r (a int PRIMARY KEY, b int) PARTITION BY LIST (a); CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1);
        CREATE ROLE {role}; GRANT INSERT, SELECT ON r TO {role}""",
    )
    server.psql(database, upsert.format(1, "DO NOTHING"))
    with pytest.raises(SqlError, match=r"permission denied for table r\b"):
        server.psql(database, upsert.format(1, "DO UPDATE SET b = 2"))
    server.psql(database, f"GRANT UPDATE (b) ON r TO {role}")
    server.psql(database, upsert.format(1, "DO UPDATE SET b = 2"))
    with pytest.raises(SqlError, match=r"permission denied for table r\b"):
        server.psql(database, upsert.format(1, "DO UPDATE SET a = 3"))
    assert server.psql(database, "SELECT * FROM r") == "1|2"
    server.psql(database, f"DROP OWNED BY {role}; DROP ROLE {role}")
