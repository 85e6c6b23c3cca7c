"""Window functions and aggregates over windows in Spark, with PostgreSQL's types, frames and sort order.

Called by `compiler` for a WindowCall with planned operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import Column, Window, WindowSpec
from pyspark.sql import functions as F

from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.builtin import Function
from headgate.expression.implementation.window_function import WINDOW_FUNCTIONS, constant_whole
from headgate.expression.node import Aggregate, Expression, WindowCall
from headgate.expression.spark import aggregate
from headgate.expression.spark.aggregate_call import Ordering
from headgate.expression.spark.comparison import directed, equal_keys
from headgate.expression.spark.value import Env, Value, refuse, settle
from headgate.types import registry


def compiled(called: Function) -> bool:
    """Return whether `build` supports the window function or aggregate."""
    return aggregate.compiled(called) if called.kind == "a" else called.key in WINDOW_FUNCTIONS


def build(node: WindowCall, args: Sequence[Value], partition: Sequence[Value], order: Sequence[Ordering], condition: Value | None) -> Value:
    """Return the call's Column, for use in a projection."""
    called = builtin.function(node.function)
    keys = [equal_keys(value, expression.type) for value, expression in zip(partition, node.partition, strict=True)]
    if called.kind == "a":
        spec = _spec(node, keys, order, framed=True)
        call = Aggregate(type=node.type, function=node.function, args=node.args, star=node.star, filter=node.filter)
        aggregated = aggregate.build(call, args, condition)
        return replace(aggregated, make=lambda env: aggregated.make(replace(env, window=spec(env))), raw=None)
    entry = WINDOW_FUNCTIONS.get(called.key)
    if entry is None:
        raise refuse(f"window function {called.name}")
    return entry.spark(node, args, _spec(node, keys, order, framed=entry.framed))


def _spec(node: WindowCall, keys: Sequence[Value], order: Sequence[Ordering], *, framed: bool) -> Callable[[Env], WindowSpec]:
    bounds = _bounds(node)

    def make(env: Env) -> WindowSpec:
        spec = Window.partitionBy(*(settle(key)(env) for key in keys)) if keys else Window.partitionBy(F.lit(0))
        if order:
            spec = spec.orderBy(*(_direction(item)(env) for item in order))
        elif node.frame.mode == "ROWS" or not framed:
            spec = spec.orderBy(F.lit(0))  # Spark requires an order, PostgreSQL does not
        if framed and (order or node.frame.mode == "ROWS"):
            spec = spec.rowsBetween(*bounds) if node.frame.mode == "ROWS" else spec.rangeBetween(*bounds)
        return spec

    return make


def _direction(item: Ordering) -> Callable[[Env], Column]:
    key = settle(equal_keys(item.value, item.kind))
    return lambda env: directed(key(env), descending=item.descending, nulls_first=item.nulls_first)


def _bounds(node: WindowCall) -> tuple[int, int]:
    """Return the frame's bounds as Spark counts them."""
    frame, (start, end) = node.frame, node.offsets
    if frame.mode == "RANGE" and (start or end) and node.order[0][0].type.oid not in registry.INTEGERS:
        raise not_supported("RANGE frames with an offset are supported over whole numbers only")
    return _frame_bound(frame.start, start, "starting"), _frame_bound(frame.end, end, "ending")


def _frame_bound(kind: str, offset: Expression | None, word: str) -> int:
    fixed = {
        "unbounded preceding": Window.unboundedPreceding,
        "unbounded following": Window.unboundedFollowing,
        "current": Window.currentRow,
    }
    if kind in fixed:
        return fixed[kind]
    assert offset is not None
    distance = constant_whole(offset)
    if distance < 0:
        raise PostgresError("22013", f"frame {word} offset must not be negative")
    return -distance if kind == "preceding" else distance
