"""Arrays in DuckDB, as lists. Used by `implementation.array`."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.value import Env, refuse, zero_based


def contains(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return ``@>``. An array with a NULL element is not contained in any array."""
    are_known = " AND ".join(f"{arg} IS NOT NULL" for arg in args)
    return f"CASE WHEN {are_known} THEN list_has_all({args[0]}, {args[1]}) AND list_count({args[1]}) = len({args[1]}) END"


def contained(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return ``<@``."""
    return contains(node, operands, [args[1], args[0]], env)


def beside(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Concatenate two arrays. A NULL array is ignored. Arrays that count from 0 are refused."""
    if any(zero_based(operand, env) for operand in operands):
        raise refuse("an array that counts from 0, beside another", node)
    return f"CASE WHEN {args[0]} IS NULL THEN {args[1]} WHEN {args[1]} IS NULL THEN {args[0]} ELSE list_concat({args[0]}, {args[1]}) END"
