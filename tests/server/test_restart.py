"""A slot keeps what it needs across a restart of the node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Server, until
from tests.publisher import slots


@pytest.mark.slow
def test_slot_that_lags_can_be_read_after_drop_table_and_a_restart(spare_node: Callable[..., Server]) -> None:
    node = spare_node(file_retention="0")
    database = node.new_database()
    node.psql(database, "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE PUBLICATION p FOR TABLE t")
    slot = slots.make(node, database, "behind")
    node.psql(
        database, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 3) n; UPDATE t SET b = 'y' WHERE a = 2; DELETE FROM t WHERE a = 3"
    )
    node.psql(database, "DROP TABLE t; CREATE TABLE other (a int); INSERT INTO other VALUES (1)")
    for mode in ("fast", "immediate"):
        node.restart(mode)
        node.psql(database, "CHECKPOINT")
    changes = [message for message in slots.messages(node, database, slot) if message.startswith(("Insert", "Update", "Delete"))]
    assert changes == ["Insert t (1, x)", "Insert t (2, x)", "Insert t (3, x)", "Update t (2, y)", "Delete t (3, null)"]
    node.psql(database, f"SELECT pg_drop_replication_slot('{slot}')")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_node_is_warmed_up_with_the_class_data_archive(spare_node: Callable[..., Server]) -> None:
    node = spare_node(warm_up="on", log_min_messages="debug1")
    until(lambda: "the warm-up took" in node.log(), "the warm-up does not end", seconds=240)
    [children] = [path.read_text().split() for path in Path(f"/proc/{node.pid}/task/{node.pid}").glob("children")]
    assert any(".jsa" in Path(f"/proc/{child}/maps").read_text() for child in children)
