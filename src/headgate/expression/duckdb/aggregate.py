"""The call of an aggregate in DuckDB's SQL, with DISTINCT, ORDER BY and FILTER.

Called by `compiler`, and by `window` for those over a window. What a call becomes stands with the
aggregate (`expression.implementation.aggregate`).
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
    """The SQL of an aggregate over the SQL of its arguments; `over`: the window, with OVER."""
    found = builtin.function(node.function)
    known = AGGREGATES.get(found.name)
    call = known.duckdb(node, args, env) if known is not None and known.duckdb is not None else None
    if call is None:
        raise refuse(f"the aggregate {found.name}({', '.join(t.format_type(each.type.oid) for each in node.args)})", node)
    order = f" ORDER BY {', '.join(ordered(each, env, compile_) for each in node.order)}" if node.order else ""
    condition = f" FILTER (WHERE {compile_(node.filter, env)})" if node.filter is not None else ""
    if node.distinct:
        for each, arg in zip(node.args, args, strict=True):
            comparison.sort_key(each, arg, env)
    distinct = "DISTINCT " if node.distinct else ""
    return call.around.format(f"{call.function}({distinct}{call.arguments}{order}){condition}{over}")


def ordered(item: tuple[n.Expression, bool, bool], env: Env, compile_: Compile) -> str:
    """An item of an ORDER BY inside of a call, or of a window."""
    expression, descending, first = item
    key = comparison.sort_key(expression, compile_(expression, env), env)
    return f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
