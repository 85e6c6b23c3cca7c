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

_WIDE = "decimal(20,0)"
"""A type that holds the sum of two values of type bigint."""
_FAR = 2**31 - 1
"""The greatest distance of a row that Spark accepts."""
_EMPTY = (_FAR, _FAR)
"""A frame of rows that no row has. Spark rejects a frame that ends before it starts, for which PostgreSQL finds no rows."""


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
    has_offset = node.frame.mode == "RANGE" and any(node.offsets)

    def make(env: Env) -> WindowSpec:
        spec = Window.partitionBy(*(settle(key)(env) for key in keys)) if keys else Window.partitionBy(F.lit(0))
        if order:
            spec = spec.orderBy(*(_direction(item, has_offset=has_offset)(env) for item in order))
        elif node.frame.mode == "ROWS" or not framed:
            spec = spec.orderBy(F.lit(0))  # Spark requires an order, PostgreSQL does not
        if framed and (order or node.frame.mode == "ROWS"):
            spec = spec.rowsBetween(*bounds) if node.frame.mode == "ROWS" or bounds == _EMPTY else spec.rangeBetween(*bounds)
        return spec

    return make


def _direction(item: Ordering, *, has_offset: bool) -> Callable[[Env], Column]:
    """Return the sort key with its direction. `has_offset`: Spark adds the frame's offset to the key, which must not overflow."""
    key = settle(equal_keys(item.value, item.kind))

    def make(env: Env) -> Column:
        column = key(env).cast(_WIDE) if has_offset else key(env)
        return directed(column, descending=item.descending, nulls_first=item.nulls_first)

    return make


def _bounds(node: WindowCall) -> tuple[int, int]:
    """Return the frame's bounds as Spark counts them, or `_EMPTY`."""
    frame, (start, end) = node.frame, node.offsets
    if frame.mode == "RANGE" and (start or end) and node.order[0][0].type.oid not in registry.INTEGERS:
        raise not_supported("RANGE frames with an offset are supported over whole numbers only")
    limit = _FAR if frame.mode == "ROWS" else 2**63 - 1
    first, last = _frame_bound(frame.start, start, "starting", limit), _frame_bound(frame.end, end, "ending", limit)
    return (first, last) if first <= last else _EMPTY


def _frame_bound(kind: str, offset: Expression | None, word: str, limit: int) -> int:
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
    return max(-distance, -limit) if kind == "preceding" else min(distance, limit)
