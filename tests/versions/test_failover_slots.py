"""A node's slots have the features of 17 and 18: the flag `failover`, ALTER_REPLICATION_SLOT and the columns of pg_replication_slots."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import psycopg
import pytest
from tests.conftest import NodeServer, Server, until
from tests.system.chain import Database, arrived, subscribe

FLAGS = "SELECT failover, synced, two_phase, invalidation_reason IS NULL, conflicting FROM pg_replication_slots WHERE slot_name = '{}'"
COLUMNS = "SELECT * FROM pg_replication_slots WHERE false"

SAID = (
    "CREATE_REPLICATION_SLOT {0}_a LOGICAL pgoutput (FAILOVER, SNAPSHOT 'nothing')",
    "CREATE_REPLICATION_SLOT {0}_b LOGICAL pgoutput (TWO_PHASE, FAILOVER false, SNAPSHOT 'nothing')",
    "CREATE_REPLICATION_SLOT {0}_c LOGICAL pgoutput (FAILOVER, FAILOVER)",
    "CREATE_REPLICATION_SLOT {0}_c LOGICAL pgoutput (FAILOVER 'perhaps')",
    "CREATE_REPLICATION_SLOT {0}_c LOGICAL pgoutput (FAILOVER 7)",
    "CREATE_REPLICATION_SLOT {0}_c LOGICAL pgoutput FAILOVER",
    "CREATE_REPLICATION_SLOT {0}_c PHYSICAL (FAILOVER)",
    "CREATE_REPLICATION_SLOT {0}_c TEMPORARY LOGICAL pgoutput (FAILOVER, SNAPSHOT 'nothing')",
    "CREATE_REPLICATION_SLOT {0}_t TEMPORARY LOGICAL pgoutput (SNAPSHOT 'nothing')",
    "ALTER_REPLICATION_SLOT {0}_t ( FAILOVER false, TWO_PHASE true )",
    "ALTER_REPLICATION_SLOT {0}_t ( FAILOVER )",
    "ALTER_REPLICATION_SLOT {0}_a ( FAILOVER false );",
    "ALTER_REPLICATION_SLOT {0}_a ( TWO_PHASE );",
    "ALTER_REPLICATION_SLOT {0}_b ( FAILOVER 'on', TWO_PHASE 'off' );",
    "ALTER_REPLICATION_SLOT {0}_b ( FAILOVER 2 )",
    "ALTER_REPLICATION_SLOT {0}_b ( FAILOVER, FAILOVER )",
    "ALTER_REPLICATION_SLOT {0}_b ( TWO_PHASE, FAILOVER, TWO_PHASE )",
    "ALTER_REPLICATION_SLOT {0}_b ( SNAPSHOT 'nothing' )",
    "ALTER_REPLICATION_SLOT {0}_b ( FAILOVER 'maybe' )",
    "ALTER_REPLICATION_SLOT {0}_b ( )",
    "ALTER_REPLICATION_SLOT {0}_b",
    "ALTER_REPLICATION_SLOT {0}_b FAILOVER",
    "ALTER_REPLICATION_SLOT ( FAILOVER )",
    "ALTER_REPLICATION_SLOT {0}_b ( FAILOVER ) LOGICAL",
    "ALTER_REPLICATION_SLOT {0}_missing ( FAILOVER )",
    'ALTER_REPLICATION_SLOT "" ( FAILOVER )',
    "SELECT slot_name::text FROM pg_create_logical_replication_slot('{0}_c', 'pgoutput', false, true, true)",
    "SELECT slot_name::text FROM pg_create_logical_replication_slot('{0}_d', 'pgoutput', failover => true)",
    "SELECT slot_name::text FROM pg_create_logical_replication_slot('{0}_e', 'pgoutput', true, failover => true)",
    "SELECT slot_name::text FROM pg_copy_logical_replication_slot('{0}_d', '{0}_e')",
    "SELECT pg_sync_replication_slots()",
    *(FLAGS.replace("{}", "{0}_" + letter) for letter in "abcde"),
)


def answers(server: Server, statements: tuple[str, ...] = SAID) -> list[str]:
    """Return the server's results of the commands, which run over one replication connection."""
    database = server.new_database()
    results: list[object] = []
    with psycopg.connect(f"{server.conninfo(database)} replication=database", autocommit=True, prepare_threshold=None) as session:
        for statement in statements:
            try:
                result = session.execute(statement.format(database).encode())
                results.append(
                    [row[:1] if "REPLICATION_SLOT" in statement else row for row in result.fetchall()] if result.description else "done"
                )
            except psycopg.Error as error:
                results.append((error.sqlstate, error.diag.message_primary, error.diag.message_detail))
        for (name,) in session.execute(
            f"SELECT slot_name FROM pg_replication_slots WHERE database = '{database}' AND NOT temporary".encode()
        ):
            session.execute(f'DROP_REPLICATION_SLOT "{name}"'.encode())
    return [f"{statement}: {result}".replace(database, "d") for statement, result in zip(statements, results, strict=True)]


@pytest.mark.slow
def test_commands_on_failover_slots_answer_as_in_postgresql_18(
    spare_node: Callable[..., Server], of_version: Callable[[int], Server]
) -> None:
    assert answers(spare_node(server_version="'18.1'")) == answers(of_version(18))


def test_node_that_announces_15_accepts_the_commands(node: Server, postgres: Server) -> None:
    results = answers(node, tuple(statement for statement in SAID if "synced" not in statement))
    assert results[0].endswith("_a',)]")
    assert results[11].endswith("done")
    assert node.psql("postgres", COLUMNS, "-A") == postgres.psql("postgres", COLUMNS, "-A")


@pytest.mark.slow
@pytest.mark.parametrize("version", [16, 17, 18])
def test_columns_of_slots_are_those_of_the_announced_version(
    spare_node: Callable[..., Server], of_version: Callable[[int], Server], version: int
) -> None:
    lake = spare_node(server_version=f"'{version}.1'")
    assert lake.psql("postgres", COLUMNS, "-A") == of_version(version).psql("postgres", COLUMNS, "-A")
    with psycopg.connect(lake.conninfo()) as session:  # described before it runs
        cursor = session.execute("SELECT * FROM pg_replication_slots s LEFT JOIN pg_database d ON d.oid = s.datoid", prepare=True)
        assert cursor.description is not None
        assert "conflicting" in [column.name for column in cursor.description]


@pytest.mark.slow
@pytest.mark.parametrize("version", [17, 18])
def test_failover_option_of_a_subscription_sets_the_flag_of_its_slot(
    spare_node: Callable[..., Server], of_version: Callable[[int], Server], version: int
) -> None:
    lake, downstream = Database.new(spare_node(server_version=f"'{version}.1'")), Database.new(of_version(version))
    lake.sql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION p FOR TABLE t")
    downstream.sql("CREATE TABLE t (a int PRIMARY KEY)")
    subscribe(downstream, lake, "s", "p", "failover = true")
    flag = "SELECT failover, inactive_since IS NULL, invalidation_reason FROM pg_replication_slots WHERE database = current_database()"
    lake.wait(flag, "t|t|")
    lake.server.restart()
    lake.sql("INSERT INTO t VALUES (2)")
    arrived(lake, "s")
    assert lake.sql(flag) == "t|t|"
    downstream.sql("ALTER SUBSCRIPTION s DISABLE")
    lake.wait(flag, "t|f|")
    downstream.sql("ALTER SUBSCRIPTION s SET (failover = false)")
    assert lake.sql(flag) == "f|f|"
    downstream.sql("ALTER SUBSCRIPTION s SET (failover = true); ALTER SUBSCRIPTION s ENABLE")
    lake.sql("INSERT INTO t VALUES (3)")
    arrived(lake, "s")
    assert (lake.sql(flag), downstream.sql("SELECT count(*) FROM t")) == ("t|t|", "3")
    downstream.unsubscribe()


def test_slot_in_use_is_altered_after_its_release(node: Server) -> None:
    lake = Database.new(node)
    lake.sql("CREATE PUBLICATION p FOR ALL TABLES")
    slot = f"{lake.name}_kept"
    with (
        psycopg.connect(f"{lake.conninfo} replication=database", autocommit=True) as walsender,
        psycopg.connect(f"{lake.conninfo} replication=database", autocommit=True) as owner,
    ):
        walsender.execute(f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput".encode())
        reader = walsender.pgconn
        reader.send_query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode())
        until(lambda: lake.sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") == "t")
        owner.execute("SET statement_timeout = '1s'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            owner.execute(f"ALTER_REPLICATION_SLOT {slot} (FAILOVER)".encode())
        owner.execute("SET statement_timeout = 0")
        altered = threading.Thread(target=lambda: owner.execute(f"ALTER_REPLICATION_SLOT {slot} (FAILOVER)".encode()))
        altered.start()
        reader.finish()
        altered.join(60)
        assert not altered.is_alive()
        owner.execute(f"CREATE_REPLICATION_SLOT {lake.name}_mine TEMPORARY LOGICAL pgoutput".encode())
        with (
            psycopg.connect(f"{lake.conninfo} replication=database", autocommit=True) as third,
            pytest.raises(psycopg.errors.ObjectInUse, match="is active for PID"),
        ):
            third.execute(f"ALTER_REPLICATION_SLOT {lake.name}_mine (FAILOVER false)".encode())
    lake.server.drop_slot(lake.name, slot)


@pytest.mark.slow
@pytest.mark.parametrize(("side", "altered"), [("before", "f"), ("behind", "t")])
def test_kill_while_a_slot_is_altered_leaves_the_old_or_the_new_state(spare_node: Callable[..., Server], side: str, altered: str) -> None:
    lake = spare_node(server_version="'17.1'")
    assert isinstance(lake, NodeServer)
    with psycopg.connect(lake.conninfo(replication="database"), autocommit=True) as session:
        session.execute("CREATE_REPLICATION_SLOT killed LOGICAL pgoutput")
        conf = lake.data / "headgate.conf"
        conf_before = conf.read_text()
        conf.write_text(f"{conf_before}headgate.failpoints = 'slot {side}=kill'\n")
        lake.headgate("reload")
        until(lambda: session.execute("SELECT current_setting('headgate.failpoints', true)").fetchone() != (None,))
        with contextlib.suppress(psycopg.Error):
            session.execute("ALTER_REPLICATION_SLOT killed (FAILOVER)")
    conf.write_text(conf_before)
    lake.start()
    assert lake.psql("postgres", "SELECT failover FROM pg_replication_slots WHERE slot_name = 'killed'") == altered
    lake.drop_slot("postgres", "killed")
