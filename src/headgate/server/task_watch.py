"""The watch of Spark's tasks: how many of its places are in use, and which stages wait for one.

One thread of the node, which asks Java every `LOOK_SECONDS`; `server.monitoring.pool` shows what it last found, so that a report never
waits for Java. A stage waits if none of its tasks has begun `PATIENCE_SECONDS` after it was submitted.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from headgate.supervision import Periodic

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Tasks:
    """How many tasks run, how many may run at a time, and for how many seconds the stage that has waited longest waits, 0 for none."""

    running: int = 0
    places: int = 0
    waiting_seconds: float = 0.0


class TaskWatch(Periodic):
    """See the module; `tasks` as they were seen last."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("task watch", LOOK_SECONDS, patience=5)
        self._context = engine.spark.sparkContext
        self.tasks = Tasks()

    def look(self) -> None:
        """Ask Java about the tasks."""
        with contextlib.suppress(Py4JError, OSError):  # Java has ended, which `reinitialize` sees to
            self.tasks = self._found()

    def _found(self) -> Tasks:
        tracker: Any = self._context._jsc.statusTracker()
        stages = [found for number in tracker.getActiveStageIds() if (found := tracker.getStageInfo(number)) is not None]
        running = sum(stage.numActiveTasks() for stage in stages)
        idle = [stage.submissionTime() / 1000 for stage in stages if not stage.numActiveTasks() and not stage.numCompletedTasks()]
        waited = max((time.time() - submitted for submitted in idle if submitted > 0), default=0.0)
        return Tasks(running, int(self._context.defaultParallelism), waited if waited > PATIENCE_SECONDS else 0.0)
