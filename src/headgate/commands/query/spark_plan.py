"""The steps of a plan that Spark makes, with what Spark has measured of them once it ran. Called by EXPLAIN.

Spark wraps steps into others that compute nothing (adaptive plans, stages, generated code): these are left out.
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
    """One step: Spark's name for it, its line in Spark's plan, what was measured, and the steps whose rows it takes."""

    name: str
    line: str
    measured: dict[str, int]
    inputs: tuple[PlanStep, ...]

    @property
    def rows(self) -> int | None:
        """Rows that it gave; None where Spark does not count them."""
        return self.measured.get("number of output rows")


def of(plan: Any) -> PlanStep:
    """The steps of Java's SparkPlan."""
    name = str(plan.nodeName())
    while name in _WRAPPING or name.startswith("WholeStageCodegen"):
        plan = getattr(plan, _WRAPPING.get(name, "child"))()
        name = str(plan.nodeName())
    children = plan.children()
    inputs = tuple(of(children.apply(place)) for place in range(children.size()))
    return PlanStep(name, str(plan.simpleString(100)), _measured(plan), inputs)


def _measured(plan: Any) -> dict[str, int]:
    found, each = {}, plan.metrics().iterator()
    while each.hasNext():
        metric = each.next()._2()
        label = metric.name()
        if label.isDefined():
            found[str(label.get())] = max(int(metric.value()), 0)
    return found
