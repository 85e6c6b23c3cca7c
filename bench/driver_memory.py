"""Measure the memory of a node's Python process and of its JVM while one very large transaction is applied.

Called by `__main__` as the part `memory`. Spark's Python workers run tasks and are not part of the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.cost import java_pid, server_pid
from bench.memory import Peak, proportional
from bench.replication import catch_up, fill, pair, prepare, subscribe, wait_flushed, wait_synced
from headgate.cli.demo.servers import DemoNode, DemoServer


@dataclass(frozen=True)
class DriverMemory:
    """Bytes of PSS of the Python process and the JVM: when idle, and at the peak while changes are applied. `seconds` of the apply."""

    idle: tuple[int, int]
    peak: tuple[int, int]
    seconds: float


def measure(source: DemoServer, node: DemoNode, changes: int) -> DriverMemory:
    """Return the memory while one transaction of `changes` updates is applied. A tenth of the updates is applied first to warm up."""
    pids = server_pid(node), java_pid(node)
    with pair(source, node) as (pub, sub, name):
        prepare(pub, sub)
        fill(pub, changes, step=1_000_000)
        subscribe(pub, sub, name)
        wait_synced(sub)
        wait_flushed(pub, name)
        update = "UPDATE accounts SET abalance = abalance + 1 WHERE aid <= {}"
        catch_up(pub, sub, name, lambda: pub.execute(update.format(changes // 10)))
        idle = tuple(map(proportional, pids))
        with Peak(pids[0], alone=True) as python, Peak(pids[1], alone=True) as java:
            cost = catch_up(pub, sub, name, lambda: pub.execute(update.format(changes)))
        totals = "SELECT count(*), sum(abalance) FROM accounts"
        assert sub.execute(totals) == pub.execute(totals)
        return DriverMemory((idle[0], idle[1]), (python.bytes, java.bytes), cost.seconds)
