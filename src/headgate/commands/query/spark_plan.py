"""The steps of a Spark plan with the metrics of its execution, for EXPLAIN.

Steps that only wrap others (adaptive plans, stages, generated code) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_WRAPPING = {
    "AdaptiveSparkPlan": "executedPlan",
    "ShuffleQueryStage": "plan",
    "BroadcastQueryStage": "plan",
    "TableCacheQueryStage": "plan",
    "ResultQueryStage": "plan",
    "ReusedExchange": "child",
    "InputAdapter": "child",
}


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


def of(plan: Any) -> PlanStep:
    """Return the steps of a Java SparkPlan."""
    name = str(plan.nodeName())
    while name in _WRAPPING or name.startswith("WholeStageCodegen"):
        plan = getattr(plan, _WRAPPING.get(name, "child"))()
        name = str(plan.nodeName())
    children = plan.children()
    inputs = tuple(of(children.apply(place)) for place in range(children.size()))
    return PlanStep(name, str(plan.simpleString(100)), _measured(plan), inputs)


def _measured(plan: Any) -> dict[str, int]:
    metrics, iterator = {}, plan.metrics().iterator()
    while iterator.hasNext():
        metric = iterator.next()._2()
        label = metric.name()
        if label.isDefined():
            metrics[str(label.get())] = max(int(metric.value()), 0)
    return metrics
