"""What the tests of sessions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import Server
from tests.server.play import Play


@pytest.fixture
def plays(node: Server, postgres: Server) -> Iterator[tuple[Play, Play]]:
    """A play on the node and the same on PostgreSQL, each with a database of its own."""
    made = Play(node), Play(postgres)
    yield made
    for each in made:
        each.close()
