"""Compile a bound expression to a Python function of its parameters, for the loops of functions, which evaluate it millions of times.

`compiled` returns a function with PostgreSQL's result for integers, booleans and texts that are compared or concatenated. It returns None
for any other expression, which the caller evaluates otherwise (`columnwise`, the catalogs, Spark). Called by
`commands.function.simple_expression`, and by `commands.query.row_evaluator` for expressions without parameters.

    AND        a NULL and no false: NULL          OR   a NULL and no true: NULL
    COALESCE   the first value that is not NULL   CASE   the result of the first condition that is true; no other result is computed
    any other operator or function here: NULL if an argument is
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.types import registry

Values = Sequence[object]
Scalar = Callable[[Values], object]
"""Takes the parameters' values in Python (None is NULL) and returns the expression's value."""

_BITS = {registry.INT2: 15, registry.INT4: 31, registry.INT8: 63}
_NAMES = {15: "smallint", 31: "integer", 63: "bigint"}
_COMPARISONS = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def _divide(dividend: int, divisor: int) -> int:
    """Divide integers, truncating towards zero."""
    if not divisor:
        raise PostgresError("22012", "division by zero")
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _remainder(dividend: int, divisor: int) -> int:
    return dividend - divisor * _divide(dividend, divisor)


_ARITHMETIC = {"pl": operator.add, "mi": operator.sub, "mul": operator.mul, "div": _divide, "mod": _remainder}


def _functions() -> dict[str, Callable[..., object]]:
    """Return the implementations of the built-in functions that are supported here, by their key (prosrc)."""
    table: dict[str, Callable[..., object]] = {"texteq": operator.eq, "textne": operator.ne, "textcat": operator.add}
    table["textanycat/25,2776"] = table["anytextcat/2776,25"] = lambda left, right: _shown(left) + _shown(right)
    pairs = {
        "int2": (15, 15), "int4": (31, 31), "int8": (63, 63), "int24": (15, 31), "int42": (31, 15), "int48": (31, 63), "int84": (63, 31),
    }  # fmt: skip
    for prefix, bits in pairs.items():
        for suffix, compare in _COMPARISONS.items():
            table[prefix + suffix] = compare
        for suffix, compute in _ARITHMETIC.items():
            table[prefix + suffix] = _within(compute, max(bits))
    table["int48"] = table["i2toi4"] = lambda value: value
    table["int84"] = _within(lambda value: value, 31)
    return table


def _shown(value: object) -> str:
    """Return a value as a cast to text prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _within(compute: Callable[..., int], bits: int) -> Callable[..., int]:
    limit = 1 << bits

    def computed(*values: int) -> int:
        result = compute(*values)
        if not -limit <= result < limit:
            raise PostgresError("22003", f"{_NAMES[bits]} out of range")
        return result

    return computed


_FUNCTIONS = _functions()
_TYPES = frozenset({*_BITS, registry.BOOL, registry.TEXT})


def read(oid: int, text: str | None) -> object:
    """Return the Python value of a text of one of the supported types."""
    if text is None or oid == registry.TEXT:
        return text
    return text == "t" if oid == registry.BOOL else int(text)


def printed(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return ("t" if value else "f") if isinstance(value, bool) else str(value)


def is_known(oid: int) -> bool:
    """Return whether a type is supported here."""
    return oid in _TYPES


def compiled(expression: n.Expression) -> Scalar | None:
    """Return the function of an expression, or None if it contains anything that is not supported here."""
    if expression.type.oid not in _TYPES:
        return None
    match expression:
        case n.Const(value=value):
            constant = read(expression.type.oid, value)
            return lambda _: constant
        case n.Param(number=number):
            return operator.itemgetter(number - 1)
        case n.OpExpr(operator=operator_oid, args=args):
            return _call(builtin.function(builtin.operator(operator_oid).function).key, args)
        case n.FuncExpr(function=function, args=args):
            return _call(builtin.function(function).key, args)
        case n.NullTest(arg=arg, is_null=is_null, row=False):
            inner = compiled(arg)
            return None if inner is None else lambda values: (inner(values) is None) is is_null
        case n.BoolExpr(kind=kind, args=args):
            return _connect(kind, args)
        case n.Coalesce(args=args):
            return _coalesce(args)
        case n.Case(arg=None):
            return _case(expression)
        case _:
            return None


def _call(key: str, args: Sequence[n.Expression]) -> Scalar | None:
    compute = _FUNCTIONS.get(key)
    parts = [part for part in map(compiled, args) if part is not None]
    if compute is None or len(parts) < len(args):
        return None
    if len(parts) == 1:
        [only] = parts

        def one(values: Values) -> object:
            value = only(values)
            return None if value is None else compute(value)

        return one
    left, right = parts

    def two(values: Values) -> object:
        first, second = left(values), right(values)
        return None if first is None or second is None else compute(first, second)

    return two


def _coalesce(args: Sequence[n.Expression]) -> Scalar | None:
    parts = [part for part in map(compiled, args) if part is not None]
    if len(parts) < len(args):
        return None
    return lambda values: next((value for part in parts if (value := part(values)) is not None), None)


def _case(node: n.Case) -> Scalar | None:
    conditions, results = ([part for part in map(compiled, nodes) if part is not None] for nodes in (node.conditions, node.results))
    default = compiled(node.default)
    if default is None or len(conditions) < len(node.conditions) or len(results) < len(node.results):
        return None
    branches = list(zip(conditions, results, strict=True))
    return lambda values: next((result for condition, result in branches if condition(values)), default)(values)


def _connect(kind: n.BoolKind, args: Sequence[n.Expression]) -> Scalar | None:
    parts = [part for arg in args if (part := compiled(arg)) is not None]
    if len(parts) < len(args):
        return None
    if kind is n.BoolKind.NOT:
        return lambda values: None if (value := parts[0](values)) is None else not value
    deciding = kind is n.BoolKind.OR

    def connected(values: Values) -> object:
        result: object = not deciding
        for part in parts:
            value = part(values)
            if value is deciding:
                return deciding
            result = None if value is None else result
        return result

    return connected
