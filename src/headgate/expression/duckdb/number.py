"""Numbers in DuckDB: arithmetic with PostgreSQL's errors and digits.

Used by `implementation.number.integer`, `floating_point`, `numeric` and `system`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.value import MAX_DIGITS, DuckdbForm, Env, duckdb_type, raised, refuse, scale


def integer(symbol: str) -> DuckdbForm:
    """Return the form of an operator of two integers, in the wider one's type. DuckDB raises an error on overflow."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        kind = duckdb_type(node.type.oid)
        left, right = (
            sql if operand.type.oid == node.type.oid else f"CAST({sql} AS {kind})" for operand, sql in zip(operands, args, strict=True)
        )
        return f"({left} {symbol} {right})"

    return build


def floating(symbol: str) -> DuckdbForm:
    """Return the form of an operator of two floating-point numbers. It raises if finite operands overflow or underflow to zero."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        result = node.type.oid
        a, b = (f"CAST({arg} AS {duckdb_type(result)})" for arg in args)
        result_sql = f"({a} {symbol} {b})"
        if symbol == "/":
            zero = raised("22012", "division by zero", result)
            result_sql = f"CASE WHEN {b} = 0 AND NOT isnan({a}) THEN {zero} ELSE {result_sql} END"
        over = raised("22003", "value out of range: overflow", result)
        checks = f"WHEN isinf({result_sql}) AND NOT isinf({a}) AND NOT isinf({b}) THEN {over}"
        if symbol in "*/":
            under = raised("22003", "value out of range: underflow", result)
            nothing = f"{a} <> 0 AND {b} <> 0" if symbol == "*" else f"{a} <> 0 AND NOT isinf({b})"
            checks += f" WHEN {result_sql} = 0 AND {nothing} THEN {under}"
        return f"CASE {checks} ELSE {result_sql} END"

    return build


def numeric(symbol: str) -> DuckdbForm:
    """Return the form of an operator of one or two numerics. Their scales must be known, so that the result's scale is."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        scales = [scale(operand, env) for operand in operands]
        if None in scales or sum(digits or 0 for digits in scales) > MAX_DIGITS // 2:
            raise refuse(f"operator numeric {symbol} numeric", node)
        if len(args) == 1:
            return f"({symbol}{args[0]})"
        if symbol == "*":
            return f"({args[0]} * {args[1]})"
        widest = max(digits or 0 for digits in scales)
        left, right = (f"CAST({arg} AS DECIMAL({MAX_DIGITS},{widest}))" for arg in args)
        return f"({left} {symbol} {right})"

    return build


def moved(symbol: str) -> DuckdbForm:
    """Return the form of pg_lsn ± a whole number of bytes."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        if scale(operands[1], env) != 0:
            raise refuse("a position moved by part of a byte", node)
        return f"CAST(CAST({args[0]} AS HUGEINT) {symbol} CAST({args[1]} AS HUGEINT) AS UBIGINT)"

    return build
