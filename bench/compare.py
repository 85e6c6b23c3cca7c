"""What follows a filter and what compares two copies: a publication with `reconcile`, `headgate.verify`, `headgate.reconcile`.

Called by `__main__` with a publisher, the node that subscribes to it, and a PostgreSQL that subscribes to the node. `Compared` has one
table on all three: `id bigint`, `n int`, `amount numeric(10,2)`, `name text`. Durations are seconds.
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
"""A row missing, one too many, two of which one column differs."""
STEP = 500_000


class Compared:
    """The table on the publisher, the node and the PostgreSQL behind it."""

    def __init__(self, first: Side, node: Side, last: Side, name: str) -> None:
        self.first, self.node, self.last, self.name = first, node, last, name

    def copied(self, rows: int) -> tuple[float, float]:
        """The first copies: publisher → node, node → PostgreSQL."""
        for start in range(1, rows + 1, STEP):
            self.first.execute(ROWS.format(start, min(start + STEP - 1, rows)))
        self.first.execute("VACUUM ANALYZE compared")
        taken = []
        for pub, sub, name in ((self.first, self.node, self.name), (self.node, self.last, f"{self.name}_last")):
            began = time.perf_counter()
            subscribe(pub, sub, name)
            wait_synced(sub)
            taken.append(time.perf_counter() - began)
        return taken[0], taken[1]

    def filtered(self, condition: str, rows: int) -> float:
        """Until the PostgreSQL behind the node has what it should have, from the ALTER of the node's filter on."""
        began = time.perf_counter()
        self.node.execute(f"ALTER PUBLICATION p SET TABLE compared WHERE ({condition})")
        wait_flushed(self.node, f"{self.name}_last")
        taken = time.perf_counter() - began
        assert self.last.execute("SELECT count(*) FROM compared") == [(rows,)]
        return taken

    def verified(self) -> tuple[float, list[str], int]:
        """Seconds of the node's comparison with the publisher, what differs, and the bytes of the node at its peak above those before."""
        root = int((self.node.server.data / "headgate.pid").read_text().splitlines()[0])
        before = sum(proportional(pid) for pid in tree(root))
        began = time.perf_counter()
        with Peak(root) as peak:
            found = self.node.execute(f"SELECT result, key FROM headgate.verify('{self.name}')")
        differing = sorted(f"{what} {key}" for what, key in found if key is not None)
        return time.perf_counter() - began, differing, max(peak.bytes - before, 0)

    def planted(self) -> None:
        """Four differences, made here behind the subscription's back."""
        for statement in PLANTED:
            self.node.execute(statement)

    def reconciled(self) -> float:
        """Until the node's table is made equal."""
        began = time.perf_counter()
        self.node.execute(f"SELECT headgate.reconcile('{self.name}', 'public.compared')")
        wait_synced(self.node)
        return time.perf_counter() - began


@contextmanager
def chain(source: DemoServer, node: DemoServer, native: DemoServer) -> Iterator[Compared]:
    """The table on all three, empty; the node's publication is followed."""
    with pair(source, node) as (first, here, name):
        last = Side(native, f"{name}_last")
        Side(native, "postgres").execute(f"CREATE DATABASE {last.database}")
        try:
            for side in (first, here, last):
                side.execute(TABLE)
            first.execute("CREATE PUBLICATION p FOR TABLE compared")
            here.execute("CREATE PUBLICATION p FOR TABLE compared WITH (reconcile = true)")
            yield Compared(first, here, last, name)
        finally:
            if last.execute(f"SELECT 1 FROM pg_subscription WHERE subname = '{name}_last'"):
                last.execute(f"DROP SUBSCRIPTION {name}_last")
            Side(native, "postgres").execute(f"DROP DATABASE {last.database} WITH (FORCE)")
