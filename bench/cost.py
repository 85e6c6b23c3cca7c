"""The cost of a piece of work: the elapsed seconds, and the seconds of CPU of all processes of each server.

Used by the measurements. Other work on the machine changes the seconds of CPU less than the elapsed seconds. So two versions can be
compared by CPU on a busy machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from bench.memory import tree
from headgate.cli.demo.servers import DemoNode, DemoServer

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """The elapsed seconds, and the seconds of CPU of the publisher and of the subscriber."""

    seconds: float
    publisher: float
    subscriber: float


class Meter:
    """A measurement that begins when the object is created. `cost` may be called more than once."""

    def __init__(self, publisher: DemoServer, subscriber: DemoServer) -> None:
        self._pids = server_pid(publisher), server_pid(subscriber)
        self._cpu = [cpu(pid) for pid in self._pids]
        self._began = time.perf_counter()

    def cost(self) -> Cost:
        """Return the cost since the object was created."""
        seconds = time.perf_counter() - self._began
        publisher, subscriber = (cpu(pid) - before for pid, before in zip(self._pids, self._cpu, strict=True))
        return Cost(seconds, publisher, subscriber)


def server_pid(server: DemoServer) -> int:
    """Return the process id of a running server."""
    file = "headgate.pid" if isinstance(server, DemoNode) else "postmaster.pid"
    return int((server.data / file).read_text().split()[0])


def java_pid(node: DemoNode) -> int:
    """Return the process id of a running node's JVM."""
    [java] = [child for child in tree(server_pid(node)) if Path(f"/proc/{child}/comm").read_text().strip() == "java"]
    return java


def cpu(pid: int) -> float:
    """Return the seconds of CPU of a process and its descendants, including those that have ended."""
    total = 0
    for process in tree(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, and its parent's times include it
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICK
