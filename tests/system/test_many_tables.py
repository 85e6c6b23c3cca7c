"""A node's Java heap, threads and open files do not grow with the number of its tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import tables
from bench.tables import Size
from tests.conftest import Server, until

HEAP_MB, THREADS, HANDLES = 40, 40, 60
"""How much a node may grow, because of classes that are loaded late, a walsender, and workers of a subscription."""
LARGE = "INSERT INTO t_{0} SELECT g, repeat('x', 10) FROM generate_series(1, 3000) g; SELECT sum(id) FROM t_{0}; UPDATE t_{0} SET a = 'y' WHERE id < 9"


def grown(earlier: Size, later: Size) -> bool:
    return later.heap > earlier.heap + HEAP_MB or later.threads > earlier.threads + THREADS or later.handles > earlier.handles + HANDLES


def use(node: Server, database: str, numbers: range) -> None:
    """Read and write tables with statements for which Spark is used."""
    node.psql(database, "; ".join(LARGE.format(number) for number in numbers), timeout=280)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tables_that_are_created_and_used_leave_nothing_in_memory(spare_node, tmp_path: Path) -> None:
    node = spare_node()
    database = node.new_database()
    (tmp_path / "tables.sql").write_text(tables.definitions(100))
    output = node.script(database, tmp_path / "tables.sql", "-q", "-v", "ON_ERROR_STOP=1")
    assert "ERROR" not in output
    use(node, database, range(10))
    size_before = tables.size(node.pid)
    use(node, database, range(10, 40))
    size_after = tables.size(node.pid)
    assert not grown(size_before, size_after), f"{size_before}, then {size_after}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_subscribed_tables_leave_nothing_in_memory(spare_node, postgres: Server) -> None:
    node = spare_node()
    source, target = postgres.new_database(), node.new_database()
    postgres.psql(source, tables.definitions(200))
    fill = ";".join(f"INSERT INTO t_{number} SELECT g, 'text' FROM generate_series(1, 100) g" for number in range(200))
    postgres.psql(source, f"{fill}; CREATE PUBLICATION few FOR TABLE t_0, t_1, t_2; CREATE PUBLICATION p FOR ALL TABLES")
    options = f"CONNECTION '{postgres.conninfo(source)}'"
    node.psql(target, f"CREATE SUBSCRIPTION {target} {options} PUBLICATION few WITH (create_tables = true)")
    ready = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'"
    until(lambda: node.psql(target, ready) == "3", "the first tables are not ready", seconds=60)
    size_before = tables.size(node.pid)
    node.psql(target, f"ALTER SUBSCRIPTION {target} SET PUBLICATION p", timeout=280)
    until(lambda: node.psql(target, ready) == "200", "tables are not ready", seconds=280)
    postgres.psql(source, ";".join(f"UPDATE t_{number} SET a = 'changed' WHERE id = 7" for number in range(200)))
    changed = "; ".join(f"SELECT a FROM t_{number} WHERE id = 7" for number in range(0, 200, 20))
    until(lambda: set(node.psql(target, changed).split()) == {"changed"}, "the changes have not arrived", seconds=120)
    size_after = tables.size(node.pid)
    node.psql(target, f"DROP SUBSCRIPTION {target}")
    assert not grown(size_before, size_after), f"{size_before}, then {size_after}"
