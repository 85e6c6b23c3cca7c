"""A bound condition evaluated over Arrow columns in the driver: for filters that a stream asks of many small batches.

`condition` gives PostgreSQL's answer, or raises `NotColumnwise`: for what Arrow has no exact kernel for, and wherever a kernel raises (an
overflow, a division by zero that AND may have left out). The caller then asks Spark (`spark.compiler`), which is exact for everything that
a filter may have, errors too. So nothing here raises PostgreSQL's errors or any of Python's and Arrow's own, and nothing is approximated.

What must hold: columns come in storage types (`types.storage`); three-valued logic is Kleene's, as SQL's; text compares by bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.spark.comparison import C_COLLATIONS
from headgate.types import registry
from headgate.types.storage import arrow_type
from headgate.types.text import array as arrays
from headgate.types.text import text

_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": pc.equal, "ne": pc.not_equal, "lt": pc.less, "le": pc.less_equal, "gt": pc.greater, "ge": pc.greater_equal,
}  # fmt: skip
_FAMILIES = (
    "int2", "int4", "int8", "int24", "int42", "int28", "int82", "int48", "int84", "oid", "bool", "bytea", "uuid_", "date_", "timestamp_",
    "timestamptz_", "text_", "text", "name", "time_", "float4", "float8", "float48", "float84", "numeric_", "bpchar",
)  # fmt: skip
_COMPARISONS = {family + name: name for family in _FAMILIES for name in _TESTS}
_WIDER = {"24": "4", "42": "4", "28": "8", "82": "8", "48": "8", "84": "8"}
_INTEGERS = {"2": pa.int16(), "4": pa.int32(), "8": pa.int64()}
_UNSIGNED = frozenset({registry.OID, registry.XID, registry.CID})
"""Types into which a function of integers casts that keeps their bits: -1 is 4294967295."""
_MANY = 16
"""So many items of a list are compared one by one."""


class NotColumnwise(Exception):
    """The condition has to be evaluated by Spark."""


def condition(expression: n.Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
    """Whether each of the rows passes; NULL counts as false. `columns` by ColumnRef.key."""
    try:
        found = pc.fill_null(_evaluate(expression, columns), pa.scalar(False))
    except NotColumnwise:
        raise
    except Exception as error:  # whatever it is, Spark has the answer: a stream must not end by a value that only Arrow or Python has not
        raise NotColumnwise(type(error).__name__) from error
    return pa.array([found.as_py()] * rows, pa.bool_()) if isinstance(found, pa.Scalar) else found


def value(expression: n.Expression, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The value of each of the rows in the storage type of its type."""
    kind = arrow_type(expression.type.oid, expression.type.typmod)
    try:
        found = _evaluate(expression, columns)
        if isinstance(found, pa.Scalar):
            found = pa.array([found.as_py()] * rows, found.type) if found.type == kind or not found.is_valid else found
    except NotColumnwise:
        raise
    except Exception as error:  # as above
        raise NotColumnwise(type(error).__name__) from error
    if found.type != kind:
        raise NotColumnwise(str(kind))
    return found


def _evaluate(node: n.Expression, columns: Mapping[str, pa.Array]) -> Any:
    """A boolean, numeric or text array, or a scalar."""
    match node:
        case n.ColumnRef():
            return columns[node.key]
        case n.Const():
            return constant(node.value, node.type.oid, node.type.typmod)
        case n.BoolExpr(kind=kind, args=args):
            return _connect(kind, [_evaluate(each, columns) for each in args])
        case n.NullTest(arg=arg, is_null=is_null, row=False):
            value = _evaluate(arg, columns)
            return pc.is_null(value) if is_null else pc.is_valid(value)
        case n.BooleanTest(arg=arg, kind=kind):
            return _BOOLEAN_TESTS[kind](_evaluate(arg, columns))
        case n.OpExpr(operator=operator, args=args) | n.Distinct(operator=operator, args=args):
            values = [_evaluate(each, columns) for each in args]
            key = _implementation(builtin.operator(operator).function)
            return _distinct(key, *values) if isinstance(node, n.Distinct) else _call(key, node, values)
        case n.FuncExpr(function=function, args=args):
            return _call(_implementation(function), node, [_evaluate(each, columns) for each in args])
        case n.ScalarArrayOp(args=args):
            return _any_or_all(node, _evaluate(args[0], columns), _items(args[1]))
        case n.Relabel(arg=arg) if type(node) is n.Relabel and registry.BPCHAR not in (arg.type.oid, node.type.oid):
            value = _evaluate(arg, columns)
            if value.type == arrow_type(node.type.oid, node.type.typmod):
                return value
        case n.Coalesce(args=args):
            return pc.coalesce(*_same([_evaluate(each, columns) for each in args]))
        case _:
            pass
    raise NotColumnwise(type(node).__name__)


@functools.lru_cache(maxsize=1024)
def constant(value: str | None, oid: int, typmod: int) -> pa.Scalar:
    """A constant in the storage type of its type; numeric always as a decimal."""
    if oid == registry.NUMERIC:
        if value is None:
            return pa.scalar(None, pa.decimal128(1, 0))
        number = Decimal(value)
        if not number.is_finite():
            raise NotColumnwise(value)
        return pa.scalar(number)
    if oid == registry.UNKNOWN:
        raise NotColumnwise("unknown")
    if value is None:
        return pa.scalar(None, arrow_type(oid, typmod))
    return text.read_text(pa.array([value]), oid, typmod)[0]


def _implementation(function: int) -> str:
    return builtin.function(function).key


def _connect(kind: n.BoolKind, values: Sequence[Any]) -> Any:
    if kind is n.BoolKind.NOT:
        return pc.invert(values[0])
    connect = pc.and_kleene if kind is n.BoolKind.AND else pc.or_kleene
    return functools.reduce(connect, values)


_BOOLEAN_TESTS: dict[n.TestKind, Callable[[Any], Any]] = {
    n.TestKind.TRUE: lambda value: pc.fill_null(value, False),
    n.TestKind.NOT_TRUE: lambda value: pc.invert(pc.fill_null(value, False)),
    n.TestKind.FALSE: lambda value: pc.invert(pc.fill_null(value, True)),
    n.TestKind.NOT_FALSE: lambda value: pc.fill_null(value, True),
    n.TestKind.UNKNOWN: pc.is_null,
    n.TestKind.NOT_UNKNOWN: pc.is_valid,
}


# ---- comparison ---------------------------------------------------------------------------------------------
def _compare(key: str, one: Any, other: Any) -> Any:
    """A comparison by the name of its function."""
    test = _TESTS[_COMPARISONS[key]]
    if key.startswith("float"):
        _refuse_nan(one, other)
    elif key.startswith("numeric_"):
        one, other = _decimals(one, other)
    elif key.startswith("bpchar"):
        one, other = (pc.utf8_rtrim(each, characters=" ") for each in (one, other))
    return test(one, other)


def _refuse_nan(*values: Any) -> None:
    """NaN equals NaN and is the greatest in PostgreSQL."""
    for each in values:
        if pc.any(pc.is_nan(each if isinstance(each, pa.Array | pa.ChunkedArray) else pa.array([each.as_py()], each.type))).as_py():
            raise NotColumnwise("NaN")


def _decimals(*values: Any) -> list[Any]:
    """Numerics of one scale and precision."""
    if not all(pa.types.is_decimal(each.type) for each in values):
        raise NotColumnwise("numeric that is stored as text")
    scale = max(each.type.scale for each in values)
    whole = max(each.type.precision - each.type.scale for each in values)
    kind = pa.decimal128 if whole + scale <= 38 else pa.decimal256
    return [each if each.type == kind(whole + scale, scale) else pc.cast(each, kind(whole + scale, scale)) for each in values]


def _same(values: Sequence[Any]) -> Sequence[Any]:
    if all(pa.types.is_decimal(each.type) for each in values):
        return _decimals(*values)
    if len({each.type for each in values}) > 1:
        raise NotColumnwise("types that differ")
    return values


def _distinct(key: str, one: Any, other: Any) -> Any:
    return pc.fill_null(pc.invert(_compare(key, one, other)), pc.xor(pc.is_null(one), pc.is_null(other)))


def _items(node: n.Expression) -> list[pa.Scalar]:
    """The items of a constant array."""
    if isinstance(node, n.ArrayExpr) and not node.nested:
        found = [_evaluate(each, {}) for each in node.elements]
        if all(isinstance(each, pa.Scalar) for each in found):
            return found
    if isinstance(node, n.Const) and node.value is not None:
        element = registry.known().by_oid(node.type.oid).element
        _, texts = arrays.parts(node.value)
        return [constant(each, element, -1) for each in texts]
    raise NotColumnwise("an array that is no constant")


def _any_or_all(node: n.ScalarArrayOp, value: Any, items: Sequence[pa.Scalar]) -> Any:
    """op ANY, op ALL; ``= ANY`` and ``<> ALL`` of many items by one look-up."""
    key = _implementation(builtin.operator(node.operator).function)
    name = _COMPARISONS.get(key)
    if name is None or not items:
        raise NotColumnwise(key)
    found = all(each.is_valid and each.type == value.type for each in items)
    plain = not key.startswith(("float", "bpchar", "numeric_")) and isinstance(value, pa.Array)
    if plain and found and len(items) > 1 and (name, node.any) in (("eq", True), ("ne", False)):
        member = pc.is_in(value, value_set=pa.array(items, value.type))
        return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), member if node.any else pc.invert(member))
    if len(items) > _MANY:
        raise NotColumnwise("a long array")
    return _connect(n.BoolKind.OR if node.any else n.BoolKind.AND, [_compare(key, value, each) for each in items])


# ---- functions ----------------------------------------------------------------------------------------------
def _call(key: str, node: n.Expression, values: Sequence[Any]) -> Any:
    if key in _COMPARISONS and len(values) == 2:
        return _compare(key, *values)
    if key in _LIKES:
        return _like(key, *values)
    found = _FUNCTIONS.get(key)
    if found is None or node.type.collation not in C_COLLATIONS or node.type.oid in _UNSIGNED:
        raise NotColumnwise(key)
    return found(*values)


def _like(key: str, value: Any, pattern: Any) -> Any:
    """LIKE of a pattern that is a word with % at its ends."""
    if not isinstance(pattern, pa.Scalar) or not pattern.is_valid:
        raise NotColumnwise("LIKE of a pattern that is no constant")
    words = str(pattern.as_py())
    middle = words.strip("%")
    if not middle or any(each in middle for each in "%_\\"):
        raise NotColumnwise(words)
    before, behind = words.startswith("%"), words.endswith("%")
    if before and behind:
        found = pc.match_substring(value, middle)
    elif before or behind:
        found = (pc.ends_with if before else pc.starts_with)(value, middle)
    else:
        found = pc.equal(value, pa.scalar(middle, value.type))
    return found if key == "textlike" else pc.invert(found)


_LIKES = frozenset({"textlike", "textnlike"})


def _remainder(one: Any, other: Any) -> Any:
    """%, with the sign of the dividend."""
    return pc.subtract_checked(one, pc.multiply_checked(pc.divide_checked(one, other), other))


def _integers() -> dict[str, Callable[..., Any]]:
    """Integer arithmetic; a kernel that overflows or divides by zero raises."""
    kernels = {"pl": pc.add_checked, "mi": pc.subtract_checked, "mul": pc.multiply_checked, "div": pc.divide_checked, "mod": _remainder}
    made: dict[str, Callable[..., Any]] = {}
    for width, kind in [*_INTEGERS.items(), *((pair, _INTEGERS[wide]) for pair, wide in _WIDER.items())]:
        for name, kernel in kernels.items():
            made[f"int{width}{name}"] = functools.partial(_in_type, kernel, kind)
        if len(width) == 1:
            made[f"int{width}um"] = pc.negate_checked
            made[f"int{width}abs"] = pc.abs_checked
    return made


def _double(value: pa.Scalar) -> pa.Scalar:
    """A numeric constant as a double; what has none is an error of PostgreSQL's."""
    exact = value.as_py()
    found = float(exact)
    if math.isinf(found) or (found == 0 and exact != 0):
        raise NotColumnwise("numeric that is out of range for a double")
    return pa.scalar(found, pa.float64())


def _in_type(kernel: Callable[..., Any], kind: pa.DataType, *values: Any) -> Any:
    return kernel(*(each if each.type == kind else pc.cast(each, kind) for each in values))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_integers(),
    "i2toi4": lambda value: pc.cast(value, pa.int32()),
    "int28": lambda value: pc.cast(value, pa.int64()),
    "int48": lambda value: pc.cast(value, pa.int64()),
    "int2_numeric": lambda value: pc.cast(value, pa.decimal128(5, 0)),
    "int4_numeric": lambda value: pc.cast(value, pa.decimal128(10, 0)),
    "int8_numeric": lambda value: pc.cast(value, pa.decimal128(19, 0)),
    "i2tod": lambda value: pc.cast(value, pa.float64()),
    "i4tod": lambda value: pc.cast(value, pa.float64()),
    "ftod": lambda value: pc.cast(value, pa.float64()),
    "numeric_float8": _double,
    "lower": pc.ascii_lower,
    "upper": pc.ascii_upper,
    "textlen": lambda value: pc.cast(pc.utf8_length(value), pa.int32()),
    "textcat": lambda one, other: pc.binary_join_element_wise(one, other, ""),
}
