"""The call of a function over planned arguments: which functions are compiled, and how a call treats NULL, errors and collations.

Called by `compiler`. The functions stand in the tables of the families (`spark.functions.integer`, `spark.functions.numeric`,
`spark.functions.text`, …) by the key of their implementation, with what a call must know of them (`form`); `FORMS` is all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import functions as F

from headgate.errors import not_supported
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.spark import cast
from headgate.expression.spark.common_subexpression import once
from headgate.expression.spark.comparison import C_COLLATIONS, COMPARISONS
from headgate.expression.spark.form import Builder, Form, Raises
from headgate.expression.spark.functions import (
    array,
    bytea,
    enum_type,
    extract,
    floating_point,
    formatting,
    integer,
    json,
    money,
    network,
    number_cast,
    numeric,
    regex,
    string,
    system,
    text,
    time_of_day,
    time_zone,
    timestamp,
)
from headgate.expression.spark.value import Make, Value, after, missing, refuse, settle, spark_type
from headgate.types import registry

_BUILDERS: dict[str, Builder] = {
    **COMPARISONS,
    **integer.BUILDERS,
    **floating_point.BUILDERS,
    **numeric.BUILDERS,
    **text.BUILDERS,
    **regex.BUILDERS,
    **time_of_day.BUILDERS,
    **extract.BUILDERS,
    **timestamp.BUILDERS,
    **time_zone.BUILDERS,
    **formatting.BUILDERS,
    **cast.BUILDERS,
    **number_cast.BUILDERS,
    **string.BUILDERS,
    **array.BUILDERS,
    **json.BUILDERS,
    **money.BUILDERS,
    **network.BUILDERS,
    **bytea.BUILDERS,
    **system.BUILDERS,
    **enum_type.BUILDERS,
}
FORMS = {key: each if isinstance(each, Form) else Form(each) for key, each in _BUILDERS.items()}
_NUMBERS = frozenset({registry.INT2, registry.INT4, registry.INT8, registry.FLOAT4, registry.FLOAT8, registry.NUMERIC})
_ORDER_FREE = frozenset({"texteq", "textne", "bpchareq", "bpcharne", "nameeq", "namene", "textcat", "textlen", "textlike", "textnlike"})


def apply(function: int, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value]) -> Value:
    """A call of a function over planned arguments.

    Spark skips an operand once an earlier one is NULL; PostgreSQL evaluates all of them first, and so raises what they raise: an
    operand that may raise is looked at before the call. A constant NULL makes a strict call NULL before anything is evaluated but the
    constant operands, which PostgreSQL has computed by then; as Spark leaves out a call of which it finds an operand to be NULL as it
    plans, they are looked at too. Looking at an operand doubles it in the expression: where no other can be NULL it is not done, so
    that 1 + 1 + 1 + … stays as long as it is.
    """
    found = builtin.function(function)
    form = FORMS.get(found.key)
    if form is None:
        shown = registry.format_type
        raise refuse(f"function {found.name}({', '.join(shown(each) for each in found.arguments)})")
    value = form(node, args)
    if not found.strict:
        return value
    raisers = [place for place, operand in enumerate(operands) if may_raise(operand)]
    may_be_null = [not _never_null(each) for each in operands]
    if any(each.is_null for each in args):
        made = Value(value.rep, lambda env: F.lit(None).cast(spark_type(value.rep)), is_null=True)
    elif value.rep.name == "digits" or value.raw is not None:
        return value
    elif form.null_first:
        made = _looked_at(value, [settle(each) for each in args])
    elif raisers and (form.right_first or any(may_be_null[: raisers[-1]])):
        made = _looked_at(value, [settle(args[place]) for place in raisers])
    else:
        made = value
    fixed = [settle(args[place]) for place in raisers if not varies(operands[place])]
    usual = after(fixed, made) if fixed and len(args) > 1 and any(may_be_null) else made
    return usual if usual.is_null else once(form, node, operands, args, usual)


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
    form = FORMS.get(builtin.function(function).key)
    return form is not None and form.raises is Raises.NEVER


def may_raise(operand: n.Expression) -> bool:
    """Whether the evaluation of an expression can end in an error."""
    for each in n.walk(operand):
        if isinstance(each, (n.FuncExpr, n.OpExpr, n.ScalarArrayOp)):
            function = each.function if isinstance(each, n.FuncExpr) else builtin.operator(each.operator).function
            form = FORMS.get(builtin.function(function).key)
            if form is None or form.may_raise(each.args):
                return True
        elif isinstance(each, (n.CoerceViaIO, n.ArrayCoerce, n.DomainCoerce)) or (isinstance(each, n.ArrayExpr) and each.nested):
            return True
    return False


def varies(operand: n.Expression) -> bool:
    """Whether an expression depends on the row."""
    return any(isinstance(each, n.ColumnRef) for each in n.walk(operand))


def check_collation(node: n.Expression, function: int, args: Sequence[n.Expression]) -> None:
    """0A000 for a function that depends on the order of characters, over text whose order is not that of its bytes."""
    if builtin.function(function).key in _ORDER_FREE:
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
