"""Compile the call of a function or operator over compiled arguments to DuckDB's SQL.

Called by `compiler`. The function's entry (`expression.implementation`) has a template of the call's SQL, or a form that needs the
arguments' types or constants. Comparisons are compiled by `comparison`, casts by `cast`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import comparison, literal
from headgate.expression.duckdb.template import filled
from headgate.expression.duckdb.value import Env, null, refuse
from headgate.expression.implementation.implementation import Guarded, Implementation
from headgate.expression.implementation.implementations import IMPLEMENTATIONS
from headgate.expression.spark import literal as spark_literal
from headgate.expression.spark.session_time import planning
from headgate.types import registry as t


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return the SQL of a call over the SQL of its arguments. Raise 0A000 if the function has no DuckDB form."""
    called = builtin.function(function)
    entry = IMPLEMENTATIONS.get(called.key)
    form = entry.duckdb if entry is not None else None
    folded = None if form is not None or entry is None else _of_constants(entry, called.strict, node, operands, env)
    if folded is not None:
        return folded
    if form is None:
        kinds = [t.format_type(argument) for argument in called.arguments]
        if isinstance(node, n.OpExpr):
            raise refuse(" ".join(("operator", *kinds[:-1], builtin.operator(node.operator).name, kinds[-1])), node)
        raise refuse(f"function {called.name}({', '.join(kinds)})", node)
    if not isinstance(form, str):
        return form(node, operands, args, env)
    call_sql = filled(form, node, operands, args, env)
    nullable = [
        operand_sql
        for operand, operand_sql in zip(operands, args, strict=True)
        if not (isinstance(operand, n.Const) and operand.value is not None)
    ]
    if not isinstance(form, Guarded) or not nullable:
        return call_sql
    return f"CASE WHEN {' AND '.join(f'{operand_sql} IS NOT NULL' for operand_sql in nullable)} THEN {call_sql} END"


def _of_constants(known: Implementation, strict: bool, node: n.Expression, operands: Sequence[n.Expression], env: Env) -> str | None:
    """Return the SQL of the value of a call with only constant arguments, computed immediately. Return None for any other call."""
    constants = [operand for operand in operands if isinstance(operand, n.Const)]
    if known.spark is None or len(constants) < len(operands):
        return None
    if strict and any(constant.value is None for constant in constants):
        return null(node.type.oid)
    with planning(None):
        value = known.spark(node, [spark_literal.constant(constant) for constant in constants])
    if value.is_null:
        return null(node.type.oid)
    return None if value.constant is None else literal.constant(n.Const(type=node.type, value=value.constant), env)


def operate(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """Return the SQL of an operator over the SQL of its operands."""
    called = builtin.operator(operator)
    if called.name in comparison.OPERATORS and called.kind == "b" and called.result == t.BOOL:
        return comparison.compare(called, operands[0], operands[1], args[0], args[1], env)
    return apply(called.function, node, operands, args, env)
