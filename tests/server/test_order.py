"""Rows of a small table without ORDER BY: in the order in which they were written, as PostgreSQL's heap gives them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.conftest import PG_BIN, Server

SCRIPT = Path(__file__).parent / "statements" / "order.sql"


def printed(server: Server) -> list[str]:
    """What psql prints for the script."""
    words = [PG_BIN / "psql", "-X", "-a", "-A", "-d", server.conninfo(server.new_database())]
    with SCRIPT.open() as source:
        done = subprocess.run(words, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280)
    return done.stdout.splitlines()


def test_the_largest_file_of_a_small_table_came_first(postgres: Server, node: Server) -> None:
    assert printed(node) == printed(postgres)


def test_a_restarted_node_still_knows_the_order(own_node: Callable[..., Server]) -> None:
    node = own_node()
    node.psql("postgres", "CREATE TABLE t (a int, b text)")
    for number in range(1, 13):
        node.psql("postgres", f"INSERT INTO t VALUES ({number}, repeat('x', {number * number}))")
    node.psql("postgres", "DELETE FROM t WHERE a = 3; UPDATE t SET b = '' WHERE a = 5")
    expected = "\n".join(str(number) for number in (1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 5))
    assert node.psql("postgres", "SELECT a FROM t") == expected
    node.restart()
    assert node.psql("postgres", "SELECT a FROM t") == expected
    assert node.psql("postgres", "SELECT a FROM t OFFSET 10") == "5"
