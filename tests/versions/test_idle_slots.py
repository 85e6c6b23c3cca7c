"""idle_replication_slot_timeout (18): a slot that nobody uses is given up at a checkpoint, in the words of 18."""

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
    """What befalls a slot that is idle, while another is in use, and what is said to who comes back."""
    database = server.new_database()
    told: list[object] = []
    idle = f"{database}_idle"
    with (
        psycopg.connect(server.conninfo(database), autocommit=True) as session,
        psycopg.connect(f"{server.conninfo(database)} replication=database", autocommit=True) as sender,
    ):
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")
        session.execute(f"SELECT pg_create_logical_replication_slot('{idle}', 'pgoutput')".encode())
        time.sleep(2.5)
        session.execute("CHECKPOINT")
        told.append(session.execute(SHOWN.format(idle).encode()).fetchone())
        timeout(session, "2s")
        session.execute(f"SELECT pg_create_logical_replication_slot('{database}_fresh', 'pgoutput')".encode())
        try:
            session.execute("CHECKPOINT")
            told += [session.execute(SHOWN.format(slot).encode()).fetchone() for slot in (idle, f"{database}_fresh")]
            told.append(session.execute("SHOW idle_replication_slot_timeout").fetchone())
            for each in TOLD:
                with pytest.raises(psycopg.Error) as refused:
                    sender.execute(each.format(idle).encode())
                told.append((refused.value.sqlstate, refused.value.diag.message_primary, refused.value.diag.message_detail))
        finally:
            session.execute("ALTER SYSTEM RESET idle_replication_slot_timeout")
            session.execute("SELECT pg_reload_conf()")
            session.execute(f"SELECT pg_drop_replication_slot('{idle}'), pg_drop_replication_slot('{database}_fresh')".encode())
    found = re.search(rf'invalidating obsolete replication slot "{idle}"\n.*DETAIL: (.*)\n.*HINT: (.*)\n', server.log())
    told.append(found and [re.sub(r"time of \d+s", "time of 2s", group.strip()) for group in found.groups()])
    return [str(each).replace(database, "d") for each in told]


@pytest.mark.slow
def test_a_slot_that_nobody_uses_is_given_up(spare_node: Callable[..., Server], of_version: Callable[[int], Server]) -> None:
    assert story(spare_node(server_version="'18.1'")) == story(of_version(18))


@pytest.mark.slow
def test_a_subscriber_that_comes_back_too_late(spare_node: Callable[..., Server], postgres: Server) -> None:
    """Of a node that announces 15, over a kill behind the durable step and a restart; `headgate status` tells why."""
    lake, there = Database.new(spare_node(server_version="'15.18'")), Database.new(postgres)
    node = lake.server
    assert isinstance(node, NodeServer)
    lake.sql("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    there.sql("CREATE TABLE t (a int PRIMARY KEY)")
    subscribe(there, lake, "s", "p")
    arrived(lake, "s")
    there.sql("ALTER SUBSCRIPTION s DISABLE")
    slot = there.sql("SELECT subslotname FROM pg_subscription WHERE subname = 's'")
    node.await_release(slot)
    time.sleep(1.5)
    conf = node.data / "headgate.conf"
    before = conf.read_text()
    conf.write_text(f"{before}idle_replication_slot_timeout = 1s\nheadgate.failpoints = 'slot behind=kill'\n")
    node.headgate("reload")
    until(lambda: lake.sql("SHOW idle_replication_slot_timeout") == "1s")
    with pytest.raises(Exception, match="server closed the connection"):
        lake.sql("CHECKPOINT")
    conf.write_text(before)
    node.start()
    assert "idle_timeout" in node.headgate("status").stdout
    assert lake.sql(f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{slot}'") == "lost"
    there.sql("ALTER SUBSCRIPTION s ENABLE")
    said = f'can no longer access replication slot "{slot}"'
    until(lambda: said in node.log(), "the subscriber is not refused")
    there.unsubscribe()
    node.drop_slot(lake.name, slot)
