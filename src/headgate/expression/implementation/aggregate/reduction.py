"""Aggregates that return one value of a group, or combine all values (manual, 9.21).

min, max, bool_and, bool_or, every, bit_and, bit_or, bit_xor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression import node as n
from headgate.expression.duckdb import comparison as duckdb_order
from headgate.expression.duckdb.value import Env as DuckdbEnv
from headgate.expression.implementation.aggregate.aggregate import AggregateImplementation, ArrowCall, ArrowForm, DuckdbCall, DuckdbForm
from headgate.expression.implementation.comparison import without_negative_zero
from headgate.expression.spark.aggregate_call import AggregateCall
from headgate.expression.spark.comparison import C_COLLATIONS, by_key, in_stored_order, numeric_key
from headgate.expression.spark.value import DIGITS, Value, settle
from headgate.types import registry, sortkey
from headgate.types.storage import arrow_type


def _extreme(group: AggregateCall, *, greatest: bool) -> Value:
    value, apply_filter, oid = group.values[0], group.apply_filter, group.kinds[0].oid
    settled = apply_filter(settle(value))
    if value.rep == DIGITS:
        key = apply_filter(numeric_key(value))
    elif oid == registry.BPCHAR:
        key = apply_filter(lambda env: F.rtrim(value.make(env)))
    elif not in_stored_order(oid):
        key = apply_filter(by_key(value, oid).make)
    else:
        return Value(value.rep, lambda env: env.over((F.max if greatest else F.min)(settled(env))))
    return Value(value.rep, lambda env: env.over((F.max_by if greatest else F.min_by)(settled(env), key(env))))


def _reduction(reduce: Callable[[Column], Column]) -> Callable[[AggregateCall], Value]:
    """Return the form of an aggregate that Spark has with PostgreSQL's meaning."""

    def build(group: AggregateCall) -> Value:
        value = group.values[0]
        column = group.apply_filter(value.make)
        return Value(value.rep, lambda env: env.over(reduce(column(env))))

    return build


def _duckdb_extreme(name: str) -> DuckdbForm:
    def form(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
        kind = node.args[0].type.oid
        if not duckdb_order.in_order(kind) or kind in (registry.BPCHAR, registry.INTERVAL):
            return None
        duckdb_order.sort_key(node.args[0], args[0], env)
        return DuckdbCall(name, args[0])

    return form


def _duckdb_reduced(name: str) -> DuckdbForm:
    def form(node: n.Aggregate, args: Sequence[str], env: DuckdbEnv) -> DuckdbCall | None:
        return DuckdbCall(name, args[0]) if node.args[0].type.oid in (registry.BOOL, *registry.INTEGERS) else None

    return form


_IN_ARROWS_ORDER = frozenset({*registry.INTEGERS, registry.DATE, registry.TIMESTAMP, registry.TIMESTAMPTZ, registry.TEXT})


def _arrow_extreme(name: str) -> ArrowForm:
    def form(node: n.Aggregate) -> ArrowCall | None:
        kind = node.args[0].type
        if kind.oid in (registry.FLOAT4, registry.FLOAT8):
            return ArrowCall(((name, None),), without_negative_zero)
        is_decimal = pa.types.is_decimal(arrow_type(kind.oid, kind.typmod))
        return ArrowCall(((name, None),)) if is_decimal or (kind.oid in _IN_ARROWS_ORDER and kind.collation in C_COLLATIONS) else None

    return form


def _arrow_reduced(name: str) -> ArrowForm:
    options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
    return lambda node: ArrowCall(((name, options),))


def _has_order(oid: int) -> bool:
    return oid in (registry.ANYARRAY, registry.ANYENUM) or sortkey.comparable(oid, registry.builtin())


def _whole(oid: int) -> bool:
    return oid in registry.INTEGERS


AGGREGATES = {
    "min": AggregateImplementation(functools.partial(_extreme, greatest=False), _has_order, _duckdb_extreme("min"), _arrow_extreme("min")),
    "max": AggregateImplementation(functools.partial(_extreme, greatest=True), _has_order, _duckdb_extreme("max"), _arrow_extreme("max")),
    "bool_and": AggregateImplementation(_reduction(F.bool_and), duckdb=_duckdb_reduced("bool_and"), arrow=_arrow_reduced("all")),
    "bool_or": AggregateImplementation(_reduction(F.bool_or), duckdb=_duckdb_reduced("bool_or"), arrow=_arrow_reduced("any")),
    "every": AggregateImplementation(_reduction(F.bool_and), duckdb=_duckdb_reduced("bool_and"), arrow=_arrow_reduced("all")),
    "bit_and": AggregateImplementation(_reduction(F.bit_and), _whole, _duckdb_reduced("bit_and")),
    "bit_or": AggregateImplementation(_reduction(F.bit_or), _whole, _duckdb_reduced("bit_or")),
    "bit_xor": AggregateImplementation(_reduction(F.bit_xor), _whole),
}
