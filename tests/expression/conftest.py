"""The connection to the real PostgreSQL, whose results are the expected ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


@pytest.fixture(scope="session")
def oracle(postgres: Any) -> Iterator[psycopg.Connection]:
    """A connection to a separate database, in UTC."""
    database = postgres.new_database()
    with psycopg.connect(postgres.conninfo(database), autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection
