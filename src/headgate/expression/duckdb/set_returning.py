"""Calls of set-returning functions in DuckDB: as a list, which a query unnests, or as a query.

Called by `compiler` for calls in a SELECT list, and by `commands.query.catalog.from_item` for calls in FROM. The DuckDB form of each
function is in its entry (`expression.implementation.set_returning`).
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb.value import Env, refuse
from headgate.expression.implementation.set_returning import SETS, CatalogRows


def unnested(node: n.FuncExpr, args: Sequence[str], env: Env) -> str:
    """Return a set in a SELECT list, with a row for each of its values."""
    row_set = rows(node, args, env)
    if not row_set.list_sql:
        raise refuse(f"function {builtin.function(node.function).name} outside of FROM", node)
    return f"unnest({row_set.list_sql})"


def rows(node: n.FuncExpr, args: Sequence[str], env: Env, *, in_from: bool = False) -> CatalogRows:
    """Return the set. `in_from` allows a query."""
    function = builtin.function(node.function)
    form = SETS.get(function.key)
    if form is None or form.duckdb is None:
        raise refuse(f"function {function.name}", node)
    return form.duckdb(node, args, env, in_from)


def is_query(node: n.Expression) -> bool:
    """Return whether a call is a set that cannot be a list."""
    form = SETS.get(builtin.function(node.function).key) if isinstance(node, n.FuncExpr) else None
    return form is not None and form.from_only
