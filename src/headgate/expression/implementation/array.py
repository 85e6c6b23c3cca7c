"""Arrays: operators and functions over their text form, subscripts, constructors, element-wise casts and ``= ANY (array)``.

The functions themselves are in `functions.array`. This module chooses the element type they are called with. If equal elements always have
equal texts (integers, text, uuid, …), arrays are compared for equality as text. Otherwise they are compared by the elements' keys.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression import builtin
from headgate.expression import node as n
from headgate.expression.duckdb import array as duckdb
from headgate.expression.functions import array as arrays
from headgate.expression.functions import floating_point, ordering
from headgate.expression.functions import numeric as decimals
from headgate.expression.implementation.comparison import SYMBOLS
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table
from headgate.expression.spark.array_element import as_item, key, plain
from headgate.expression.spark.cast import printed
from headgate.expression.spark.session_time import session_zone
from headgate.expression.spark.value import BOOL, INT4, TEXT, Env, Rep, Value, of_columns, refuse, rep_of, settle
from headgate.expression.spark.vectorised import call, scalar
from headgate.types import registry, typmod
from headgate.types.base import numeric
from headgate.types.base.base_types import BASE_TYPES
from headgate.types.text import text

_PAIRS = ("int2", "int4", "int8", "int24", "int42", "int28", "int82", "int48", "int84", "text", "date_", "uuid_")
_EQUAL = frozenset(f"{prefix}eq" for prefix in _PAIRS)
_UNEQUAL = frozenset(f"{prefix}ne" for prefix in _PAIRS)
"""Comparisons for which Spark's IN gives PostgreSQL's result."""


def element_of(array: int) -> int:
    return registry.by_oid(array).element


def _one_text(element: int) -> bool:
    """Return whether two elements of the type are equal exactly if their texts are."""
    base_type = BASE_TYPES.get(element)
    return base_type is not None and base_type.one_text and base_type.key is not None


def orderable(oid: int) -> int:
    """Return the oid if the type has an implemented order. Raise 0A000 otherwise."""
    key(oid)
    return oid


def _operands(node: n.Expression) -> Sequence[n.Expression]:
    assert isinstance(node, (n.FuncExpr, n.OpExpr, n.Distinct, n.NullIf))
    return node.args


def _comparison(test: str) -> SparkForm:
    def builder(node: n.Expression, args: Sequence[Value]) -> Value:
        oid = _operands(node)[0].type.oid
        if test in ("=", "<>") and _one_text(element_of(oid)):
            return of_columns(BOOL, Column.__eq__ if test == "=" else Column.__ne__, *args)
        return call(ordering.is_met, BOOL, args, prefix=(test, orderable(oid)), raises=False)

    return builder


def _extreme(*, larger: bool) -> SparkForm:
    return lambda node, args: call(ordering.extreme, TEXT, args, prefix=(orderable(_operands(node)[0].type.oid), larger), raises=False)


def _with_element(function: Callable[..., object], rep: Rep, places: Sequence[int], *, strict: bool, raises: bool = True) -> SparkForm:
    """Return the form of a function of an array and elements (at `places`), which gets the order of the elements as last argument."""

    def builder(node: n.Expression, args: Sequence[Value]) -> Value:
        operands = _operands(node)
        array = next(operand for index, operand in enumerate(operands) if index not in places)
        items = [as_item(value, operands[index].type) if index in places else value for index, value in enumerate(args)]
        prefix = (function, orderable(element_of(array.type.oid)))
        return call(_by_keys, rep, items, prefix=prefix, strict=strict, raises=raises)

    return builder


def _plain_items(function: Callable[..., object], places: Sequence[int]) -> SparkForm:
    """Return the form of a function of arrays and elements that does not compare elements."""

    def builder(node: n.Expression, args: Sequence[Value]) -> Value:
        operands = _operands(node)
        items = [as_item(value, operands[index].type) if index in places else value for index, value in enumerate(args)]
        return call(function, TEXT, items, strict=False)

    return builder


def _by_keys(function: Callable[..., object], oid: int, *items: object) -> object:
    return function(*items, key(oid))


def _is_contained(left: str, right: str, order: arrays.Key) -> bool:
    return arrays.contains(right, left, order)


def _position(array: str | None, item: str | None, order: arrays.Key) -> int | None:
    return arrays.position(array, item, None, order, started=False)


def _position_from(array: str | None, item: str | None, start: int | None, order: arrays.Key) -> int | None:
    return arrays.position(array, item, start, order, started=True)


def _to_string(node: n.Expression, args: Sequence[Value]) -> Value:
    kind = _operands(node)[0].type
    if element_of(kind.oid) == registry.TIMESTAMPTZ:
        session_zone("array_to_string of timestamptz[]")
    return call(arrays.joined, TEXT, [printed(args[0], kind), *args[1:]], strict=False, raises=False)


# ---- nodes that are not calls --------------------------------------------------------------------------------------


def quantified(node: n.ScalarArrayOp, left: Value, array: Value) -> Value:
    """Compile ``x op ANY/ALL (array)`` by the elements' keys, for the comparison operators of one btree family."""
    operator = builtin.operator(node.operator)
    item, element = node.args[0], element_of(node.args[1].type.oid)
    item_kind = item.arg.type if isinstance(item, n.RowCoerce) else item.type  # record's operators take a composite value as record
    if operator.name not in arrays.TESTS or not builtin.builtins().families.get(_positive(operator)):
        raise refuse(f"operator {operator.name} with the elements of an array", "only comparisons can be made with elements of a column")
    leading = (operator.name, node.any, orderable(item_kind.oid), orderable(element))
    return call(_compare_any, BOOL, [as_item(left, item_kind), array], prefix=leading, strict=False, raises=False)


def listed(node: n.ScalarArrayOp, left: Value, items: Sequence[Value]) -> Value | None:
    """Compile ``x = ANY`` and ``x <> ALL`` of constants as Spark's IN. Return None if Spark's comparison may differ from PostgreSQL's."""
    key = builtin.function(builtin.operator(node.operator).function).key
    if key not in (_EQUAL if node.any else _UNEQUAL) or not all(item.constant is not None or item.is_null for item in items):
        return None
    is_integer = all(item.rep.name in ("int2", "int4", "int8") for item in items)

    def make(env: Env) -> Column:
        candidates = [int(item.constant) if is_integer and item.constant is not None else item.make(env) for item in items]
        is_member = settle(left)(env).isin(*candidates)
        return is_member if node.any else ~is_member

    return Value(BOOL, make)


def _positive(operator: builtin.Operator) -> int:
    """Return the operator, or for <> the = that it negates, because only = is in a btree family."""
    return operator.negator if operator.name == "<>" else operator.oid


def _compare_any(test: str, any_of: bool, item_oid: int, oid: int, item: str | None, array: str | None) -> bool | None:
    return arrays.compare(item, array, arrays.TESTS[test], key(item_oid), key(oid), any_of=any_of)


def constructed(node: n.ArrayExpr, elements: Sequence[Value]) -> Value:
    """Compile ARRAY[…]."""
    if node.nested:
        return call(_nested, TEXT, elements, strict=False)
    items = [as_item(value, element.type) for value, element in zip(elements, node.elements, strict=True)]
    if not items:
        return Value(TEXT, lambda env: F.lit("{}"), constant="{}")
    return call(arrays.written_rows, TEXT, items, strict=False, raises=False, whole=True)


def _nested(*rows: str | None) -> str:
    return arrays.nested(rows)


def subscripted(node: n.Subscript, array: Value, lower: Sequence[Value | None], upper: Sequence[Value | None]) -> Value:
    """Compile ``a[i]`` and ``a[i:j]``."""
    if node.lower:
        shape, bounds = _written_bounds(lower, upper)
        return call(_part, TEXT, [array, *bounds], prefix=(shape,), strict=False, raises=False)
    indexes = [index for index in upper if index is not None]
    return call(_element, rep_of(node.type.oid), [array, *indexes], prefix=(node.type.oid,), strict=True, raises=False)


def _written_bounds(lower: Sequence[Value | None], upper: Sequence[Value | None]) -> tuple[tuple[tuple[bool, bool], ...], list[Value]]:
    """Return which bounds of a slice are written (see `_pairs`), and these."""
    pairs = list(zip(lower, upper, strict=True))
    return tuple((low is not None, high is not None) for low, high in pairs), [
        bound for pair in pairs for bound in pair if bound is not None
    ]


def stored(node: n.SubscriptStore, array: Value, lower: Sequence[Value | None], upper: Sequence[Value | None], assigned: Value) -> Value:
    """Return the array after an assignment to an element or to a slice."""
    delimiter = registry.by_oid(element_of(node.type.oid)).delimiter
    if node.lower:
        shape, bounds = _written_bounds(lower, upper)
        return call(_part_stored, TEXT, [array, assigned, *bounds], prefix=(shape, delimiter), strict=False)
    item = as_item(assigned, node.value.type)
    return call(_element_stored, TEXT, [array, item, *(index for index in upper if index is not None)], prefix=(delimiter,), strict=False)


def _element_stored(delimiter: str, array: str | None, item: str | None, *indexes: int | None) -> str:
    return arrays.with_element(array, indexes, item, delimiter)


def _part_stored(
    shape: Sequence[tuple[bool, bool]], delimiter: str, array: str | None, source: str | None, *bounds: int | None
) -> str | None:
    return arrays.with_part(array, _pairs(shape, bounds), source, delimiter)


def _pairs(shape: Sequence[tuple[bool, bool]], bounds: Sequence[int | None]) -> list[tuple[arrays.Bound, arrays.Bound]]:
    """Return the bounds of a slice. `shape`: which of them are written."""
    indexes = iter(bounds)
    return [(next(indexes) if low else "open", next(indexes) if high else "open") for low, high in shape]


def _element(oid: int, array: str, *indexes: int) -> object:
    item = arrays.element(array, indexes)
    return None if item is None else plain(oid, item)


def _part(shape: tuple[tuple[bool, bool], ...], array: str | None, *bounds: int | None) -> str | None:
    return None if array is None else arrays.part(array, _pairs(shape, bounds))


def coerced(node: n.ArrayCoerce, array: Value) -> Value:
    """Compile a cast of all elements."""
    source, target = element_of(node.arg.type.oid), element_of(node.type.oid)
    if node.type.typmod < 0 and (node.function == 0 or source == target):
        return array
    cast_key = builtin.function(node.function).key if node.function > 0 else "text"
    if cast_key not in _ELEMENT_CASTS:
        raise refuse(f"a cast from {registry.format_type(node.arg.type.oid)} to {registry.format_type(node.type.oid)}")
    return call(_coerce, TEXT, [array], prefix=(cast_key, target, node.type.typmod, node.form is n.Form.EXPLICIT))


def _coerce(cast: str, oid: int, modifier: int, explicit: bool, array: str) -> str:
    return arrays.mapped(array, functools.partial(_cast_element, cast, oid, modifier, explicit))


def _cast_element(cast: str, oid: int, modifier: int, explicit: bool, item: str) -> str:
    convert = _ELEMENT_CASTS[cast]
    try:
        return _normal_element(convert(item), oid, modifier)
    except PostgresError as error:
        if explicit and error.sqlstate in ("22001", "22026"):  # an explicit cast to varchar(n) or bit(n) cuts
            return _cut(item, oid, modifier)
        raise


def _normal_element(item: str, oid: int, modifier: int) -> str:
    if oid == registry.NUMERIC and modifier >= 0:
        return numeric.print_value(numeric.value_of(item, modifier))
    return text.normal_form(item, oid, modifier)


def _cut(item: str, oid: int, modifier: int) -> str:
    size = typmod.length(oid, modifier)
    return item if size is None else item[:size].ljust(size, "0") if oid == registry.BIT else item[:size]


_SAME: Callable[[str], str] = str


def _narrow(bits: int, name: str) -> Callable[[str], str]:
    def convert(item: str) -> str:
        if not -(1 << bits - 1) <= int(item) < 1 << bits - 1:
            raise PostgresError("22003", f"{name} out of range")
        return item

    return convert


def _round(bits: int, item: str) -> str:
    """Round to the nearest integer, halves to the even one (dtoi4 and similar)."""
    value = float(item)
    whole = round(value) if math.isfinite(value) else 1 << bits
    return _narrow(bits, {16: "smallint", 32: "integer", 64: "bigint"}[bits])(str(whole))


_ELEMENT_CASTS: dict[str, Callable[[str], str]] = {
    "text": _SAME,
    **dict.fromkeys(("int28", "int48", "i2toi4", "int24", "i2tod", "i4tod", "i8tod", "i2tof", "i4tof", "i8tof"), _SAME),
    **dict.fromkeys(("int2_numeric", "int4_numeric", "int8_numeric", "numeric", "varchar", "bpchar", "bit", "varbit", "text_name"), _SAME),
    **dict.fromkeys(("timestamp_scale", "timestamptz_scale", "time_scale", "interval_scale", "date_timestamp"), _SAME),
    "i4toi2": _narrow(16, "smallint"),
    "int82": _narrow(16, "smallint"),
    "int84": _narrow(32, "integer"),
    "numeric_int2": lambda item: decimals.to_integer(item, 16),
    "numeric_int4": lambda item: decimals.to_integer(item, 32),
    "numeric_int8": lambda item: decimals.to_integer(item, 64),
    "numeric_float8": decimals.to_double,
    "numeric_float4": decimals.to_single,
    **{f"{source}toi{size}": functools.partial(_round, size * 8) for source in "df" for size in (2, 4, 8)},
    "float8_numeric": lambda item: decimals.from_double(float(item), 15),
    "float4_numeric": lambda item: decimals.from_double(float(item), 6),
    "ftod": lambda item: repr(float(np.float32(item))),
    "dtof": floating_point.to_single,
    "rtrim1": lambda item: item.rstrip(" "),
}
"""The conversion of an element's text before the target type's input function reads it, by the key of the cast's function."""

IMPLEMENTATIONS: Table = {
    **{f"array_{name}": _comparison(symbol) for name, symbol in SYMBOLS.items()},
    "array_larger": _extreme(larger=True),
    "array_smaller": _extreme(larger=False),
    "arrayoverlap": Implementation(_with_element(arrays.overlaps, BOOL, (), strict=True, raises=False), duckdb="list_has_any({0}, {1})"),
    "arraycontains": Implementation(_with_element(arrays.contains, BOOL, (), strict=True, raises=False), duckdb=duckdb.contains),
    "arraycontained": Implementation(_with_element(_is_contained, BOOL, (), strict=True, raises=False), duckdb=duckdb.contained),
    "array_ndims": Implementation(scalar(arrays.ndims, INT4, raises=False), duckdb="CASE WHEN len({0}) > 0 THEN 1 END"),
    "array_dims": scalar(arrays.dims, TEXT, raises=False),
    "array_length": Implementation(
        scalar(arrays.length, INT4, raises=False), duckdb="CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) END"
    ),
    "array_lower": Implementation(
        scalar(arrays.lower, INT4, raises=False), duckdb="CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 - {shift0} END"
    ),
    "array_upper": Implementation(
        scalar(arrays.upper, INT4, raises=False), duckdb="CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) - {shift0} END"
    ),
    "array_cardinality": Implementation(scalar(arrays.cardinality, INT4, raises=False), duckdb="CAST(len({0}) AS INTEGER)"),
    "array_append": Implementation(_plain_items(arrays.append, (1,)), duckdb="list_append(coalesce({0}, []), {1})"),
    "array_prepend": Implementation(_plain_items(arrays.prepend, (0,)), duckdb="list_prepend({0}, coalesce({1}, []))"),
    "array_cat": Implementation(_plain_items(arrays.concatenate, ()), duckdb=duckdb.beside),
    "array_remove": Implementation(
        _with_element(arrays.remove, TEXT, (1,), strict=False), duckdb="list_filter({0}, lambda x: x IS DISTINCT FROM {1})"
    ),
    "array_replace": _with_element(arrays.replace, TEXT, (1, 2), strict=False),
    "array_position": Implementation(
        _with_element(_position, INT4, (1,), strict=False), duckdb="CAST(list_position({0}, {1}) AS INTEGER) - {shift0}"
    ),
    "array_positions": _with_element(arrays.positions, TEXT, (1,), strict=False),
    "array_position_start": _with_element(_position_from, INT4, (1,), strict=False),
    "array_to_text": Implementation(_to_string, duckdb="array_to_string(list_filter({texts0}, lambda x: x IS NOT NULL), {1})"),
    "array_to_text_null": Implementation(_to_string, duckdb="array_to_string(list_transform({texts0}, lambda x: coalesce(x, {2})), {1})"),
    "text_to_array": Implementation(
        scalar(arrays.split, TEXT, strict=False, raises=False),
        duckdb="CASE WHEN {0} = '' THEN [] WHEN {1} IS NULL OR {0} IS NULL THEN string_split({0}, '') WHEN {1} = ''"
        " THEN [{0}] ELSE string_split({0}, {1}) END",
    ),
    "text_to_array_null": scalar(arrays.split, TEXT, strict=False, raises=False),
    "trim_array": scalar(arrays.trimmed, TEXT),
    "array_fill": _plain_items(arrays.filled, (0,)),
    "array_fill_with_lower_bounds": _plain_items(arrays.filled, (0,)),
    "width_bucket_array": _with_element(arrays.bucket, INT4, (0,), strict=True),
}
