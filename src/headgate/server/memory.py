"""The watch of the JVM's heap: cancels the statement that exhausts it with 53200, before all other statements stall.

One thread of the node checks the heap while a statement has work done by Spark, and for `AFTERWARDS_SECONDS` after it. Spark does not
report which of several statements holds the memory. So the watch cancels the statement that has computed longest, then the next. The
tasks of a cancelled statement may continue for a while: a statement that began after its end is not blamed for the memory they hold.
The watch also lets the JVM release objects that Python no longer uses.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.supervision import Supervised

if TYPE_CHECKING:
    from headgate.server.monitoring.activity import Activity, Backend
    from headgate.storage.spark.application.heap import Heap

LOOK_SECONDS = 0.1
AFTERWARDS_SECONDS = 30.0
"""The time for which the heap is checked after the last statement, whose tasks may outlive it."""
GRACE_SECONDS = 6.0
"""The time in which the memory of a statement that has ended must become free before another statement is blamed for it."""
LEFTOVER_SECONDS = 60.0
"""The time for which tasks of a statement that has ended may hold memory before a later statement is cancelled for it."""
PAUSE_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
"""The time to wait for the memory of a cancelled statement before the next one is cancelled."""
OUT_OF_MEMORY = ("53200", "out of memory")


class MemoryWatch(Supervised):
    """The thread that watches the JVM's heap, as the module describes."""

    def __init__(self, heap: Heap, activity: Activity) -> None:
        super().__init__("memory watch", self._watch, patience=5)
        self._activity = activity
        self._heap = heap

    def _watch(self) -> None:
        ended, short_since, resting = -AFTERWARDS_SECONDS, None, True
        last_seen = looked = ended  # when the statement that has ended was last seen running
        before: set[tuple[float, int]] = set()
        self._heap.rest()  # objects that are alive before the first statement belong to no statement
        while not self.stopping.wait(LOOK_SECONDS):
            self._heap.free_unused()
            now, busy = time.monotonic(), {(since, backend.pid) for since, backend in self._busy()}
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
            may_be_leftover = now - ended < GRACE_SECONDS and now - short_since < GRACE_SECONDS
            if may_be_leftover or not self._end_one(short_since, last_seen):
                self.stopping.wait(PAUSE_SECONDS)

    def _busy(self) -> list[tuple[float, Backend]]:
        """Return the backends that have work done in the JVM, with the time since when."""
        backends = [(backend.interrupts.computing, backend) for backend in self._activity.all()]
        return [(since, backend) for since, backend in backends if since is not None]

    def _end_one(self, short_since: float, last_seen: float) -> bool:
        """Cancel the statement that has computed longest and wait for its memory. Return False if no statement is to blame.

        Statements that began after the memory became short are not to blame. `last_seen`: when the statement that ended last was still
        computing. Its tasks may hold the memory for at most LEFTOVER_SECONDS.
        """
        leftovers = time.monotonic() - last_seen < LEFTOVER_SECONDS and self._heap.has_leftovers()
        limit = min(short_since, last_seen) if leftovers else short_since
        blamed = [(since, backend) for since, backend in self._busy() if since < limit]
        if not blamed:
            return False
        since, longest = min(blamed, key=lambda entry: entry[0])
        longest.interrupts.cancel(OUT_OF_MEMORY, computing=since)
        cancelled_at = time.monotonic()
        while self._heap.is_short():
            if time.monotonic() - cancelled_at > PATIENCE_SECONDS and longest.interrupts.computing is None:
                self._heap.keep()  # it has ended and the memory is not free: it was not the statement's
                break
            if time.monotonic() - cancelled_at > 2 * PATIENCE_SECONDS:
                break
            self.stopping.wait(LOOK_SECONDS)
        return True
