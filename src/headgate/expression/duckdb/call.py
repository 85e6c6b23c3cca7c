"""The call of a function or operator over compiled arguments, in DuckDB's SQL.

Called by `compiler`. What a call becomes stands with the function (`expression.implementation`): a template, or a form that needs the
arguments' types or constants. Comparison is `comparison`'s, casts are `cast`'s.
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
    """A call of a function over the SQL of its arguments; 0A000 for a function that DuckDB has not."""
    found = builtin.function(function)
    known = IMPLEMENTATIONS.get(found.key)
    form = known.duckdb if known is not None else None
    folded = None if form is not None or known is None else _of_constants(known, found.strict, node, operands, env)
    if folded is not None:
        return folded
    if form is None:
        kinds = [t.format_type(each) for each in found.arguments]
        if isinstance(node, n.OpExpr):
            raise refuse(" ".join(("operator", *kinds[:-1], builtin.operator(node.operator).name, kinds[-1])), node)
        raise refuse(f"function {found.name}({', '.join(kinds)})", node)
    if not isinstance(form, str):
        return form(node, operands, args, env)
    made = filled(form, node, operands, args, env)
    watched = [sql for operand, sql in zip(operands, args, strict=True) if not (isinstance(operand, n.Const) and operand.value is not None)]
    if not isinstance(form, Guarded) or not watched:
        return made
    return f"CASE WHEN {' AND '.join(f'{each} IS NOT NULL' for each in watched)} THEN {made} END"


def _of_constants(known: Implementation, strict: bool, node: n.Expression, operands: Sequence[n.Expression], env: Env) -> str | None:
    """A call of constants alone, of a function on single values: its value, computed at once. None for any other."""
    given = [each for each in operands if isinstance(each, n.Const)]
    if known.spark is None or len(given) < len(operands):
        return None
    if strict and any(each.value is None for each in given):
        return null(node.type.oid)
    with planning(None):
        value = known.spark(node, [spark_literal.constant(each) for each in given])
    if value.is_null:
        return null(node.type.oid)
    return None if value.constant is None else literal.constant(n.Const(type=node.type, value=value.constant), env)


def operate(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """An operator over the SQL of its operands."""
    found = builtin.operator(operator)
    if found.name in comparison.OPERATORS and found.kind == "b" and found.result == t.BOOL:
        return comparison.compare(found, operands[0], operands[1], args[0], args[1], env)
    return apply(found.function, node, operands, args, env)
