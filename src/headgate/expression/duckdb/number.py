"""Numbers in DuckDB: arithmetic with PostgreSQL's errors and digits.

Forms of `implementation.number.integer`, `floating_point`, `numeric` and `system`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import node as n
from headgate.expression.duckdb.value import MAX_DIGITS, DuckdbForm, Env, duckdb_type, raised, refuse, scale


def integer(symbol: str) -> DuckdbForm:
    """An operator of two integers, in the wider one's type; DuckDB raises where it overflows."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        kind = duckdb_type(node.type.oid)
        left, right = (
            sql if operand.type.oid == node.type.oid else f"CAST({sql} AS {kind})" for operand, sql in zip(operands, args, strict=True)
        )
        return f"({left} {symbol} {right})"

    return build


def floating(symbol: str) -> DuckdbForm:
    """An operator of two doubles or reals, which raises where a finite value becomes infinite, or nothing."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        result = node.type.oid
        a, b = (f"CAST({each} AS {duckdb_type(result)})" for each in args)
        made = f"({a} {symbol} {b})"
        if symbol == "/":
            zero = raised("22012", "division by zero", result)
            made = f"CASE WHEN {b} = 0 AND NOT isnan({a}) THEN {zero} ELSE {made} END"
        over = raised("22003", "value out of range: overflow", result)
        checks = f"WHEN isinf({made}) AND NOT isinf({a}) AND NOT isinf({b}) THEN {over}"
        if symbol in "*/":
            under = raised("22003", "value out of range: underflow", result)
            nothing = f"{a} <> 0 AND {b} <> 0" if symbol == "*" else f"{a} <> 0 AND NOT isinf({b})"
            checks += f" WHEN {made} = 0 AND {nothing} THEN {under}"
        return f"CASE {checks} ELSE {made} END"

    return build


def numeric(symbol: str) -> DuckdbForm:
    """An operator of one numeric or two whose scales are known, so that the digits of the result are."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        scales = [scale(each, env) for each in operands]
        if None in scales or sum(each or 0 for each in scales) > MAX_DIGITS // 2:
            raise refuse(f"operator numeric {symbol} numeric", node)
        if len(args) == 1:
            return f"({symbol}{args[0]})"
        if symbol == "*":
            return f"({args[0]} * {args[1]})"
        widest = max(each or 0 for each in scales)
        left, right = (f"CAST({each} AS DECIMAL({MAX_DIGITS},{widest}))" for each in args)
        return f"({left} {symbol} {right})"

    return build


def moved(symbol: str) -> DuckdbForm:
    """A pg_lsn and a whole number of bytes."""

    def build(node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
        if scale(operands[1], env) != 0:
            raise refuse("a position moved by part of a byte", node)
        return f"CAST(CAST({args[0]} AS HUGEINT) {symbol} CAST({args[1]} AS HUGEINT) AS UBIGINT)"

    return build
