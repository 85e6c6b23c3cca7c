"""Unauthenticated clients use few resources and do not block others for long."""

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
"""The number of silent connections that the node must accept."""


def silent(server: Server) -> socket.socket:
    """Open a connection that sends nothing."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


@pytest.mark.slow
def test_listener_accepts_connections_after_many_silent_ones(spare_node: Callable[..., Server]) -> None:
    node = spare_node(**PLACES)
    assert isinstance(node, NodeServer)
    descriptors_before = descriptors(node.pid)
    with ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(silent(node))
        until(lambda: descriptors(node.pid) >= descriptors_before + SILENT, "the silent connections are not accepted")
        for _ in range(340):
            with silent(node) as refused:
                answer = refused.recv(1000)
                assert answer.startswith(b"E"), answer
                assert b"C53300\0Msorry, too many clients already" in answer
        assert descriptors(node.pid) <= descriptors_before + 3 * SILENT + 20
    until(lambda: node.psql("postgres", "SELECT 1") == "1", "the node accepts no connection")


@pytest.fixture
def ordinary(spare_node: Callable[..., Server]) -> Iterator[Server]:
    node = spare_node(**PLACES)
    node.psql("postgres", "CREATE ROLE ordinary LOGIN")
    yield node
    node.psql("postgres", "DROP ROLE ordinary")


def test_last_connections_are_reserved_for_superusers(ordinary: Server) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(psycopg.connect(ordinary.conninfo(user="ordinary")))
        with pytest.raises(
            psycopg.OperationalError, match="remaining connection slots are reserved for non-replication superuser connections"
        ):
            psycopg.connect(ordinary.conninfo(user="ordinary"))
        for _ in range(3):
            stack.enter_context(psycopg.connect(ordinary.conninfo()))
        with pytest.raises(psycopg.OperationalError, match="sorry, too many clients already"):
            psycopg.connect(ordinary.conninfo())


@pytest.mark.slow
def test_pools_that_reject_clients_subscribers_and_slots_are_reported_as_starved(spare_node: Callable[..., Server]) -> None:
    node = spare_node(**PLACES, max_replication_slots="1")
    assert isinstance(node, NodeServer)
    subscriber = f"{node.conninfo()} replication=database".encode()
    create_slot = "SELECT pg_create_logical_replication_slot('{}', 'pgoutput')"
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(psycopg.connect(node.conninfo()))
        for _ in range(4):  # walsenders do not count as clients, as in PostgreSQL
            walsender = pq.PGconn.connect(subscriber)
            stack.callback(walsender.finish)
            assert walsender.status == pq.ConnStatus.OK
        assert b"exceeds max_wal_senders" in pq.PGconn.connect(subscriber).error_message
        with pytest.raises(psycopg.OperationalError, match="sorry, too many clients already"):
            psycopg.connect(node.conninfo())
    until(lambda: node.psql("postgres", create_slot.format("one")), "no slot is created")
    with pytest.raises(SqlError, match="all replication slots are in use"):
        node.psql("postgres", create_slot.format("two"))
    node.psql("postgres", "SELECT pg_drop_replication_slot('one')")
    pools = json.loads(node.headgate("status", "--json").stdout)["pools"]
    starved = {pool["setting"]: pool["to_do"] for pool in pools if pool["starved"]}
    assert set(starved) == {"max_connections", "max_wal_senders", "max_replication_slots"}
    assert starved["max_wal_senders"].startswith("On this node: ALTER SYSTEM SET max_wal_senders = 8 (it is 4), and restart it")


@pytest.mark.parametrize("kind", ["p", "Q", "P", "d"])
def test_large_message_of_an_unauthenticated_client_is_rejected(kind: str) -> None:
    server, client = socket.socketpair()
    connection = Connection(server)
    with server, client:
        client.sendall(kind.encode() + struct.pack("!i", 0x3FFFFFFF))
        with pytest.raises(ConnectionBroken, match="invalid message length"):
            connection.poll(5)
    connection.close()


def test_authenticated_client_may_send_a_large_message() -> None:
    server, client = socket.socketpair()
    connection = Connection(server)
    connection.authenticated = True
    with server, client:
        client.sendall(b"Q" + struct.pack("!i", 20_004) + b"x" * 20_000)
        received = connection.poll(5)
    connection.close()
    assert received is not None
    assert len(received.body) == 20_000
