"""Fixtures that the tests of sessions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import Server
from tests.server.play import Play


@pytest.fixture
def plays(node: Server, postgres: Server) -> Iterator[tuple[Play, Play]]:
    """A play on the node and the same on PostgreSQL, each in its own database."""
    both_plays = Play(node), Play(postgres)
    yield both_plays
    for play in both_plays:
        play.close()
