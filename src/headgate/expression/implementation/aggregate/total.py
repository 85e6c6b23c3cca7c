"""Aggregates that count and add: count, sum, avg, variance and stddev, with PostgreSQL's result types and scales (manual, 9.21).

sum(bigint) and avg of integers are numeric. Sums of numeric text are exact: Spark sums the values that fit DECIMAL(28,10). The others are
collected and added by an Arrow function, which also computes the display scale.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headgate.expression import node as n
from headgate.expression.duckdb import value as duckdb
from headgate.expression.functions import aggregate, money, numeric
from headgate.expression.functions.datetime import interval
from headgate.expression.implementation.aggregate.aggregate import AggregateImplementation, ArrowCall, DuckdbCall
from headgate.expression.implementation.number.numeric import exactly
from headgate.expression.spark import row_value
from headgate.expression.spark.aggregate_call import AggregateCall, Filter
from headgate.expression.spark.comparison import numeric_key
from headgate.expression.spark.value import (  # fmt: skip
    DIGITS,
    FLOAT4,
    FLOAT8,
    INT8,
    TEXT,
    Env,
    Make,
    Rep,
    Value,
    arrow_function,
    as_text,
    decimal,
    refuse,
    settle,
)
from headgate.expression.spark.vectorised import call
from headgate.types import registry, sortkey
from headgate.types.base.money import amount_of
from headgate.types.base.numeric import write_numeric
from headgate.types.storage import arrow_type
from headgate.types.typmod import MAX_PRECISION

_FITS = r"\A-?[0-9]{1,18}(\.[0-9]{1,10})?\z"
_SUMMED = frozenset({*registry.INTEGERS, registry.FLOAT4, registry.FLOAT8, registry.NUMERIC, registry.INTERVAL, registry.MONEY})


def _count(group: AggregateCall) -> Value:
    node, values, apply_filter = group.node, group.values, group.apply_filter
    if node.star or not values:
        star = apply_filter(lambda env: F.lit(1))
        return Value(INT8, lambda env: env.over(F.count(star(env))))
    if node.distinct and values[0].rep == DIGITS:
        counted = apply_filter(numeric_key(values[0]))
    elif node.distinct and (group.kinds[0].oid == registry.RECORD or not sortkey.exact(group.kinds[0].oid, registry.known())):
        counted = apply_filter(row_value.sort_key(values[0], group.kinds[0]).make)
    else:
        counted = apply_filter(settle(values[0]))
    return Value(INT8, lambda env: env.over(F.count_distinct(counted(env)) if node.distinct else F.count(counted(env))))


def _total(group: AggregateCall, *, average: bool) -> Value:
    if group.function.result == registry.MONEY:
        return _money_sum(group.values[0], group.apply_filter, distinct=group.node.distinct)
    return _sum(group.values[0], group.apply_filter, distinct=group.node.distinct, average=average)


def _sum(value: Value, apply_filter: Filter, *, distinct: bool, average: bool) -> Value:
    name = value.rep.name
    if name == "text":
        return _interval_sum(value, apply_filter, distinct=distinct, average=average)
    total: Callable[[Column], Column] = F.sum_distinct if distinct else F.sum
    if name in ("float4", "float8"):
        return _float_sum(value, apply_filter, total, distinct=distinct, average=average)
    if name in ("int2", "int4", "int8"):
        whole = apply_filter(lambda env: value.make(env).cast("decimal(19,0)"))
        summed = Value(decimal(29, 0), lambda env: env.over(total(whole(env))))
        if average:
            return _average(summed, whole, distinct=distinct)
        if name == "int8":
            return summed
        return Value(INT8, lambda env: summed.make(env).cast("bigint"))
    if name == "decimal" and value.rep.precision + 10 <= MAX_PRECISION:
        exact = apply_filter(value.make)
        summed = Value(decimal(value.rep.precision + 10, value.rep.scale), lambda env: env.over(total(exact(env))))
        return _average(summed, exact, distinct=distinct) if average else summed
    if distinct:
        raise refuse("sum(DISTINCT) of numeric without precision")
    texts = apply_filter(settle(Value(DIGITS, as_text(value), value.fallible)))
    summed = Value(DIGITS, lambda env: _text_sum(texts(env), env))
    return _average(summed, texts, distinct=False) if average else summed


def _money_sum(value: Value, apply_filter: Filter, *, distinct: bool) -> Value:
    """Return sum(money), computed in cents. An overflow of intermediate sums does not raise here, as it does in PostgreSQL."""
    total: Callable[[Column], Column] = F.sum_distinct if distinct else F.sum
    cents = apply_filter(call(amount_of, INT8, [value], raises=False).make)
    return call(money.summed, TEXT, [Value(TEXT, lambda env: env.over(total(cents(env).cast("decimal(19,0)"))).cast("string"))])


def _interval_sum(value: Value, apply_filter: Filter, *, distinct: bool, average: bool) -> Value:
    """Return sum(interval), computed field by field. avg divides it by the count as ``interval / count`` does."""
    if distinct:
        raise refuse("sum and avg of DISTINCT intervals")

    def total(field: Callable[[str], int]) -> Value:
        amount = apply_filter(call(field, INT8, [value], raises=False).make)
        return Value(TEXT, lambda env: env.over(F.sum(amount(env).cast("decimal(19,0)"))).cast("string"))

    summed = call(interval.summed, TEXT, [total(field) for field in (interval.months_of, interval.days_of, interval.micros_of)])
    if not average:
        return summed
    settled = apply_filter(settle(value))
    return call(interval.over, TEXT, (summed, Value(FLOAT8, lambda env: env.over(F.count(settled(env))).cast("double"))))


def _text_sum(texts: Column, env: Env) -> Column:
    """Return the exact sum of numeric texts. Its scale is the greatest of theirs."""
    fits = texts.rlike(_FITS)
    usual = env.over(F.sum(F.when(fits, texts).cast("decimal(28,10)"))).cast("string")
    odd = env.over(F.collect_list(F.when(~fits, texts)))
    scale = env.over(F.max(F.when(fits, F.length(F.regexp_extract(texts, r"\.([0-9]+)", 1)))))

    def add_up(usual_sums: pa.Array, odd_values: pa.Array, scales: pa.Array) -> pa.Array:
        rows = zip(usual_sums.to_pylist(), odd_values.to_pylist(), scales.to_pylist(), strict=True)
        return pa.array([aggregate.total(*row) for row in rows], pa.string())

    return arrow_function(add_up, StringType())(usual, odd, scale)


def _average(summed: Value, counted: Make, *, distinct: bool) -> Value:
    """Return avg: the sum divided by the count with numeric's own scale rule."""
    number = F.count_distinct if distinct else F.count

    def mean(total: str, count: str) -> str | None:
        return numeric.divide(total, count) if count != "0" else None

    return exactly(mean, (summed, Value(Rep("text"), lambda env: env.over(number(counted(env))).cast("string"))))


def _float_sum(value: Value, apply_filter: Filter, total: Callable[[Column], Column], *, distinct: bool, average: bool) -> Value:
    """Return a sum of floats, which depends on the order of rows in both systems. PostgreSQL sums float4 in single precision: refused."""
    if value.rep == FLOAT4 and not average:
        raise refuse("sum(real)", "its result depends on single-precision additions in row order")
    double = apply_filter(lambda env: value.make(env).cast("double"))
    if average and not distinct:
        return Value(FLOAT8, lambda env: env.over(F.avg(double(env))))
    if average:
        raise refuse("avg(DISTINCT) of floating point")
    return Value(FLOAT8, lambda env: env.over(total(double(env))))


def _spread(group: AggregateCall) -> Value:
    """Return variance or stddev of exact numbers from the count, the sum and the sum of squares (numeric_stddev_internal)."""
    name, value, apply_filter = group.function.name, group.values[0], group.apply_filter
    if group.node.distinct:
        raise refuse(f"{name} with DISTINCT")
    whole = value.rep.name in ("int2", "int4", "int8")
    exact = Value(DIGITS, lambda env: value.make(env).cast("string")) if whole else value
    total = _sum(exact, apply_filter, distinct=False, average=False)
    squares = _sum(exactly(numeric.square, [exact]), apply_filter, distinct=False, average=False)
    present = apply_filter(settle(exact))

    def spread(sums: str, squared: str, count: str) -> str | None:
        return numeric.spread(sums, squared, int(count), sample=not name.endswith("_pop"), root=name.startswith("stddev"))

    return exactly(spread, (total, squares, Value(Rep("text"), lambda env: env.over(F.count(present(env))).cast("string"))))


_DUCKDB_SUMS = {
    registry.INT2: "CAST({} AS BIGINT)", registry.INT4: "CAST({} AS BIGINT)",
    registry.INT8: "CAST({} AS DECIMAL(38,0))", registry.NUMERIC: "{}",
}  # fmt: skip


def _duckdb_sum(node: n.Aggregate, args: Sequence[str], env: duckdb.Env) -> DuckdbCall | None:
    [value] = node.args
    if value.type.oid == registry.NUMERIC and duckdb.scale(value, env) is None:
        raise duckdb.refuse("a numeric value whose scale is not known", node)
    around = _DUCKDB_SUMS.get(value.type.oid)
    return None if around is None else DuckdbCall("sum", args[0], around)


def _arrow_count(node: n.Aggregate) -> ArrowCall:
    return ArrowCall((("count_distinct" if node.distinct else "count", pc.CountOptions(mode="only_valid")),))


_WIDE = {registry.INT2: pa.int64(), registry.INT4: pa.int64(), registry.INT8: pa.decimal128(19, 0)}
"""In which type Arrow adds integers: no sum of the rows that the driver holds is out of its range."""
_ADDED_DIGITS = 28
"""Digits of decimals of which 10**10 can be added in decimal128."""


def _arrow_sum(node: n.Aggregate, *, average: bool) -> ArrowCall | None:
    [value] = node.args
    kind = arrow_type(value.type.oid, value.type.typmod)
    fits = pa.types.is_decimal(kind) and kind.precision <= _ADDED_DIGITS
    if node.distinct or not (fits or value.type.oid in registry.INTEGERS):
        return None
    if average:
        wide = kind if fits else pa.decimal128(19, 0)
        return ArrowCall((("sum", None), ("count", None)), lambda values: values.cast(wide), _mean)
    widened = _WIDE.get(value.type.oid, kind)
    return ArrowCall((("sum", None),), lambda values: values.cast(widened))


def _mean(sums: pa.Array, counts: pa.Array) -> pa.Array:
    totals = write_numeric(sums).to_pylist()
    means = [None if total is None else numeric.divide(total, str(count)) for total, count in zip(totals, counts.to_pylist(), strict=True)]
    return pa.array(means, pa.string())


def _has_sum(oid: int) -> bool:
    return oid in _SUMMED


def _exact(oid: int) -> bool:
    return oid in registry.INTEGERS or oid == registry.NUMERIC


AGGREGATES = {
    "count": AggregateImplementation(
        _count, duckdb=lambda node, args, env: DuckdbCall("count", "*" if node.star else args[0]), arrow=_arrow_count
    ),
    "sum": AggregateImplementation(
        functools.partial(_total, average=False), _has_sum, _duckdb_sum, functools.partial(_arrow_sum, average=False)
    ),
    "avg": AggregateImplementation(functools.partial(_total, average=True), _has_sum, arrow=functools.partial(_arrow_sum, average=True)),
    **dict.fromkeys(
        ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"),
        AggregateImplementation(_spread, _exact),
    ),
}
