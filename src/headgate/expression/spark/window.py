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
from headgate.expression.node import Aggregate, Const, Expression, FuncExpr, WindowCall
from headgate.expression.spark import aggregate
from headgate.expression.spark.collecting_aggregate import Ordering
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import FLOAT8, INT4, INT8, Env, Value, refuse, settle
from headgate.types import registry

_COUNTED: dict[str, Callable[[], Column]] = {"row_number": F.row_number, "rank": F.rank, "dense_rank": F.dense_rank}
_SHARES: dict[str, Callable[[], Column]] = {"percent_rank": F.percent_rank, "cume_dist": F.cume_dist}
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
    framed = found.name in ("first_value", "last_value", "nth_value")
    spec = _spec(node, keys, order, framed=framed)
    if found.name in _COUNTED:
        counted = _COUNTED[found.name]
        return Value(INT8, lambda env: counted().over(spec(env)).cast("bigint"))
    if found.name in _SHARES:
        share = _SHARES[found.name]
        return Value(FLOAT8, lambda env: share().over(spec(env)))
    if found.name == "ntile":
        buckets = _whole(node.args[0])
        if buckets <= 0:
            raise PostgresError("22014", "argument of ntile must be greater than zero")
        return Value(INT4, lambda env: F.ntile(buckets).over(spec(env)))
    if framed:
        return _framed(found.name, node, args, spec)
    if found.name in ("lag", "lead"):
        return _shifted(found.name, node, args, spec)
    raise refuse(f"window function {found.name}")


def _framed(name: str, node: WindowCall, args: Sequence[Value], spec: Callable[[Env], WindowSpec]) -> Value:
    value = settle(args[0])
    if name == "nth_value":
        place = _whole(node.args[1])
        if place <= 0:
            raise PostgresError("22016", "argument of nth_value must be greater than zero")
        return Value(args[0].rep, lambda env: F.nth_value(value(env), place).over(spec(env)))
    pick = F.first if name == "first_value" else F.last
    return Value(args[0].rep, lambda env: pick(value(env)).over(spec(env)))


def _shifted(name: str, node: WindowCall, args: Sequence[Value], spec: Callable[[Env], WindowSpec]) -> Value:
    """lag and lead: the value in a struct, so that a NULL value is told from a row that is not there."""
    distance = _whole(node.args[1]) if len(args) > 1 else 1
    shift = F.lag if name == "lag" else F.lead
    value = settle(args[0])
    other = settle(args[2]) if len(args) > 2 else None

    def make(env: Env) -> Column:
        there = shift(F.struct(value(env).alias("v")), distance).over(spec(env))
        if other is None:
            return there["v"]
        return F.when(F.isnull(there), other(env)).otherwise(there["v"])

    if other is not None and args[2].rep != args[0].rep:
        raise refuse(f"{name} whose default is held in another way than its value")
    return Value(args[0].rep, make)


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
    distance = _whole(offset)
    if distance < 0:
        raise PostgresError("22013", f"frame {word} offset must not be negative")
    return -distance if kind == "preceding" else distance


def _whole(expression: Expression) -> int:
    """The value of a whole constant, also behind a cast."""
    while isinstance(expression, FuncExpr) and len(expression.args) == 1:
        expression = expression.args[0]
    if isinstance(expression, Const) and expression.value is not None and expression.value.lstrip("-").isdigit():
        return int(expression.value)
    raise not_supported("window functions and frames take constant whole numbers only")
