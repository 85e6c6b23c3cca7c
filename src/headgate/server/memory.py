"""The watch of Java's heap: the statement that uses it up fails with 53200, before all others stand still.

One thread of the node, which looks while a statement has work done by Spark, and for a while behind it. Which of several statements holds
the memory, Spark does not tell: the one that has computed longest is ended, then the next. The tasks of a statement that was ended may go
on for a while: who has begun behind its end is not blamed for what they hold. All the time it sees to it that Java can let go what Python
uses no more.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.storage.spark.application.heap import Heap
from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.server.monitoring.activity import Backend
    from headgate.server.node import Node

LOOK_SECONDS = 0.1
AFTERWARDS_SECONDS = 30.0
"""How long it looks on behind the last statement, whose tasks may not have ended with it."""
GRACE_SECONDS = 6.0
"""How long the memory of a statement that has ended may take to be free before another is blamed for it."""
LEFTOVER_SECONDS = 60.0
"""How long the tasks of a statement that has ended may hold memory before a statement that came later is ended for it."""
PAUSE_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
"""How long the memory of a statement that was told to end is waited for before the next is told."""
OUT_OF_MEMORY = ("53200", "out of memory")


class MemoryWatch(Supervised):
    """See the module."""

    def __init__(self, node: Node) -> None:
        super().__init__("memory watch", self._watch, patience=5)
        self._node = node
        self._heap = Heap(node.engine.spark)

    def _watch(self) -> None:
        ended, short_since, resting = -AFTERWARDS_SECONDS, None, True
        last_seen = looked = ended  # the statement that ended: when it was seen last
        before: set[tuple[float, int]] = set()
        self._heap.rest()  # what is alive before the first statement is nobody's
        while not self.stopping.wait(LOOK_SECONDS):
            self._heap.let_go()
            now, busy = time.monotonic(), {(since, each.pid) for since, each in self._busy()}
            if before - busy:
                ended, last_seen = now, looked
            before, looked = busy, now
            if not busy and now - ended > AFTERWARDS_SECONDS:
                short_since = None
                if not resting:
                    self._heap.rest()
                    resting = True
                continue
            resting = False
            if not self._heap.is_short():
                short_since = None
                continue
            short_since = short_since or now
            somebody_elses = now - ended < GRACE_SECONDS and now - short_since < GRACE_SECONDS
            if somebody_elses or not self._end_one(short_since, last_seen):
                self.stopping.wait(PAUSE_SECONDS)

    def _busy(self) -> list[tuple[float, Backend]]:
        """The backends that compute in Java, and since when."""
        found = [(each.interrupts.computing, each) for each in self._node.activity.all()]
        return [(since, each) for since, each in found if since is not None]

    def _end_one(self, short_since: float, last_seen: float) -> bool:
        """Ends the statement that has computed longest, and waits for its memory; who came since is not to blame. Whether there was one.

        `last_seen`: when the statement that ended last still computed; its tasks may hold the memory, for LEFTOVER_SECONDS at most.
        """
        leftovers = time.monotonic() - last_seen < LEFTOVER_SECONDS and self._heap.has_leftovers()
        came_before = min(short_since, last_seen) if leftovers else short_since
        blamed = [(since, each) for since, each in self._busy() if since < came_before]
        if not blamed:
            return False
        since, longest = min(blamed, key=lambda each: each[0])
        longest.interrupts.cancel(OUT_OF_MEMORY, computing=since)
        told = time.monotonic()
        while self._heap.is_short():
            if time.monotonic() - told > PATIENCE_SECONDS and longest.interrupts.computing is None:
                self._heap.keep()  # it has ended and the memory has not come back: it was not the statement's
                break
            if time.monotonic() - told > 2 * PATIENCE_SECONDS:
                break
            self.stopping.wait(LOOK_SECONDS)
        return True
