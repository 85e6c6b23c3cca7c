"""What `headgate check` finds: nothing in what a node has left, and of each damage exactly that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.check.scene import Copy, build
from tests.conftest import NodeServer, Server


@pytest.fixture(scope="module")
def original(_session_farm, postgres: Server) -> tuple[NodeServer, str]:
    """A stopped node with something of everything, and its database."""
    node = _session_farm.make(NodeServer)
    return node, build(node, postgres)


@pytest.fixture
def copy(original: tuple[NodeServer, str], spark: SparkSession, tmp_path: Path) -> Callable[[], Copy]:
    """Copies of its directory."""
    node, database = original
    return lambda: Copy(node.data, tmp_path, database, spark)


def test_nothing_is_wrong_about_a_node_that_was_stopped(copy: Callable[[], Copy]) -> None:
    assert copy().findings() == []
