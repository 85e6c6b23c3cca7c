"""Arrays in DuckDB, as its lists. Forms of `implementation.array`."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.value import Env, refuse, zero_based


def contains(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """@>: no NULL is an element of another array."""
    known = " AND ".join(f"{each} IS NOT NULL" for each in args)
    return f"CASE WHEN {known} THEN list_has_all({args[0]}, {args[1]}) AND list_count({args[1]}) = len({args[1]}) END"


def contained(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """<@."""
    return contains(node, operands, [args[1], args[0]], env)


def beside(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Two arrays as one; a NULL is no array, and what counts from 0 is refused."""
    if any(zero_based(each, env) for each in operands):
        raise refuse("an array that counts from 0, beside another", node)
    return f"CASE WHEN {args[0]} IS NULL THEN {args[1]} WHEN {args[1]} IS NULL THEN {args[0]} ELSE list_concat({args[0]}, {args[1]}) END"
