"""The operators = <> < <= > >= of every type, with their Spark forms (by `spark.comparison`) and their Arrow forms.

DuckDB chooses a comparison by the operands' types (`duckdb.comparison`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression.functions import ordering
from headgate.expression.implementation.datetime.infinity import compared
from headgate.expression.implementation.implementation import Implementation, NotColumnwise, Operand, SparkForm, Table, native, silent
from headgate.expression.node import Expression, RowCoerce, RowExpr, operands
from headgate.expression.spark import row_value
from headgate.expression.spark.comparison import TESTS, by_key, numeric_test
from headgate.expression.spark.value import BOOL, INT4, Value, of_columns
from headgate.expression.spark.vectorised import scalar
from headgate.types import registry

_KERNELS: dict[str, Callable[[Operand, Operand], Operand]] = {
    "eq": pc.equal, "ne": pc.not_equal, "lt": pc.less, "le": pc.less_equal, "gt": pc.greater, "ge": pc.greater_equal,
}  # fmt: skip


@dataclass(frozen=True)
class ArrowComparison:
    """A comparison over Arrow. `name` is its key in `TESTS`. `prepare` converts operands that Arrow would compare differently."""

    name: str
    prepare: Callable[..., Sequence[Operand]] | None = None

    def __call__(self, left: Operand, right: Operand) -> Operand:
        """Return a boolean array that is NULL if either operand is."""
        if self.prepare is not None:
            left, right = self.prepare(left, right)
        return _KERNELS[self.name](left, right)


def without_nan(*values: Operand) -> Sequence[Operand]:
    """Return the values. Raise `NotColumnwise` if one is NaN, because NaN equals NaN and is the greatest value in PostgreSQL."""
    for value in values:
        if pc.any(pc.is_nan(value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.array([value.as_py()], value.type))).as_py():
            raise NotColumnwise("NaN")
    return values


def without_negative_zero(values: pa.Array) -> pa.Array:
    """Doubles of which equal ones have one form: no NaN, and no -0, which equals 0."""
    without_nan(values)
    numbers = values.drop_null().to_numpy(zero_copy_only=False)
    if np.any(np.signbit(numbers) & (numbers == 0)):
        raise NotColumnwise("-0")
    return values


def decimals(*values: Operand) -> Sequence[Operand]:
    """Return the numerics cast to one precision and scale. Raise `NotColumnwise` if one is stored as text."""
    if not all(pa.types.is_decimal(value.type) for value in values):
        raise NotColumnwise("numeric that is stored as text")
    scale = max(value.type.scale for value in values)
    whole = max(value.type.precision - value.type.scale for value in values)
    kind = pa.decimal128 if whole + scale <= 38 else pa.decimal256
    return [value if value.type == kind(whole + scale, scale) else pc.cast(value, kind(whole + scale, scale)) for value in values]


def _unpad(*values: Operand) -> Sequence[Operand]:
    return [pc.utf8_rtrim(value, characters=" ") for value in values]


def plain(name: str) -> SparkForm:
    return native(BOOL, TESTS[name])


def _as(name: str, wide: str) -> SparkForm:
    """Return a comparison that first casts both sides to a wider Spark type."""
    return _of_each(name, lambda column: column.cast(wide))


def _of_each(name: str, change: Callable[[Column], Column]) -> SparkForm:
    """Return a comparison of the changed Columns of both sides."""
    return native(BOOL, lambda left, right: TESTS[name](change(left), change(right)))


def _date_with_timestamp(name: str, *, flipped: bool) -> SparkForm:
    def build(left: Column, right: Column) -> Column:
        day, moment = (right, left) if flipped else (left, right)
        return compared(TESTS[name], day, moment, flipped=flipped)

    return native(BOOL, build)


def _of_xids(name: str) -> SparkForm:
    """``xid = xid`` and ``xid = integer``, whose bits are those of an xid: '4294967295'::xid = -1."""
    return _of_each(name, lambda column: F.pmod(column.cast("bigint"), F.lit(1 << 32)))


def blank_padded(name: str) -> SparkForm:
    """Return a comparison of char(n), without trailing blanks."""
    return _of_each(name, F.rtrim)


def _compare_keys(name: str, oid: int) -> SparkForm:
    return lambda node, args: of_columns(BOOL, TESTS[name], *(by_key(arg, oid) for arg in args))


def _keyed_by_operand(name: str) -> SparkForm:
    """Return a comparison of two values of a polymorphic type, by the sort key of the operands' type."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        sides = [_as_written(operand) for operand in operands(node)]
        _require_similar(*map(_field_types, sides))
        left = _of_other_type(sides[0], args[0], sides[1])
        right = _of_other_type(sides[1], args[1], sides[0])
        return of_columns(BOOL, TESTS[name], by_key(*left), by_key(*right))

    return builder


def _field_types(operand: Expression) -> list[int] | None:
    """Return the types of the fields of a ROW(…) or a value of a composite type, otherwise None."""
    if isinstance(operand, RowExpr):
        return [field.type.oid for field in operand.args]
    composite = row_value.composite(operand.type)
    return None if composite is None else [attribute.type_oid for attribute in composite.attributes]


def _require_similar(left: list[int] | None, right: list[int] | None) -> None:
    """Raise 42804 if two rows differ in the number or the types of their fields. PostgreSQL does so unless an earlier field differs."""
    if left is None or right is None:
        return
    for place, kinds in enumerate(zip(left, right, strict=False), 1):
        if kinds[0] != kinds[1]:
            shown = " and ".join(map(registry.format_type, kinds))
            raise PostgresError("42804", f"cannot compare dissimilar column types {shown} at record column {place}")
    if len(left) != len(right):
        raise PostgresError("42804", "cannot compare record types with different numbers of columns")


def _of_other_type(operand: Expression, value: Value, opposite: Expression) -> tuple[Value, int]:
    """Return an operand and its type; a ROW(…) beside a value of a composite type is one of that type (record_eq)."""
    composite = row_value.composite(opposite.type)
    if not isinstance(operand, RowExpr) or composite is None:
        return value, operand.type.oid
    return row_value.of_composite(operand, value), composite.oid


def _as_written(node: Expression) -> Expression:
    """Return the operand without the cast to record that the operators of record require."""
    return node.arg if isinstance(node, RowCoerce) else node


def _numeric(name: str) -> SparkForm:
    return lambda node, args: numeric_test(name, args[0], args[1])


_STORED = ("int2", "int4", "int8", "oid", "bool", "bytea", "uuid_", "date_", "timestamp_", "name", "time_")
"""Prefixes of the keys of types whose stored form Spark and Arrow compare as PostgreSQL does."""
_KEYED = {
    "xid8": registry.XID8,
    "pg_lsn_": registry.PG_LSN,
    "cash_": registry.MONEY,
    "timetz_": registry.TIMETZ,
    "interval_": registry.INTERVAL,
}


_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _entry(build: Callable[[str], SparkForm], name: str, arrow: ArrowComparison | None = None) -> Implementation:
    """Return the entry of a comparison of two values of one kind. Its commuted form is the flipped comparison of the swapped operands."""
    flipped = build(_FLIPPED[name])
    return replace(silent(build(name), arrow=arrow), commuted=lambda node, args: flipped(node, args[::-1]))


def _of_family(name: str) -> dict[str, Implementation]:
    arrow = ArrowComparison(name)
    table = {f"{family}{name}": _entry(plain, name, arrow) for family in _STORED}
    for family in ("macaddr_", "macaddr8_", "bit"):
        table[f"{family}{name}"] = _entry(plain, name)
    for pair in ("24", "42", "28", "82", "48", "84"):
        wide = "bigint" if "8" in pair else "int"
        table[f"int{pair}{name}"] = _entry(functools.partial(_as, wide=wide), name, arrow)
    for family in ("float4", "float8"):
        table[f"{family}{name}"] = _entry(plain, name, ArrowComparison(name, without_nan))
    for family in ("float48", "float84"):
        doubles = functools.partial(_as, wide="double")
        table[f"{family}{name}"] = _entry(doubles, name, ArrowComparison(name, without_nan))
    table[f"date_{name}_timestamp"] = silent(_date_with_timestamp(name, flipped=False))
    table[f"timestamp_{name}_date"] = silent(_date_with_timestamp(name, flipped=True))
    table[f"char{name}"] = _entry(plain if name in ("eq", "ne") else functools.partial(_compare_keys, oid=registry.CHAR), name)
    table |= {f"{family}{name}": _entry(functools.partial(_compare_keys, oid=oid), name) for family, oid in _KEYED.items()}
    table |= {f"{family}{name}": _entry(_keyed_by_operand, name) for family in ("range_", "multirange_", "record_")}
    table[f"bpchar{name}"] = _entry(blank_padded, name, ArrowComparison(name, _unpad))
    table[f"numeric_{name}"] = _entry(_numeric, name, ArrowComparison(name, decimals))
    table[f"text{name}" if name in ("eq", "ne") else f"text_{name}"] = _entry(plain, name, arrow)
    for key in (f"name{name}text", f"text{name}name"):
        table[key] = _entry(plain, name)
    return table


SYMBOLS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def of_texts(prefix: str, oid: int) -> Table:
    """Return the comparisons of two values of a type that Python compares by the keys of their texts."""
    tests = {f"{prefix}_{name}": scalar(ordering.is_met, BOOL, prefix=(symbol, oid), raises=False) for name, symbol in SYMBOLS.items()}
    return {**tests, f"{prefix}_cmp": scalar(ordering.compared, INT4, prefix=(oid,), raises=False)}


_ANY_COLLATION = frozenset({f"{family}{name}" for family in ("text", "bpchar", "name") for name in ("eq", "ne")})
IMPLEMENTATIONS: Table = {
    **{key: replace(entry, any_collation=key in _ANY_COLLATION) for name in TESTS for key, entry in _of_family(name).items()},
    **{key: silent(_of_xids(name)) for key, name in (("xideq", "eq"), ("xidneq", "ne"))},
}
