"""Compile the call of an aggregate to DuckDB's SQL, with DISTINCT, ORDER BY and FILTER.

Called by `compiler`, and by `window` for aggregates over a window. The DuckDB form of each aggregate is in its entry
(`expression.implementation.aggregate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import comparison
from headgate.expression.duckdb.value import Env, refuse
from headgate.expression.implementation.implementations import AGGREGATES
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
