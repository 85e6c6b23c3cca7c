"""Compile the call of an aggregate to a Column for `DataFrame.agg`, or over a window. Called by `compiler`, and by `window`.

The Spark form of each aggregate is in its entry (`expression.implementation.aggregate`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from headgate.expression.builtin import Function, function
from headgate.expression.implementation.implementations import AGGREGATES
from headgate.expression.node import Aggregate
from headgate.expression.spark.aggregate_call import AggregateCall, Ordering
from headgate.expression.spark.value import Make, Value, refuse
from headgate.types import registry


def compiled(aggregate: Function) -> bool:
    """Return whether `build` supports the aggregate."""
    entry = AGGREGATES.get(aggregate.name)
    return entry is not None and entry.known(aggregate)


def build(node: Aggregate, values: Sequence[Value], condition: Value | None, order: Sequence[Ordering] = ()) -> Value:
    """Return the aggregate over its planned arguments. `order` is its own ORDER BY, or WITHIN GROUP."""
    aggregate = function(node.function)
    if not compiled(aggregate):
        raise refuse(f"aggregate {aggregate.name}({', '.join(registry.format_type(argument) for argument in aggregate.arguments)})")

    def apply_filter(make: Make) -> Make:
        if condition is None:
            return make
        return lambda env: F.when(F.coalesce(condition.make(env), F.lit(False)), make(env))

    return AGGREGATES[aggregate.name].spark(AggregateCall(aggregate, node, values, order, apply_filter))
