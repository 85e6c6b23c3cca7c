"""Compile the call of a function over planned arguments: which functions are compiled, and how a call treats NULL, errors and collations.

Called by `compiler`. How each function is called, and its properties, are in the function's entry (`expression.implementation`).
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


def implementation(function: int) -> Implementation | None:
    """Return the entry of a function, by its oid, or None if the function has no Spark form."""
    entry = IMPLEMENTATIONS.get(builtin.function(function).key)
    return entry if entry is not None and entry.spark is not None else None


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    """Return a call of a function over planned arguments.

    Spark skips an operand if an earlier one is NULL. PostgreSQL evaluates all operands first and raises their errors, so an operand that
    may raise is evaluated before the call. A constant NULL makes a strict call NULL before anything is evaluated except the constant
    operands, which PostgreSQL has already computed. They are evaluated first too, because Spark drops a call if it finds at planning time
    that an operand is NULL. Evaluating an operand first doubles it in the expression. This is not done if no other operand can be NULL, so
    that 1 + 1 + 1 + … does not grow.
    """
    called = builtin.function(function)
    entry = implementation(function)
    if entry is None or entry.spark is None:
        type_name = registry.format_type
        raise refuse_function(called, f"function {called.name}({', '.join(type_name(argument) for argument in called.arguments)})")
    value = entry.spark(node, args)
    if not called.strict:
        return value
    raisers = [index for index, operand in enumerate(operands) if may_raise(operand)]
    may_be_null = [not _never_null(argument) for argument in operands]
    if any(arg.is_null for arg in args):
        guarded = Value(value.rep, lambda env: F.lit(None).cast(spark_type(value.rep)), is_null=True)
    elif value.rep.name == "digits" or value.raw is not None:
        return value
    elif entry.null_first:
        guarded = _looked_at(value, [settle(arg) for arg in args])
    elif raisers == [1] and entry.commuted is not None:
        guarded = entry.commuted(node, args)
    elif raisers and any(may_be_null[: raisers[-1]]):
        guarded = _looked_at(value, [settle(args[index]) for index in raisers])
    else:
        guarded = value
    fixed = [settle(args[index]) for index in raisers if not varies(operands[index])]
    usual = after(fixed, guarded) if fixed and len(args) > 1 and any(may_be_null) else guarded
    whole = usual if usual.is_null else once(entry.spark, node, operands, args, usual)
    return replace(whole, make=Remembered(whole.make))


def _looked_at(value: Value, watched: Sequence[Make]) -> Value:
    """Return the value, or NULL if one of the watched operands is NULL."""
    return replace(value, make=lambda env: F.when(missing(watched, env) > 0, F.lit(None)).otherwise(value.make(env)))


def _never_null(operand: n.Expression) -> bool:
    """Return whether an expression is arithmetic on constants that are not NULL."""
    match operand:
        case n.Const():
            return operand.value is not None
        case n.OpExpr() | n.FuncExpr():
            return operand.type.oid in registry.NUMBERS and all(
                argument.type.oid in registry.NUMBERS and _never_null(argument) for argument in operand.args
            )
        case n.Relabel():
            return _never_null(operand.arg)
        case _:
            return False


def is_silent(function: int) -> bool:
    """Return whether a function never raises, for any operands."""
    entry = implementation(function)
    return entry is not None and entry.raises is Raises.NEVER


def may_raise(operand: n.Expression) -> bool:
    """Return whether evaluating an expression can raise an error."""
    for node in n.walk(operand):
        if isinstance(node, (n.FuncExpr, n.OpExpr, n.ScalarArrayOp)):
            function = node.function if isinstance(node, n.FuncExpr) else builtin.operator(node.operator).function
            entry = implementation(function)
            if entry is None or entry.may_raise(node.args):
                return True
        elif isinstance(node, (n.UserCall, n.CoerceViaIO, n.ArrayCoerce, n.DomainCoerce)) or (
            isinstance(node, n.ArrayExpr) and node.nested
        ):
            return True
    return False


def varies(operand: n.Expression) -> bool:
    """Return whether an expression depends on the row."""
    return any(isinstance(node, n.ColumnRef) for node in n.walk(operand))


def check_collation(function: int, args: Sequence[n.Expression]) -> None:
    """Raise 0A000 if a function depends on the order of characters and its text does not sort by bytes."""
    entry = implementation(function)
    if entry is not None and entry.any_collation:
        return
    for arg in args:
        if arg.type.collation not in C_COLLATIONS:
            name = builtin.builtins().collation_names.get(arg.type.collation, str(arg.type.collation))
            raise not_supported(f'collation "{name}" is not supported: only text in the order of its bytes can be compared exactly')


def by_operator(operator: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    """Return a call of an operator's function, as `apply` does."""
    function = builtin.operator(operator).function
    check_collation(function, operands)
    called = n.OpExpr(type=n.BOOLEAN, operator=operator, args=tuple(operands), location=node.location)
    return apply(function, called, operands, args)
