"""A statement that waits for a publisher ends when it is cancelled, as in PostgreSQL, even if the publisher never answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psycopg
import pytest
from tests.conftest import Server
from tests.session import Session


@pytest.fixture
def silent_port() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_statement_timeout_ends_the_wait_for_a_silent_publisher(server: Server, silent_port: int) -> None:
    session = Session(server.conninfo(server.new_database()))
    conninfo = f"host=127.0.0.1 port={silent_port} dbname=d"
    session.sql("SET statement_timeout = '1s'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="due to statement timeout"):
        session.sql(f"CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p")
    session.sql(f"CREATE SUBSCRIPTION s CONNECTION '{conninfo}' PUBLICATION p WITH (connect = false)")
    with pytest.raises(psycopg.errors.QueryCanceled, match="due to statement timeout"):
        session.sql("DROP SUBSCRIPTION s")
    session.sql("ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
    session.close()
