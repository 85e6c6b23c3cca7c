"""The execution of a query, step by step, for EXPLAIN.

PySpark prints a plan, but has no access to its steps and their metrics. Spark's are `QueryExecution` and `SparkPlan` (Spark 1.3), of the
package `org.apache.spark.sql.execution`. The names of the steps that only wrap another are those of Spark 4.1 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

_WRAPPING = {
    "AdaptiveSparkPlan": "executedPlan",
    "ShuffleQueryStage": "plan",
    "BroadcastQueryStage": "plan",
    "TableCacheQueryStage": "plan",
    "ResultQueryStage": "plan",
    "ReusedExchange": "child",
    "InputAdapter": "child",
}
"""Steps that only wrap another, with the method that returns it. Generated code (``WholeStageCodegen``) has a number in its name."""
_FIELDS = 100
"""The number of fields that Spark shows of a step."""


@dataclass(frozen=True)
class PlanStep:
    """One step: Spark's name for it, its line in Spark's plan, its metrics, and its input steps."""

    name: str
    line: str
    measured: dict[str, int]
    inputs: tuple[PlanStep, ...]

    @property
    def rows(self) -> int | None:
        """Return the number of output rows, or None if Spark does not count them."""
        return self.measured.get("number of output rows")


class Execution:
    """The execution of a frame for EXPLAIN. Creating it plans the query."""

    def __init__(self, frame: DataFrame) -> None:
        self._execution = frame._jdf.queryExecution()
        self._plan = self._execution.executedPlan()

    def run(self) -> None:
        """Compute all rows without fetching them. The steps have their metrics afterwards."""
        self._execution.toRdd().count()

    def text(self, *, verbose: bool) -> str:
        """Return the physical plan as Spark prints it, with `verbose` also the logical plans."""
        return str(self._execution.toString() if verbose else self._execution.simpleString())

    def steps(self) -> PlanStep:
        """Return the steps of the physical plan. Steps that only wrap another are left out: adaptive plans, stages, generated code."""
        return _step(self._plan)


def _step(plan: JavaObject) -> PlanStep:
    name = str(plan.nodeName())
    while name in _WRAPPING or name.startswith("WholeStageCodegen"):
        plan = getattr(plan, _WRAPPING.get(name, "child"))()
        name = str(plan.nodeName())
    children = plan.children()
    inputs = tuple(_step(children.apply(place)) for place in range(children.size()))
    return PlanStep(name, str(plan.simpleString(_FIELDS)), _measure(plan), inputs)


def _measure(plan: JavaObject) -> dict[str, int]:
    metrics, iterator = {}, plan.metrics().iterator()
    while iterator.hasNext():
        metric = iterator.next()._2()
        label = metric.name()
        if label.isDefined():
            metrics[str(label.get())] = max(int(metric.value()), 0)
    return metrics
