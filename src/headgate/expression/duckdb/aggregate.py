"""Aggregates in DuckDB: which it has, with DISTINCT, ORDER BY and FILTER. Called by `compiler`, and by `window` for those over a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import comparison, json
from headgate.expression.duckdb.value import Env, element_of, refuse, scale
from headgate.types import registry as t

Compile = Callable[[n.Expression, Env], str]
_SUMS = {t.INT2: "CAST({} AS BIGINT)", t.INT4: "CAST({} AS BIGINT)", t.INT8: "CAST({} AS DECIMAL(38,0))", t.NUMERIC: "{}"}
_PLAIN = {"bool_and": "bool_and", "bool_or": "bool_or", "every": "bool_and", "bit_and": "bit_and", "bit_or": "bit_or"}


def sql(node: n.Aggregate, args: Sequence[str], env: Env, compile_: Compile) -> str:
    """The SQL of an aggregate over the SQL of its arguments."""
    found = builtin.function(node.function)
    order = "".join(f" ORDER BY {', '.join(ordered(each, env, compile_) for each in node.order)}" if node.order else "")
    condition = f" FILTER (WHERE {compile_(node.filter, env)})" if node.filter is not None else ""
    around, name, inside = _parts(node, found.name, args, env)
    if node.distinct:
        for each, arg in zip(node.args, args, strict=True):
            comparison.sort_key(each, arg, env)
        inside = f"DISTINCT {inside}"
    return around.format(f"{name}({inside}{order}){condition}")


def ordered(item: tuple[n.Expression, bool, bool], env: Env, compile_: Compile) -> str:
    """An item of an ORDER BY inside of a call, or of a window."""
    expression, descending, first = item
    key = comparison.sort_key(expression, compile_(expression, env), env)
    return f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _parts(node: n.Aggregate, name: str, args: Sequence[str], env: Env) -> tuple[str, str, str]:
    """(what stands around the call, DuckDB's name, its arguments)."""
    kind = node.args[0].type.oid if node.args else 0
    if name == "count":
        return "{}", "count", "*" if node.star else args[0]
    if name == "sum" and kind in _SUMS:
        if kind == t.NUMERIC and scale(node.args[0], env) is None:
            raise refuse("a numeric value whose scale is not known", node)
        return _SUMS[kind], "sum", args[0]
    if name in ("min", "max") and comparison.in_order(kind) and kind not in (t.BPCHAR, t.INTERVAL):
        comparison.sort_key(node.args[0], args[0], env)
        return "{}", name, args[0]
    if name in _PLAIN and kind in (t.BOOL, t.INT2, t.INT4, t.INT8):
        return "{}", _PLAIN[name], args[0]
    if name == "string_agg" and kind == t.TEXT and (isinstance(node.args[1], n.Const) or not node.distinct):
        if not isinstance(node.args[1], (n.Const, n.Param)):
            raise refuse("string_agg with a delimiter that is no constant", node)
        delimiter = args[1] if isinstance(node.args[1], n.Const) and node.args[1].value is not None else f"coalesce({args[1]}, '')"
        return "{}", "string_agg", f"{args[0]}, {delimiter}"
    if name == "array_agg" and element_of(kind) is None:
        return "{}", "list", args[0]
    if name == "json_agg" and not node.distinct:
        return "('[' || {} || ']')", "string_agg", f"{json.value(node.args[0], args[0], env)}, ', '"
    raise refuse(f"the aggregate {name}({', '.join(t.format_type(each.type.oid) for each in node.args)})", node)
