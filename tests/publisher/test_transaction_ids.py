"""Transaction ids beyond 2^32 work. The protocol carries their lower 32 bits, and streams continue past that limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import psycopg
import pytest
from tests.conftest import NodeServer, Server, _Farm, until
from tests.publisher import slots

from headgate.pgoutput import message as m
from headgate.pgoutput.codec import read, write

TABLES = "CREATE TABLE t (a int PRIMARY KEY, b text);"
FEW = 4
"""The number of transaction ids that are left below 2^32."""
WORK = [
    "INSERT INTO t VALUES (1, 'x')", "UPDATE t SET b = 'y'", "INSERT INTO t VALUES (2, 'z')", "DELETE FROM t WHERE a = 1",
    "BEGIN; INSERT INTO t SELECT g, repeat('x', 2000) FROM generate_series(10, 200) g; COMMIT",
    "BEGIN; INSERT INTO t VALUES (3, 'p'); SAVEPOINT s; INSERT INTO t VALUES (4, 'p'); PREPARE TRANSACTION '{gid}'",
]  # fmt: skip


@pytest.fixture(scope="module")
def old_node(_session_farm: _Farm) -> Iterator[Server]:
    """A node that has assigned nearly 2^32 transaction ids."""
    node = _session_farm.make(NodeServer, start=False)
    with duckdb.connect(str(node.data / "catalog.duckdb")) as catalog:
        catalog.execute("INSERT INTO hg.counter VALUES ('xid', ?)", [2**32 - FEW - 1])
    node.start()
    yield node
    node.stop("immediate")


def numbers(server: Server, database: str, slot: str) -> list[int]:
    """Return the distinct xids in the slot's messages."""
    sql = f"""SELECT DISTINCT xid::text::bigint FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, NULL, 'proto_version', '1',
        'publication_names', 'p') ORDER BY 1"""
    return [int(xid) for xid in server.psql(database, sql).split()]


@pytest.mark.slow
def test_stream_continues_after_four_billion_transactions(postgres: Server, old_node: Server) -> None:
    streams = []
    for server in (postgres, old_node):
        database = server.new_database()
        gid = f"{database}_g"
        server.psql(database, TABLES + "CREATE PUBLICATION p FOR TABLE t")
        slot, streamed = slots.make(server, database, "whole"), slots.make(server, database, "streamed", two_phase=True)
        for sql in WORK:
            server.psql(database, sql.format(gid=gid))
        prepared = server.psql(database, f"SELECT gid = '{gid}' FROM pg_prepared_xacts WHERE transaction <> 0 AND gid = '{gid}'")
        server.psql(database, f"COMMIT PREPARED '{gid}'")
        if server is old_node:
            assert int(server.psql(database, "SELECT txid_current()")) > 2**32
            xids = numbers(server, database, slot)
            assert min(xids) >= 3, "the first three xids are reserved"
            assert min(xids) < 2**16
            assert max(xids) > 2**32 - 2**16
        small = "SET logical_decoding_work_mem = '64kB';"
        messages = slots.messages(server, database, streamed, "p", small, streaming="on")
        rows = sorted(re.sub(r" x\d+", "", message) for message in messages if message.startswith(("Insert", "Update", "Delete")))
        streams.append((prepared, slots.messages(server, database, slot), rows))
        server.psql(database, f"SELECT pg_drop_replication_slot('{slot}'), pg_drop_replication_slot('{streamed}')")
        assert any(message.startswith("StreamStart") for message in messages)
    assert streams[1] == streams[0]


@pytest.mark.slow
def test_postgresql_can_subscribe_to_a_node_with_more_than_four_billion_transactions(postgres: Server, old_node: Server) -> None:
    source, target = old_node.new_database(), postgres.new_database()
    old_node.psql(source, TABLES + "CREATE PUBLICATION p FOR TABLE t")
    postgres.psql(target, TABLES)
    with psycopg.connect(postgres.conninfo(target), autocommit=True) as session:
        options = f"slot_name = '{target}', streaming = on, two_phase = true"
        session.execute(f"CREATE SUBSCRIPTION {target} CONNECTION '{old_node.conninfo(source)}' PUBLICATION p WITH ({options})".encode())
        try:
            ready = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
            until(lambda: session.execute(ready).fetchone() == (0,), "the table is not synchronized", 60)
            for sql in WORK:
                old_node.psql(source, sql.format(gid="g"))
            old_node.psql(source, "COMMIT PREPARED 'g'")
            until(
                lambda: session.execute("SELECT count(*), min(a), max(a) FROM t").fetchone() == (194, 2, 200), "some rows are missing", 60
            )
        finally:
            session.execute(f"DROP SUBSCRIPTION {target}".encode())


def test_message_carries_the_lower_32_bits_of_a_transaction_id() -> None:
    number = 7 * 2**32 + 4_000_000_000
    messages: list[m.Message] = [
        m.Begin(1, 2, number), m.StreamStart(number, first_segment=True), m.StreamCommit(number, 1, 2, 3), m.StreamAbort(number, number + 1),
        m.BeginPrepare(1, 2, 3, number, "g"), m.Prepare(1, 2, 3, number, "g"), m.CommitPrepared(1, 2, 3, number, "g"),
        m.RollbackPrepared(1, 2, 3, 4, number, "g"), m.StreamPrepare(1, 2, 3, number, "g"),
    ]  # fmt: skip
    assert [read(write(message)).xid for message in messages] == [4_000_000_000] * len(messages)  # type: ignore[union-attr]
