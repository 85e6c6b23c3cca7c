"""Functions that build JSON in DuckDB, in PostgreSQL's spelling (``{"a" : 1}``, ``[1, 2]``).

Used by `implementation.json`. `aggregate` uses `value`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb import cast
from headgate.expression.duckdb.value import NUMBERS, Env, base_of, element_of, raised, refuse
from headgate.types import registry as t


def value(node: n.Expression, sql: str, env: Env) -> str:
    kind = base_of(node.type.oid)
    if kind == t.BOOL:
        return f"CASE WHEN {sql} THEN 'true' WHEN NOT {sql} THEN 'false' ELSE 'null' END"
    if kind in (t.JSON, t.JSONB) or (kind in NUMBERS and kind not in (t.FLOAT4, t.FLOAT8)):
        return f"coalesce({cast.text(node, sql, env)}, 'null')"
    if element_of(kind) is not None or kind == t.RECORD or kind in (t.FLOAT4, t.FLOAT8, t.TIMESTAMP, t.TIMESTAMPTZ):
        raise refuse(f"type {t.format_type(kind)} in JSON", node)
    return f"coalesce(CAST(to_json(CAST({cast.text(node, sql, env)} AS VARCHAR)) AS VARCHAR), 'null')"


def built_object(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return json_build_object(key, value, …)."""
    if len(args) % 2 or (isinstance(node, n.FuncExpr) and node.variadic):
        raise refuse("json_build_object of such arguments", node)
    parts = []
    for place in range(0, len(args), 2):
        key = f"CAST(to_json(CAST({cast.text(operands[place], args[place], env)} AS VARCHAR)) AS VARCHAR)"
        missing = raised("22023", "argument must not be null", t.TEXT)
        parts.append(f"coalesce({key}, {missing}) || ' : ' || {value(operands[place + 1], args[place + 1], env)}")
    inside = " || ', ' || ".join(parts) or "''"
    return f"('{{' || {inside} || '}}')"


def built_array(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return json_build_array(value, …)."""
    inside = " || ', ' || ".join(value(operand, sql, env) for operand, sql in zip(operands, args, strict=True)) or "''"
    return f"('[' || {inside} || ']')"


def single(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return to_json(value)."""
    return f"CASE WHEN {args[0]} IS NOT NULL THEN {value(operands[0], args[0], env)} END"
