"""Measure a publication with `reconcile` whose filter changes, `headgate.verify` and `headgate.reconcile`.

Called by `__main__` with a publisher, a node that subscribes to it, and a PostgreSQL server that subscribes to the node. `Chain` has the
same table on all three: `id bigint`, `n int`, `amount numeric(10,2)`, `name text`. Durations are in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.memory import Peak, proportional, tree
from bench.replication import Side, pair, subscribe, wait_flushed, wait_synced
from headgate.cli.demo.servers import DemoServer

TABLE = "CREATE TABLE compared (id bigint PRIMARY KEY, n int, amount numeric(10,2), name text)"
ROWS = "INSERT INTO compared SELECT g, g % 100, (g % 1000000) / 100.0, 'name of ' || g FROM generate_series({}, {}) g"
PLANTED = (
    "DELETE FROM compared WHERE id = 17",
    "INSERT INTO compared VALUES (-1, 0, 0, 'extra')",
    "UPDATE compared SET amount = amount + 0.01 WHERE id = 4711",
    "UPDATE compared SET name = name || ' ' WHERE id = 90001",
)
"""A missing row, an extra row, and two rows in which one column differs."""
STEP = 500_000


class Chain:
    """The table on the publisher, on the node and on the PostgreSQL server that subscribes to the node."""

    def __init__(self, first: Side, node: Side, last: Side, name: str) -> None:
        self.first, self.node, self.last, self.name = first, node, last, name

    def copy(self, rows: int) -> tuple[float, float]:
        """Fill the publisher's table. Return the seconds of the initial copies publisher → node and node → PostgreSQL."""
        for start in range(1, rows + 1, STEP):
            self.first.execute(ROWS.format(start, min(start + STEP - 1, rows)))
        self.first.execute("VACUUM ANALYZE compared")
        seconds = []
        for pub, sub, name in ((self.first, self.node, self.name), (self.node, self.last, f"{self.name}_last")):
            began = time.perf_counter()
            subscribe(pub, sub, name)
            wait_synced(sub)
            seconds.append(time.perf_counter() - began)
        return seconds[0], seconds[1]

    def change_filter(self, condition: str, rows: int) -> float:
        """Change the filter of the node's publication. Return the seconds until the PostgreSQL subscriber has the `rows` matching rows."""
        began = time.perf_counter()
        self.node.execute(f"ALTER PUBLICATION p SET TABLE compared WHERE ({condition})")
        wait_flushed(self.node, f"{self.name}_last")
        seconds = time.perf_counter() - began
        assert self.last.execute("SELECT count(*) FROM compared") == [(rows,)]
        return seconds

    def verify(self) -> tuple[float, list[str], int]:
        """Verify the node's table. Return the seconds, the differences, and by how many bytes the node's memory grew at its peak."""
        pid = int((self.node.server.data / "headgate.pid").read_text().splitlines()[0])
        memory_before = sum(map(proportional, tree(pid)))
        began = time.perf_counter()
        with Peak(pid) as peak:
            results = self.node.execute(f"SELECT result, key FROM headgate.verify('{self.name}')")
        differences = sorted(f"{result} {key}" for result, key in results if key is not None)
        return time.perf_counter() - began, differences, max(peak.bytes - memory_before, 0)

    def plant_differences(self) -> None:
        """Change four rows of the node's table, so that it differs from the publisher's."""
        for statement in PLANTED:
            self.node.execute(statement)

    def reconcile(self) -> float:
        """Reconcile the node's table with the publisher's. Return the seconds until it is ready."""
        began = time.perf_counter()
        self.node.execute(f"SELECT headgate.reconcile('{self.name}', 'public.compared')")
        wait_synced(self.node)
        return time.perf_counter() - began


@contextmanager
def chain(source: DemoServer, node: DemoServer, native: DemoServer) -> Iterator[Chain]:
    """Create the empty table on all three servers. The node's publication has `reconcile`."""
    with pair(source, node) as (first, here, name):
        last = Side(native, f"{name}_last")
        Side(native, "postgres").execute(f"CREATE DATABASE {last.database}")
        try:
            for side in (first, here, last):
                side.execute(TABLE)
            first.execute("CREATE PUBLICATION p FOR TABLE compared")
            here.execute("CREATE PUBLICATION p FOR TABLE compared WITH (reconcile = true)")
            yield Chain(first, here, last, name)
        finally:
            if last.execute(f"SELECT 1 FROM pg_subscription WHERE subname = '{name}_last'"):
                last.execute(f"DROP SUBSCRIPTION {name}_last")
            Side(native, "postgres").execute(f"DROP DATABASE {last.database} WITH (FORCE)")
