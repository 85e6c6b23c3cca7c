"""Without ORDER BY, rows of a small table are returned in the order of their insertion, as from PostgreSQL's heap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Server

SCRIPT = Path(__file__).parent / "statements" / "order.sql"


@pytest.mark.slow
def test_rows_of_a_small_table_are_in_postgresqls_order(postgres: Server, node: Server) -> None:
    printed = [server.script(server.new_database(), SCRIPT, "-A").splitlines() for server in (node, postgres)]
    assert printed[0] == printed[1]


@pytest.mark.slow
def test_restarted_node_keeps_the_order_of_rows(spare_node: Callable[..., Server]) -> None:
    node = spare_node()
    database = node.new_database()
    node.psql(database, "CREATE TABLE t (a int, b text)")
    for number in range(1, 13):
        node.psql(database, f"INSERT INTO t VALUES ({number}, repeat('x', {number * number}))")
    node.psql(database, "DELETE FROM t WHERE a = 3; UPDATE t SET b = '' WHERE a = 5")
    expected = "\n".join(str(number) for number in (1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 5))
    assert node.psql(database, "SELECT a FROM t") == expected
    node.restart()
    assert node.psql(database, "SELECT a FROM t") == expected
    assert node.psql(database, "SELECT a FROM t OFFSET 10") == "5"
