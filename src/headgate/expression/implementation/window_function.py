"""The implementations of PostgreSQL's window functions (manual, 9.22): their forms for each engine.

`WINDOW_FUNCTIONS` holds them by PostgreSQL's key. The compilers' `window` looks calls up there. Aggregates over a window are in
`implementation.aggregate`.

    spark        builds the value of a call over its planned arguments and its window
    framed       whether the function depends on the frame; otherwise it uses all rows of the partition
    duckdb       a template of the call in a query on the system catalogs, in which {0} is the argument; None: not supported
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
    """The forms of one window function. The module docstring describes the fields."""

    spark: Callable[[WindowCall, Sequence[Value], Spec], Value]
    framed: bool = False
    duckdb: str | None = None


def constant_whole(expression: Expression) -> int:
    """Return the value of an integer constant, which may be cast. Raise 0A000 for any other expression."""
    while isinstance(expression, FuncExpr) and len(expression.args) == 1:
        expression = expression.args[0]
    if isinstance(expression, Const) and expression.value is not None and expression.value.lstrip("-").isdigit():
        return int(expression.value)
    raise not_supported("window functions and frames take constant whole numbers only")


def _by_position(function: Callable[[], Column], rep: Rep) -> Callable[[WindowCall, Sequence[Value], Spec], Value]:
    """Return the form of a function that depends only on the row's position."""

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
    position, value = constant_whole(node.args[1]), settle(args[0])
    if position <= 0:
        raise PostgresError("22016", "argument of nth_value must be greater than zero")
    return Value(args[0].rep, lambda env: F.nth_value(value(env), position).over(spec(env)))


def _by_row_of_frame(pick: Callable[[Column], Column]) -> Callable[[WindowCall, Sequence[Value], Spec], Value]:
    def build(node: WindowCall, args: Sequence[Value], spec: Spec) -> Value:
        value = settle(args[0])
        return Value(args[0].rep, lambda env: pick(value(env)).over(spec(env)))

    return build


def _shift(node: WindowCall, args: Sequence[Value], spec: Spec, *, name: str) -> Value:
    """Return lag or lead. The value is wrapped in a struct, to distinguish a NULL value from a missing row."""
    distance = constant_whole(node.args[1]) if len(args) > 1 else 1
    shift = F.lag if name == "lag" else F.lead
    value = settle(args[0])
    default = settle(args[2]) if len(args) > 2 else None

    def make(env: Env) -> Column:
        shifted_row = shift(F.struct(value(env).alias("v")), distance).over(spec(env))
        if default is None:
            return shifted_row["v"]
        return F.when(F.isnull(shifted_row), default(env)).otherwise(shifted_row["v"])

    if default is not None and args[2].rep != args[0].rep:
        raise refuse(f"{name} whose default is held in another way than its value")
    return Value(args[0].rep, make)


_LAG = WindowImplementation(functools.partial(_shift, name="lag"))
_LEAD = WindowImplementation(functools.partial(_shift, name="lead"))
WINDOW_FUNCTIONS = {
    "window_row_number": WindowImplementation(_by_position(F.row_number, INT8), duckdb="row_number()"),
    "window_rank": WindowImplementation(_by_position(F.rank, INT8), duckdb="rank()"),
    "window_dense_rank": WindowImplementation(_by_position(F.dense_rank, INT8), duckdb="dense_rank()"),
    "window_percent_rank": WindowImplementation(_by_position(F.percent_rank, FLOAT8)),
    "window_cume_dist": WindowImplementation(_by_position(F.cume_dist, FLOAT8)),
    "window_ntile": WindowImplementation(_ntile),
    "window_lag": replace(_LAG, duckdb="lag({0})"),
    "window_lag_with_offset": _LAG,
    "window_lag_with_offset_and_default": _LAG,
    "window_lead": replace(_LEAD, duckdb="lead({0})"),
    "window_lead_with_offset": _LEAD,
    "window_lead_with_offset_and_default": _LEAD,
    "window_first_value": WindowImplementation(_by_row_of_frame(F.first), framed=True, duckdb="first_value({0})"),
    "window_last_value": WindowImplementation(_by_row_of_frame(F.last), framed=True, duckdb="last_value({0})"),
    "window_nth_value": WindowImplementation(_nth_value, framed=True),
}
