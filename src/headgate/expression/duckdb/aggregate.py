"""Compile the call of an aggregate to DuckDB's SQL, with DISTINCT, ORDER BY and FILTER.

Called by `compiler`. `window_sql` compiles window functions, and aggregates over a window. The DuckDB form of each aggregate is in its
entry (`expression.implementation.aggregate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import comparison
from headgate.expression.duckdb.value import Env, refuse
from headgate.expression.implementation.implementations import AGGREGATES
from headgate.expression.implementation.window_function import WINDOW_FUNCTIONS
from headgate.types import registry as t

Compile = Callable[[n.Expression, Env], str]


def sql(node: n.Aggregate, args: Sequence[str], env: Env, compile_: Compile, over: str = "") -> str:
    """Return the SQL of an aggregate over the SQL of its arguments. `over` is the window, with OVER."""
    called = builtin.function(node.function)
    entry = AGGREGATES.get(called.name)
    call = entry.duckdb(node, args, env) if entry is not None and entry.duckdb is not None else None
    if call is None:
        raise refuse(f"the aggregate {called.name}({', '.join(t.format_type(argument.type.oid) for argument in node.args)})", node)
    order = f" ORDER BY {', '.join(ordered(item, env, compile_) for item in node.order)}" if node.order else ""
    condition = f" FILTER (WHERE {compile_(node.filter, env)})" if node.filter is not None else ""
    if node.distinct:
        for argument, arg in zip(node.args, args, strict=True):
            comparison.sort_key(argument, arg, env)
    distinct = "DISTINCT " if node.distinct else ""
    return call.around.format(f"{call.function}({distinct}{call.arguments}{order}){condition}{over}")


def ordered(item: tuple[n.Expression, bool, bool], env: Env, compile_: Compile) -> str:
    """Return an item of ORDER BY inside a call or a window."""
    expression, descending, first = item
    key = comparison.sort_key(expression, compile_(expression, env), env)
    return f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def window_sql(node: n.WindowCall, args: Sequence[str], env: Env, compile_: Compile) -> str:
    """Return the SQL of a window function over the SQL of its arguments."""
    called = builtin.function(node.function)
    over = f" OVER ({_window(node, env, compile_)})"
    if called.kind == "a":
        inner = n.Aggregate(type=node.type, function=node.function, args=node.args, star=node.star, filter=node.filter)
        return sql(inner, args, env, compile_, over)
    entry = WINDOW_FUNCTIONS.get(called.key)
    if entry is None or entry.duckdb is None:
        raise refuse(f"the window function {called.name}", node)
    return entry.duckdb.format(*args) + over


def _window(node: n.WindowCall, env: Env, compile_: Compile) -> str:
    parts = []
    if node.partition:
        parts.append(
            f"PARTITION BY {', '.join(comparison.sort_key(expression, compile_(expression, env), env) for expression in node.partition)}"
        )
    if node.order:
        parts.append(f"ORDER BY {', '.join(ordered(item, env, compile_) for item in node.order)}")
    if node.frame != n.Frame():
        parts.append(_frame(node, env, compile_))
    return " ".join(parts)


def _frame(node: n.WindowCall, env: Env, compile_: Compile) -> str:
    ends = []
    for end, offset in zip((node.frame.start, node.frame.end), node.offsets, strict=True):
        if offset is not None and (node.frame.mode != "ROWS" or offset.type.oid != t.INT8):
            raise refuse("this frame of a window", node)
        ends.append({"current": "CURRENT ROW"}.get(end, f"{compile_(offset, env)} {end}" if offset is not None else end))
    return f"{node.frame.mode} BETWEEN {ends[0]} AND {ends[1]}"
