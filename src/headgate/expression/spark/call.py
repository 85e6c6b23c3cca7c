"""The call of a function over planned arguments: which functions are compiled, and how a call treats NULL, errors and collations.

Called by `compiler`. How a call of a function is made, and what a call must know of it, stands with the function
(`expression.implementation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import functions as F

from headgate.errors import not_supported
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.implementation.implementation import Implementation, Raises
from headgate.expression.implementation.implementations import IMPLEMENTATIONS
from headgate.expression.spark.common_subexpression import once
from headgate.expression.spark.comparison import C_COLLATIONS
from headgate.expression.spark.value import Make, Remembered, Value, after, missing, refuse_function, settle, spark_type
from headgate.types import registry

_NUMBERS = frozenset({registry.INT2, registry.INT4, registry.INT8, registry.FLOAT4, registry.FLOAT8, registry.NUMERIC})


def implementation(function: int) -> Implementation | None:
    """What a node has of a function (by oid); None where Spark has no form of it."""
    known = IMPLEMENTATIONS.get(builtin.function(function).key)
    return known if known is not None and known.spark is not None else None


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    """A call of a function over planned arguments.

    Spark skips an operand once an earlier one is NULL; PostgreSQL evaluates all of them first, and so raises what they raise: an
    operand that may raise is looked at before the call. A constant NULL makes a strict call NULL before anything is evaluated but the
    constant operands, which PostgreSQL has computed by then; as Spark leaves out a call of which it finds an operand to be NULL as it
    plans, they are looked at too. Looking at an operand doubles it in the expression: where no other can be NULL it is not done, so
    that 1 + 1 + 1 + … stays as long as it is.
    """
    found = builtin.function(function)
    known = implementation(function)
    if known is None or known.spark is None:
        shown = registry.format_type
        raise refuse_function(found, f"function {found.name}({', '.join(shown(argument) for argument in found.arguments)})")
    value = known.spark(node, args)
    if not found.strict:
        return value
    raisers = [place for place, operand in enumerate(operands) if may_raise(operand)]
    may_be_null = [not _never_null(each) for each in operands]
    if any(each.is_null for each in args):
        made = Value(value.rep, lambda env: F.lit(None).cast(spark_type(value.rep)), is_null=True)
    elif value.rep.name == "digits" or value.raw is not None:
        return value
    elif known.null_first:
        made = _looked_at(value, [settle(each) for each in args])
    elif raisers == [1] and known.commuted is not None:
        made = known.commuted(node, args)
    elif raisers and any(may_be_null[: raisers[-1]]):
        made = _looked_at(value, [settle(args[place]) for place in raisers])
    else:
        made = value
    fixed = [settle(args[place]) for place in raisers if not varies(operands[place])]
    usual = after(fixed, made) if fixed and len(args) > 1 and any(may_be_null) else made
    whole = usual if usual.is_null else once(known.spark, node, operands, args, usual)
    return replace(whole, make=Remembered(whole.make))


def _looked_at(value: Value, watched: Sequence[Make]) -> Value:
    """The value, NULL where one of the watched operands is."""
    return replace(value, make=lambda env: F.when(missing(watched, env) > 0, F.lit(None)).otherwise(value.make(env)))


def _never_null(operand: n.Expression) -> bool:
    """Whether an expression is arithmetic with constants that are not NULL."""
    match operand:
        case n.Const():
            return operand.value is not None
        case n.OpExpr() | n.FuncExpr():
            return operand.type.oid in _NUMBERS and all(each.type.oid in _NUMBERS and _never_null(each) for each in operand.args)
        case n.Relabel():
            return _never_null(operand.arg)
        case _:
            return False


def is_silent(function: int) -> bool:
    """Whether a function never raises, whatever its operands are."""
    known = implementation(function)
    return known is not None and known.raises is Raises.NEVER


def may_raise(operand: n.Expression) -> bool:
    """Whether the evaluation of an expression can end in an error."""
    for each in n.walk(operand):
        if isinstance(each, (n.FuncExpr, n.OpExpr, n.ScalarArrayOp)):
            function = each.function if isinstance(each, n.FuncExpr) else builtin.operator(each.operator).function
            known = implementation(function)
            if known is None or known.may_raise(each.args):
                return True
        elif isinstance(each, (n.CoerceViaIO, n.ArrayCoerce, n.DomainCoerce)) or (isinstance(each, n.ArrayExpr) and each.nested):
            return True
    return False


def varies(operand: n.Expression) -> bool:
    """Whether an expression depends on the row."""
    return any(isinstance(each, n.ColumnRef) for each in n.walk(operand))


def check_collation(node: n.Expression, function: int, args: Sequence[n.Expression]) -> None:
    """0A000 for a function that depends on the order of characters, over text whose order is not that of its bytes."""
    known = implementation(function)
    if known is not None and known.any_collation:
        return
    for each in args:
        if each.type.collation not in C_COLLATIONS:
            name = builtin.builtins().collation_names.get(each.type.collation, str(each.type.collation))
            raise not_supported(f'collation "{name}" is not supported: only text in the order of its bytes can be compared exactly')


def by_operator(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    """As `apply`, by the function of an operator."""
    function = builtin.operator(operator).function
    check_collation(node, function, operands)
    called = n.OpExpr(type=n.BOOLEAN, operator=operator, args=tuple(operands), location=node.location)
    return apply(function, called, operands, args)
