"""The options with which a node starts its Java virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bench.memory import tree
from tests.conftest import Server

C1_ALONE = "-XX:TieredStopAtLevel=1"


def options(node: Server) -> list[str]:
    """Return the command line of a node's Java."""
    [java] = [pid for pid in tree(node.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    return Path(f"/proc/{java}/cmdline").read_text().split("\0")


def test_java_compiles_with_c1_alone_by_default(node: Server) -> None:
    assert node.psql("postgres", "SHOW spark_driver_jit") == "c1"
    assert C1_ALONE in options(node)


@pytest.mark.slow
def test_java_compiles_with_all_its_compilers_if_a_setting_says_so(own_node: Callable[..., Server]) -> None:
    assert C1_ALONE not in options(own_node(spark_driver_jit="tiered"))
