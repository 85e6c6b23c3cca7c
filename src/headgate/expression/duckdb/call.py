"""The call of a function or operator over compiled arguments, in DuckDB's SQL.

Called by `compiler`. What a call becomes stands with the function (`expression.implementation`): a template, or a form that needs the
arguments' types or constants. Comparison is `comparison`'s, casts are `cast`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import comparison
from headgate.expression.duckdb.template import filled
from headgate.expression.duckdb.value import Env, refuse
from headgate.expression.implementation.implementation import Guarded
from headgate.expression.implementation.implementations import IMPLEMENTATIONS
from headgate.types import registry as t


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """A call of a function over the SQL of its arguments; 0A000 for a function that DuckDB has not."""
    found = builtin.function(function)
    known = IMPLEMENTATIONS.get(found.key)
    form = known.duckdb if known is not None else None
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


def operate(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[str], env: Env) -> str:
    """An operator over the SQL of its operands."""
    found = builtin.operator(operator)
    if found.name in comparison.OPERATORS and found.kind == "b" and found.result == t.BOOL:
        return comparison.compare(found, operands[0], operands[1], args[0], args[1], env)
    return apply(found.function, node, operands, args, env)
