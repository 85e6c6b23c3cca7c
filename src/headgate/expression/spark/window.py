"""Window functions and aggregates over windows, as Spark's, with PostgreSQL's types, frames and order of values.

Called by `compiler` for a WindowCall whose operands are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import Column, Window, WindowSpec
from pyspark.sql import functions as F

from headgate.errors import PostgresError, not_supported
from headgate.expression import builtin
from headgate.expression.implementation.window_function import WINDOW_FUNCTIONS, constant_whole
from headgate.expression.node import Aggregate, Expression, WindowCall
from headgate.expression.spark import aggregate
from headgate.expression.spark.aggregate_call import Ordering
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import Env, Value, refuse, settle
from headgate.types import registry

_WHOLE = frozenset({registry.INT2, registry.INT4, registry.INT8})


def build(node: WindowCall, args: Sequence[Value], partition: Sequence[Value], order: Sequence[Ordering], condition: Value | None) -> Value:
    """The call's Column, to stand in a projection."""
    found = builtin.function(node.function)
    keys = [equal_keys(value, each.type) for value, each in zip(partition, node.partition, strict=True)]
    if found.kind == "a":
        spec = _spec(node, keys, order, framed=True)
        call = Aggregate(type=node.type, function=node.function, args=node.args, star=node.star, filter=node.filter)
        made = aggregate.build(call, args, condition)
        return replace(made, make=lambda env: made.make(replace(env, window=spec(env))), raw=None)
    known = WINDOW_FUNCTIONS.get(found.key)
    if known is None:
        raise refuse(f"window function {found.name}")
    return known.spark(node, args, _spec(node, keys, order, framed=known.framed))


def _spec(node: WindowCall, keys: Sequence[Value], order: Sequence[Ordering], *, framed: bool) -> Callable[[Env], WindowSpec]:
    bounds = _bounds(node)

    def make(env: Env) -> WindowSpec:
        spec = Window.partitionBy(*(settle(each)(env) for each in keys)) if keys else Window.partitionBy(F.lit(0))
        if order:
            spec = spec.orderBy(*(_direction(each)(env) for each in order))
        elif node.frame.mode == "ROWS" or not framed:
            spec = spec.orderBy(F.lit(0))  # Spark asks for an order where PostgreSQL takes any
        if framed and (order or node.frame.mode == "ROWS"):
            spec = spec.rowsBetween(*bounds) if node.frame.mode == "ROWS" else spec.rangeBetween(*bounds)
        return spec

    return make


def _direction(item: Ordering) -> Callable[[Env], Column]:
    key = settle(equal_keys(item.value, item.kind))

    def make(env: Env) -> Column:
        made = key(env)
        if item.descending:
            return made.desc_nulls_first() if item.nulls_first else made.desc_nulls_last()
        return made.asc_nulls_first() if item.nulls_first else made.asc_nulls_last()

    return make


def _bounds(node: WindowCall) -> tuple[int, int]:
    """The frame as Spark counts it."""
    frame, (start, end) = node.frame, node.offsets
    if frame.mode == "RANGE" and (start or end) and node.order[0][0].type.oid not in _WHOLE:
        raise not_supported("RANGE frames with an offset are supported over whole numbers only")
    return _bound(frame.start, start, "starting"), _bound(frame.end, end, "ending")


def _bound(kind: str, offset: Expression | None, word: str) -> int:
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
