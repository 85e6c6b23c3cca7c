"""The state of an application's stages, tasks and executors, as Spark's driver counts them.

PySpark's own `StatusTracker` has no executors, no time of submission and no bytes. Java's does, except for the bytes. `JavaSparkContext` is
reached through `SparkContext._jsc`. All of this exists since Spark 2.3; the status store is internal (`private[spark]`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from pyspark import SparkContext


@dataclass(frozen=True)
class ActiveStage:
    """A stage that has not ended: its running and completed tasks, and the Unix time of its submission (0: not submitted)."""

    running: int
    completed: int
    submitted: float


def is_stopped(context: SparkContext) -> bool:
    """Return whether the application has ended, also by the cluster's decision. Relies on `SparkContext.isStopped` of Scala."""
    return bool(_scala(context).isStopped())


def active_stages(context: SparkContext) -> list[ActiveStage]:
    """Return the stages that have not ended. Relies on `SparkStageInfo.submissionTime` of Java, which PySpark's class does not have."""
    tracker = context._jsc.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    return [ActiveStage(stage.numActiveTasks(), stage.numCompletedTasks(), max(stage.submissionTime(), 0) / 1000) for stage in stages]


def executor_tasks(context: SparkContext) -> list[int]:
    """Return the number of running tasks of each executor. The driver is one of them. Relies on `getExecutorInfos`, since Spark 2.0."""
    return [int(executor.numRunningTasks()) for executor in _scala(context).statusTracker().getExecutorInfos()]


def temporary_bytes(context: SparkContext, stages: Iterable[int]) -> int:
    """Return how many bytes the tasks of these stages have spilled to disk and written for a shuffle.

    Relies on `AppStatusStore.lastStageAttempt`. Raise Py4JError for a stage of which Spark keeps no record any more.
    """
    store = _scala(context).statusStore()
    attempts = [store.lastStageAttempt(stage) for stage in stages]
    return sum(int(attempt.diskBytesSpilled()) + int(attempt.shuffleWriteBytes()) for attempt in attempts)


def _scala(context: SparkContext) -> JavaObject:
    return context._jsc.sc()
