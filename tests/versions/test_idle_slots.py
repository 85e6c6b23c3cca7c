"""idle_replication_slot_timeout (18) invalidates an unused slot at a checkpoint, with the messages of 18."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import psycopg
import pytest
from tests.conftest import NodeServer, Server, until
from tests.system.chain import Database, arrived, subscribe

SHOWN = (
    "SELECT active, restart_lsn IS NULL, wal_status, safe_wal_size, conflicting, invalidation_reason, failover, inactive_since IS NULL"
    " FROM pg_replication_slots WHERE slot_name = '{0}'"
)
TOLD = (
    "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{0}', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')",
    "SELECT pg_replication_slot_advance('{0}', pg_current_wal_lsn())",
    "SELECT pg_copy_logical_replication_slot('{0}', '{0}_copy')",
    "ALTER_REPLICATION_SLOT {0} (FAILOVER)",
    "START_REPLICATION SLOT {0} LOGICAL 0/0 (proto_version '1', publication_names 'p')",
)


def timeout(session: psycopg.Connection[tuple[object, ...]], value: str) -> None:
    session.execute(f"ALTER SYSTEM SET idle_replication_slot_timeout = '{value}'".encode())
    session.execute("SELECT pg_reload_conf()")
    until(
        lambda: session.execute("SELECT setting <> '0' FROM pg_settings WHERE name = 'idle_replication_slot_timeout'").fetchone() == (True,)
    )


def story(server: Server) -> list[str]:
    """Return what happens to an idle slot while another one is in use, and the errors of a client that uses it again."""
    database = server.new_database()
    results: list[object] = []
    idle = f"{database}_idle"
    with (
        psycopg.connect(server.conninfo(database), autocommit=True) as session,
        psycopg.connect(f"{server.conninfo(database)} replication=database", autocommit=True) as sender,
    ):
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")
        session.execute(f"SELECT pg_create_logical_replication_slot('{idle}', 'pgoutput')".encode())
        time.sleep(2.5)
        session.execute("CHECKPOINT")
        results.append(session.execute(SHOWN.format(idle).encode()).fetchone())
        timeout(session, "2s")
        session.execute(f"SELECT pg_create_logical_replication_slot('{database}_fresh', 'pgoutput')".encode())
        try:
            session.execute("CHECKPOINT")
            results += [session.execute(SHOWN.format(slot).encode()).fetchone() for slot in (idle, f"{database}_fresh")]
            results.append(session.execute("SHOW idle_replication_slot_timeout").fetchone())
            for statement in TOLD:
                with pytest.raises(psycopg.Error) as refused:
                    sender.execute(statement.format(idle).encode())
                results.append((refused.value.sqlstate, refused.value.diag.message_primary, refused.value.diag.message_detail))
        finally:
            session.execute("ALTER SYSTEM RESET idle_replication_slot_timeout")
            session.execute("SELECT pg_reload_conf()")
            session.execute(f"SELECT pg_drop_replication_slot('{idle}'), pg_drop_replication_slot('{database}_fresh')".encode())
    log_match = re.search(rf'invalidating obsolete replication slot "{idle}"\n.*DETAIL: (.*)\n.*HINT: (.*)\n', server.log())
    results.append(log_match and [re.sub(r"time of \d+s", "time of 2s", group.strip()) for group in log_match.groups()])
    return [str(result).replace(database, "d") for result in results]


@pytest.mark.slow
def test_unused_slot_is_invalidated(spare_node: Callable[..., Server], of_version: Callable[[int], Server]) -> None:
    assert story(spare_node(server_version="'18.1'")) == story(of_version(18))


@pytest.mark.slow
def test_subscriber_of_an_invalidated_slot_is_rejected(spare_node: Callable[..., Server], postgres: Server) -> None:
    """The node announces 15, is killed after the durable step and restarted. `headgate status` shows the reason."""
    lake, downstream = Database.new(spare_node(server_version="'15.18'")), Database.new(postgres)
    node = lake.server
    assert isinstance(node, NodeServer)
    lake.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    downstream.sql("CREATE TABLE t (a int PRIMARY KEY)")
    subscribe(downstream, lake, "s", "p")
    arrived(lake, "s")
    downstream.sql("ALTER SUBSCRIPTION s DISABLE")
    slot = downstream.sql("SELECT subslotname FROM pg_subscription WHERE subname = 's'")
    node.await_release(slot)
    time.sleep(1.5)
    conf = node.data / "headgate.conf"
    conf_before = conf.read_text()
    conf.write_text(f"{conf_before}idle_replication_slot_timeout = 1s\nheadgate.failpoints = 'slot behind=kill'\n")
    node.headgate("reload")
    until(lambda: lake.sql("SHOW idle_replication_slot_timeout") == "1s")
    with pytest.raises(Exception, match="server closed the connection"):
        lake.sql("CHECKPOINT")
    conf.write_text(conf_before)
    node.start()
    assert "idle_timeout" in node.headgate("status").stdout
    assert lake.sql(f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{slot}'") == "lost"
    downstream.sql("ALTER SUBSCRIPTION s ENABLE")
    message = f'can no longer access replication slot "{slot}"'
    until(lambda: message in node.log(), "the subscriber is not rejected")
    downstream.unsubscribe()
    node.drop_slot(lake.name, slot)
