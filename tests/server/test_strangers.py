"""Who has not said who he is costs little and keeps nobody out for long."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import pq
from tests.conftest import NodeServer, Server, SqlError, until
from tests.server.test_supervision import descriptors

from headgate.server.protocol.connection import Connection, ConnectionBroken

PLACES = {"max_connections": "6", "max_wal_senders": "4"}
SILENT = 2 * (6 + 4)
"""So many may be waited for."""


def silent(server: Server) -> socket.socket:
    """A connection that says nothing."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def test_silent_connections_ended_the_listener_for_good(spare_node: Callable[..., Server]) -> None:
    node = spare_node(**PLACES)
    assert isinstance(node, NodeServer)
    before = descriptors(node.pid)
    with ExitStack() as held:
        for _ in range(SILENT):
            held.enter_context(silent(node))
        until(lambda: descriptors(node.pid) >= before + SILENT, "they are not accepted")
        for _ in range(340):
            with silent(node) as refused:
                answer = refused.recv(1000)
                assert answer.startswith(b"E"), answer
                assert b"C53300\0Msorry, too many clients already" in answer
        assert descriptors(node.pid) <= before + 3 * SILENT + 20
    until(lambda: node.psql("postgres", "SELECT 1") == "1", "nobody is served any more")


@pytest.fixture
def ordinary(spare_node: Callable[..., Server]) -> Iterator[Server]:
    node = spare_node(**PLACES)
    node.psql("postgres", "CREATE ROLE ordinary LOGIN")
    yield node
    node.psql("postgres", "DROP ROLE ordinary")


def test_the_last_places_are_kept_for_superusers(ordinary: Server) -> None:
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(psycopg.connect(ordinary.conninfo(user="ordinary")))
        with pytest.raises(
            psycopg.OperationalError, match="remaining connection slots are reserved for non-replication superuser connections"
        ):
            psycopg.connect(ordinary.conninfo(user="ordinary"))
        for _ in range(3):
            held.enter_context(psycopg.connect(ordinary.conninfo()))
        with pytest.raises(psycopg.OperationalError, match="sorry, too many clients already"):
            psycopg.connect(ordinary.conninfo())


def test_pools_that_refuse_clients_subscribers_and_slots_are_starved(spare_node: Callable[..., Server]) -> None:
    node = spare_node(**PLACES, max_replication_slots="1")
    assert isinstance(node, NodeServer)
    subscriber = f"{node.conninfo()} replication=database".encode()
    made = "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')"
    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(psycopg.connect(node.conninfo()))
        for _ in range(4):  # beside the clients, as in PostgreSQL
            walsender = pq.PGconn.connect(subscriber)
            held.callback(walsender.finish)
            assert walsender.status == pq.ConnStatus.OK
        assert b"exceeds max_wal_senders" in pq.PGconn.connect(subscriber).error_message
        with pytest.raises(psycopg.OperationalError, match="sorry, too many clients already"):
            psycopg.connect(node.conninfo())
    until(lambda: node.psql("postgres", made.format("one")), "no slot is created")
    with pytest.raises(SqlError, match="all replication slots are in use"):
        node.psql("postgres", made.format("two"))
    node.psql("postgres", "SELECT pg_drop_replication_slot('one')")
    pools = json.loads(node.headgate("status", "--json").stdout)["pools"]
    starved = {pool["setting"]: pool["to_do"] for pool in pools if pool["starved"]}
    assert set(starved) == {"max_connections", "max_wal_senders", "max_replication_slots"}
    assert starved["max_wal_senders"].startswith("On this node: ALTER SYSTEM SET max_wal_senders = 8 (it is 4), and restart it")


@pytest.mark.parametrize("kind", ["p", "Q", "P", "d"])
def test_a_gigabyte_was_taken_from_a_stranger(kind: str) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    with ours, theirs:
        theirs.sendall(kind.encode() + struct.pack("!i", 0x3FFFFFFF))
        with pytest.raises(ConnectionBroken, match="invalid message length"):
            connection.poll(5)
    connection.close()


def test_who_is_known_may_send_it() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    connection.authenticated = True
    with ours, theirs:
        theirs.sendall(b"Q" + struct.pack("!i", 20_004) + b"x" * 20_000)
        found = connection.poll(5)
    connection.close()
    assert found is not None
    assert len(found.body) == 20_000
