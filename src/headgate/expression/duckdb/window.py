"""Window functions in DuckDB, and aggregates over a window. Called by `compiler`."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import aggregate, comparison
from headgate.expression.duckdb.aggregate import Compile
from headgate.expression.duckdb.value import Env, refuse
from headgate.expression.implementation.window_function import WINDOW_FUNCTIONS
from headgate.types import registry as t


def sql(node: n.WindowCall, args: Sequence[str], env: Env, compile_: Compile) -> str:
    """Return the SQL of a window function over the SQL of its arguments."""
    called = builtin.function(node.function)
    over = f" OVER ({_window(node, env, compile_)})"
    if called.kind == "a":
        inner = n.Aggregate(type=node.type, function=node.function, args=node.args, star=node.star, filter=node.filter)
        return aggregate.sql(inner, args, env, compile_, over)
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
        parts.append(f"ORDER BY {', '.join(aggregate.ordered(item, env, compile_) for item in node.order)}")
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
