"""The watch of Spark's tasks: how many task slots are in use, and which stages wait for one.

One thread of the node queries the JVM every `LOOK_SECONDS`. `report.status_report` shows the last result, so that a report never waits
for the JVM. A stage is waiting if none of its tasks has begun `PATIENCE_SECONDS` after it was submitted.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from headgate.storage.spark.internals import task_status
from headgate.supervision import Periodic

if TYPE_CHECKING:
    from headgate.storage.engine import Engine

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Tasks:
    """The number of running tasks, of task slots, and the seconds for which the stage that has waited longest waits, 0 for none."""

    running: int = 0
    places: int = 0
    waiting_seconds: float = 0.0


class TaskWatch(Periodic):
    """The thread that watches Spark's tasks. `tasks` is the last result."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("task watch", LOOK_SECONDS, patience=5)
        self._context = engine.spark.sparkContext
        self.tasks = Tasks()

    def look(self) -> None:
        """Query the JVM about the tasks."""
        with contextlib.suppress(Py4JError, OSError):  # the JVM has ended, which `reinitialize` handles
            self.tasks = self._count_tasks()

    def _count_tasks(self) -> Tasks:
        stages = task_status.active_stages(self._context)
        running = sum(stage.running for stage in stages)
        idle = [stage.submitted for stage in stages if not stage.running and not stage.completed and stage.submitted]
        waited = max((time.time() - submitted for submitted in idle), default=0.0)
        return Tasks(running, int(self._context.defaultParallelism), waited if waited > PATIENCE_SECONDS else 0.0)
