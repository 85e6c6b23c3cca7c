"""The call of an aggregate as a Column for `DataFrame.agg`, or over a window. Called by `compiler`, and by `window`.

What a call becomes stands with the aggregate (`expression.implementation.aggregate`).
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
    """Whether `build` knows the aggregate."""
    known = AGGREGATES.get(aggregate.name)
    return known is not None and known.known(aggregate)


def build(node: Aggregate, values: Sequence[Value], condition: Value | None, order: Sequence[Ordering] = ()) -> Value:
    """The aggregate over its planned arguments; `order`: what its own ORDER BY, or WITHIN GROUP, sorts by."""
    found = function(node.function)
    if not compiled(found):
        raise refuse(f"aggregate {found.name}({', '.join(registry.format_type(each) for each in found.arguments)})")

    def kept(make: Make) -> Make:
        if condition is None:
            return make
        return lambda env: F.when(F.coalesce(condition.make(env), F.lit(False)), make(env))

    return AGGREGATES[found.name].spark(AggregateCall(found, node, values, order, kept))
