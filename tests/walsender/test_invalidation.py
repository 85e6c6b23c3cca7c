"""A checkpoint invalidates a slot that needs more than max_slot_wal_keep_size, also while it is read, as in PostgreSQL."""

from __future__ import annotations

import functools
import subprocess

import psycopg
from tests import conftest
from tests.conftest import PG_BIN, Server

until = functools.partial(conftest.until, seconds=60)

SHOWN = (
    "SELECT active, active_pid, restart_lsn, confirmed_flush_lsn IS NOT NULL, wal_status, safe_wal_size"
    " FROM pg_replication_slots WHERE slot_name = '{}'"
)
READ = "SELECT count(*) FROM pg_logical_slot_get_binary_changes('{}', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"


def refused(session: psycopg.Connection[tuple[object, ...]], sql: str) -> tuple[object, ...]:
    """Return the server's error message."""
    try:
        session.execute(sql.encode())
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_detail
    raise AssertionError(sql)


def story(server: Server) -> list[object]:
    """Return what happens to an idle slot and to one that is being read."""
    database = server.new_database()
    results: list[object] = []
    with psycopg.connect(server.conninfo(database), autocommit=True) as session:
        session.execute("CREATE TABLE t (a int, b text); CREATE PUBLICATION p FOR TABLE t")
        idle, read = f"{database}_idle", f"{database}_read"
        for slot in (idle, read):
            session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        options = ["--start", "-f", "/dev/null", "-n", "-F", "0", "-s", "0", "-o", "proto_version=1", "-o", "publication_names=p"]
        reader = subprocess.Popen(
            [PG_BIN / "pg_recvlogical", "-S", read, "-d", server.conninfo(database), *options], stderr=subprocess.PIPE, text=True
        )
        try:
            until(lambda: session.execute(SHOWN.format(read).encode()).fetchone()[0] is True)  # type: ignore[index]
            session.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
            session.execute("SELECT pg_reload_conf()")
            until(lambda: session.execute("SHOW max_slot_wal_keep_size").fetchone() == ("1MB",))
            for _ in range(4):
                session.execute("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 30000) g")
                session.execute("SELECT pg_switch_wal()")
            session.execute("CHECKPOINT")
            until(lambda: session.execute(SHOWN.format(read).encode()).fetchone()[4] == "lost")  # type: ignore[index]
            results += [session.execute(SHOWN.format(slot).encode()).fetchone() for slot in (idle, read)]
            results.append("terminating connection due to administrator command" in reader.communicate(timeout=60)[1])
            results += [refused(session, READ.format(slot)) for slot in (idle, read)]
            results.append(refused(session, f"SELECT pg_replication_slot_advance('{idle}', pg_current_wal_lsn())"))
            results.append(refused(session, f"SELECT pg_copy_logical_replication_slot('{idle}', '{database}_copy')"))
        finally:
            reader.kill()
            session.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            session.execute("SELECT pg_reload_conf()")
            for slot in (idle, read):
                session.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    return [str(result).replace(database, "d") for result in results]


def test_slot_that_needs_too_much_wal_is_invalidated(postgres: Server, node: Server) -> None:
    assert story(node) == story(postgres)
