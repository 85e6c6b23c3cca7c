"""What a node has of PostgreSQL's window functions (manual, 9.22): how a call over a window is made for each engine.

`WINDOW_FUNCTIONS` has them by PostgreSQL's key; the compilers' `window` looks calls up there. Aggregates over a window are those of
`implementation.aggregate`.

    spark        makes the value of a call over its planned arguments and its window
    framed       the frame counts: without, all rows of the partition do
    duckdb       the call in a query on the system catalogs: a template in which {0} is the argument; None: it has not got it
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F

from headgate.errors import PostgresError, not_supported
from headgate.expression.node import Const, Expression, FuncExpr, WindowCall
from headgate.expression.spark.value import FLOAT8, INT4, INT8, Env, Rep, Value, refuse, settle

Spec = Callable[[Env], WindowSpec]


@dataclass(frozen=True)
class WindowImplementation:
    """See the module."""

    spark: Callable[[WindowCall, Sequence[Value], Spec], Value]
    framed: bool = False
    duckdb: str | None = None


def constant_whole(expression: Expression) -> int:
    """The value of a whole constant, also behind a cast."""
    while isinstance(expression, FuncExpr) and len(expression.args) == 1:
        expression = expression.args[0]
    if isinstance(expression, Const) and expression.value is not None and expression.value.lstrip("-").isdigit():
        return int(expression.value)
    raise not_supported("window functions and frames take constant whole numbers only")


def _placed(function: Callable[[], Column], rep: Rep) -> Callable[[WindowCall, Sequence[Value], Spec], Value]:
    """A function of a row's place alone."""

    def build(node: WindowCall, args: Sequence[Value], spec: Spec) -> Value:
        if rep == INT8:
            return Value(rep, lambda env: function().over(spec(env)).cast("bigint"))
        return Value(rep, lambda env: function().over(spec(env)))

    return build


def _ntile(node: WindowCall, args: Sequence[Value], spec: Spec) -> Value:
    buckets = constant_whole(node.args[0])
    if buckets <= 0:
        raise PostgresError("22014", "argument of ntile must be greater than zero")
    return Value(INT4, lambda env: F.ntile(buckets).over(spec(env)))


def _nth_value(node: WindowCall, args: Sequence[Value], spec: Spec) -> Value:
    place, value = constant_whole(node.args[1]), settle(args[0])
    if place <= 0:
        raise PostgresError("22016", "argument of nth_value must be greater than zero")
    return Value(args[0].rep, lambda env: F.nth_value(value(env), place).over(spec(env)))


def _picked(pick: Callable[[Column], Column]) -> Callable[[WindowCall, Sequence[Value], Spec], Value]:
    def build(node: WindowCall, args: Sequence[Value], spec: Spec) -> Value:
        value = settle(args[0])
        return Value(args[0].rep, lambda env: pick(value(env)).over(spec(env)))

    return build


def _shifted(node: WindowCall, args: Sequence[Value], spec: Spec, *, name: str) -> Value:
    """lag and lead: the value in a struct, so that a NULL value is told from a row that is not there."""
    distance = constant_whole(node.args[1]) if len(args) > 1 else 1
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


_LAG = WindowImplementation(functools.partial(_shifted, name="lag"))
_LEAD = WindowImplementation(functools.partial(_shifted, name="lead"))
WINDOW_FUNCTIONS = {
    "window_row_number": WindowImplementation(_placed(F.row_number, INT8), duckdb="row_number()"),
    "window_rank": WindowImplementation(_placed(F.rank, INT8), duckdb="rank()"),
    "window_dense_rank": WindowImplementation(_placed(F.dense_rank, INT8), duckdb="dense_rank()"),
    "window_percent_rank": WindowImplementation(_placed(F.percent_rank, FLOAT8)),
    "window_cume_dist": WindowImplementation(_placed(F.cume_dist, FLOAT8)),
    "window_ntile": WindowImplementation(_ntile),
    "window_lag": replace(_LAG, duckdb="lag({0})"),
    "window_lag_with_offset": _LAG,
    "window_lag_with_offset_and_default": _LAG,
    "window_lead": replace(_LEAD, duckdb="lead({0})"),
    "window_lead_with_offset": _LEAD,
    "window_lead_with_offset_and_default": _LEAD,
    "window_first_value": WindowImplementation(_picked(F.first), framed=True, duckdb="first_value({0})"),
    "window_last_value": WindowImplementation(_picked(F.last), framed=True, duckdb="last_value({0})"),
    "window_nth_value": WindowImplementation(_nth_value, framed=True),
}
