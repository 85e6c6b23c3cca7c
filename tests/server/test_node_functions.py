"""ALTER SYSTEM and the functions that act on the node or the session behave as in PostgreSQL."""

from __future__ import annotations

import pytest
from tests.conftest import SqlError


def test_alter_system_takes_effect_with_a_reload(node) -> None:
    node.psql("postgres", "ALTER SYSTEM SET wal_receiver_timeout = '7s'")
    assert node.psql("postgres", "SHOW wal_receiver_timeout") == "1min"
    assert node.psql("postgres", "SELECT pg_reload_conf(); SHOW wal_receiver_timeout") == "t\n7s"
    node.psql("postgres", "ALTER SYSTEM SET max_logical_replication_workers = 7; SELECT pg_reload_conf()")
    row = "SELECT setting <> '7', pending_restart FROM pg_settings WHERE name = 'max_logical_replication_workers'"
    assert node.psql("postgres", row) == "t|t"
    node.psql("postgres", "ALTER SYSTEM RESET max_logical_replication_workers; ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()")
    assert node.psql("postgres", f"SHOW wal_receiver_timeout; {row}") == "1min\nt|f"
    for wrong, message in (
        ("ALTER SYSTEM SET nosuch = 1", 'unrecognized configuration parameter "nosuch"'),
        ("ALTER SYSTEM SET wal_receiver_timeout = -1", "-1 ms is outside the valid range"),
        ("BEGIN; ALTER SYSTEM RESET ALL", "ALTER SYSTEM cannot run inside a transaction block"),
        ("CREATE ROLE cannot LOGIN; SET ROLE cannot; ALTER SYSTEM SET work_mem = '1MB'", 'permission denied to set parameter "work_mem"'),
    ):
        with pytest.raises(SqlError, match=message):
            node.psql("postgres", wrong)


def test_functions_with_side_effects_can_be_called_in_a_select_without_tables(node) -> None:
    output = node.psql(
        "postgres",
        """SELECT pg_replication_origin_create('mine'); SELECT pg_replication_origin_session_setup('mine');
        SELECT pg_replication_origin_session_is_setup(); SELECT pg_replication_origin_session_progress(false) IS NULL;
        SELECT pg_replication_origin_session_reset(); SELECT pg_replication_origin_session_is_setup();
        SELECT * FROM pg_stat_get_subscription_stats(1); SELECT count(*) FROM pg_stat_get_subscription(NULL);
        SELECT pg_replication_origin_drop('mine')""",
    )
    assert output.split("\n")[1:] == ["", "t", "t", "", "f", "1|0|0|", "0"]
    with pytest.raises(SqlError, match="invalid subscription OID 0"):
        node.psql("postgres", "SELECT pg_stat_reset_subscription_stats(0)")


def test_subscription_has_statistics_while_it_exists(node) -> None:
    database = node.new_database()
    node.psql(
        database,
        "CREATE PUBLICATION nothing; CREATE SUBSCRIPTION counted CONNECTION 'dbname=nowhere' PUBLICATION nothing WITH (connect = false)",
    )
    oid = node.psql(database, "SELECT oid FROM pg_subscription WHERE subname = 'counted'")
    have = f"SELECT pg_stat_have_stats('subscription', 0, {oid}), pg_stat_have_stats('subscription', {oid}, {oid})"
    assert node.psql(database, have) == "t|f"
    node.psql(database, "ALTER SUBSCRIPTION counted SET (slot_name = NONE); DROP SUBSCRIPTION counted")
    assert node.psql(database, have) == "f|f"
    others = """SELECT pg_stat_have_stats('wal', 0, 1), pg_stat_have_stats('database', d.oid, 0), pg_stat_have_stats('database', 99, 0)
        FROM pg_database d WHERE datname = current_database()"""
    assert node.psql(database, others) == "t|t|f"
    with pytest.raises(SqlError, match='invalid statistics kind: "Wal"'):
        node.psql(database, "SELECT pg_stat_have_stats('Wal', 0, 0)")


def test_role_cannot_raise_its_attributes_call_restricted_functions_or_access_server_files(node) -> None:
    node.psql("postgres", "CREATE ROLE climber LOGIN CREATEROLE; CREATE TABLE reachable (a text); GRANT ALL ON reachable TO climber")
    for statement, message in (
        ("ALTER ROLE climber SUPERUSER", "must be superuser to alter superuser roles or change superuser attribute"),
        ("ALTER ROLE climber REPLICATION", "must be superuser to alter replication roles or change replication attribute"),
        ("ALTER ROLE climber BYPASSRLS", "must be superuser to change bypassrls attribute"),
        ("CREATE ROLE other BYPASSRLS", "must be superuser to create bypassrls users"),
        ("SELECT pg_replication_origin_create('o')", "permission denied for function pg_replication_origin_create"),
        ("SELECT * FROM pg_replication_origin_session_setup('o')", "permission denied for function pg_replication_origin_session_setup"),
        ("SELECT pg_switch_wal()", "permission denied for function pg_switch_wal"),
        ("COPY reachable FROM '/x'", "must be superuser or have privileges of the pg_read_server_files role to COPY from a file"),
        ("COPY reachable TO PROGRAM 'x'", "must be superuser or have privileges of the pg_execute_server_program role"),
    ):
        with pytest.raises(SqlError, match=message):
            node.psql("postgres", f"SET ROLE climber; {statement}")
    assert node.psql("postgres", "SELECT rolsuper, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = 'climber'") == "f|f|f"


def test_pg_stat_database_shows_each_database_with_its_transactions(node) -> None:
    node.psql("postgres", "CREATE DATABASE monitored")
    query = (
        "SELECT numbackends, xact_commit, xact_rollback, deadlocks, stats_reset <= now() FROM pg_stat_database WHERE datname = 'monitored'"
    )
    assert node.psql("postgres", query) == "0|0|0|0|t"
    node.psql("monitored", "CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (1); ROLLBACK; INSERT INTO t VALUES (2)")
    assert node.psql("postgres", query.replace("numbackends, xact_commit", "xact_commit >= 2")) == "t|1|0|t"
    assert node.psql("monitored", "SELECT numbackends FROM pg_stat_database WHERE datname = current_database()") == "1"


def test_currval_and_lastval_include_the_numbers_of_an_insert(node) -> None:
    node.psql("postgres", "CREATE DATABASE numbered")
    output = node.psql(
        "numbered",
        """CREATE TABLE t (id serial, b int); CREATE TABLE u (id int GENERATED ALWAYS AS IDENTITY, b int);
        INSERT INTO t (b) VALUES (1), (2); SELECT lastval(), currval('t_id_seq'); INSERT INTO u (b) VALUES (1);
        SELECT lastval(), currval('u_id_seq'), currval('t_id_seq'); DROP TABLE t; SELECT lastval()""",
    )
    assert output == "2|2\n1|1|2\n1"
    with pytest.raises(SqlError, match="lastval is not yet defined in this session"):
        node.psql("numbered", "SELECT lastval()")
    with pytest.raises(SqlError, match="permission denied for sequence s_id_seq"):
        node.psql(
            "numbered",
            "CREATE TABLE s (id serial, b int); CREATE ROLE taker; GRANT INSERT ON s TO taker; SET ROLE taker; INSERT INTO s (b) VALUES (1)",
        )
    node.psql("numbered", "GRANT USAGE ON SEQUENCE s_id_seq TO taker; SET ROLE taker; INSERT INTO s (b) VALUES (1)")


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("SELECT lo_create(0)", r"function lo_create\(oid\) is not supported: a node has no large objects"),
        ("SELECT pg_read_file('x')", r"pg_read_file\(text\) is not supported: clients do not read the files of a node's machine"),
        ("SELECT pg_ls_dir('x')", "pg_ls_dir is not supported: clients do not read the files of a node's machine"),
        ("SELECT pg_promote()", r"pg_promote\(boolean, integer\) is not supported: a node has no physical replication"),
        (
            "CREATE TEMP TABLE t (a int); SELECT * FROM pg_sleep((SELECT a FROM t))",
            "a table in an argument of a function in FROM is not supported",
        ),
        ("SELECT txid_current_snapshot()", r"txid_current_snapshot\(\) is not supported: a node does not have it"),
        ("CREATE TABLESPACE s LOCATION '/x'", "CREATE TABLESPACE is not supported\nDETAIL:  A node keeps all its tables in one place"),
    ],
)
def test_unsupported_function_is_rejected_with_its_reason(node, statement: str, refusal: str) -> None:
    with pytest.raises(SqlError, match=refusal):
        node.psql("postgres", statement)
