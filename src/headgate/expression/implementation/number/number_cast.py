"""Casts between numbers: integers, floating point and numeric, with PostgreSQL's rounding and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.functions import numeric
from headgate.expression.implementation.implementation import ArrowForm, Implementation, NotColumnwise, SparkForm, Table, native, silent
from headgate.expression.implementation.number.floating_point import is_infinite
from headgate.expression.implementation.number.integer import narrowed, out_of_range
from headgate.expression.implementation.number.numeric import exactly, rounded, spark_decimal
from headgate.expression.node import Expression
from headgate.expression.spark.value import FLOAT4, FLOAT8, INT2, INT4, INT8, SPARK, Env, Rep, Value, decimal, of_columns, raising, settle


def _cast(rep: Rep) -> SparkForm:
    return native(rep, lambda column: column.cast(SPARK[rep.name]))


def _narrow(rep: Rep) -> SparkForm:
    return native(rep, lambda column: narrowed(column.cast("bigint"), rep))


def _integer_to_numeric(digits: int) -> SparkForm:
    rep = decimal(digits, 0)
    return lambda node, args: Value(rep, lambda env: args[0].make(env).cast(spark_decimal(rep)), constant=args[0].constant)


def _float_to_integer(rep: Rep, bits: int) -> SparkForm:
    limit = float(2 ** (bits - 1))

    def build(column: Column) -> Column:
        whole = F.rint(column.cast("double"))
        outside = F.isnan(whole) | (whole < -limit) | (whole >= limit)
        return F.when(outside, out_of_range(rep)).otherwise(whole.cast(SPARK[rep.name]))

    return native(rep, build)


def _numeric_to_integer(rep: Rep, bits: int) -> SparkForm:
    def to_whole(shown: str) -> str:
        return numeric.to_integer(shown, bits)

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        [value] = args
        if value.rep.name == "decimal":
            limit = 2 ** (bits - 1)

            def build(column: Column) -> Column:
                whole = F.round(column, 0)
                outside = (whole < F.lit(Decimal(-limit))) | (whole > F.lit(Decimal(limit - 1)))
                return F.when(outside, out_of_range(rep)).otherwise(whole.cast(SPARK[rep.name]))

            return of_columns(rep, build, value)
        converted = settle(exactly(to_whole, args))
        return Value(rep, lambda env: converted(env).cast(SPARK[rep.name]))

    return builder


def _numeric_to(rep: Rep, read: Callable[[str], str]) -> SparkForm:
    """Cast numeric to float8 or float4, directly from the text. float4 is not converted through a double."""
    kind = SPARK[rep.name]

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        [value] = args
        if value.rep.name == "decimal":
            return of_columns(rep, lambda column: column.cast("string").cast(kind), value)
        converted = settle(exactly(read, args))
        return Value(rep, lambda env: converted(env).cast(kind))

    return builder


def _float_to_numeric(digits: int) -> SparkForm:
    def to_digits(value: float) -> str:
        return numeric.from_double(value, digits)

    return lambda node, args: exactly(to_digits, [of_columns(FLOAT8, lambda column: column.cast("double"), *args)])


def _double_to_float(node: Expression, args: Sequence[Value]) -> Value:
    def make(env: Env) -> Column:
        wide = args[0].make(env)
        narrow = wide.cast("float")
        over = is_infinite(narrow) & ~is_infinite(wide)
        under = (narrow == 0) & (wide != 0)
        return (
            F.when(over, raising("22003", "value out of range: overflow"))
            .when(under, raising("22003", "value out of range: underflow"))
            .otherwise(narrow)
        )

    return Value(FLOAT4, make)


def _in_arrow(kind: pa.DataType) -> ArrowForm:
    return lambda value: pc.cast(value, kind)


def _whole_in_arrow(kind: pa.DataType) -> ArrowForm:
    return lambda value: rounded(value, 0).cast(kind)


def _double(value: pa.Scalar) -> pa.Scalar:
    """Return a numeric constant as a double. A value out of range raises PostgreSQL's error."""
    exact = value.as_py()
    double = float(exact)
    if math.isinf(double) or (double == 0 and exact != 0):
        raise NotColumnwise("numeric that is out of range for a double")
    return pa.scalar(double, pa.float64())


IMPLEMENTATIONS: Table = {
    "i4toi2": _narrow(INT2),
    "int28": silent(_cast(INT8), arrow=_in_arrow(pa.int64())),
    "int48": silent(_cast(INT8), arrow=_in_arrow(pa.int64())),
    "int82": _narrow(INT2),
    "int84": _narrow(INT4),
    "i2tof": _cast(FLOAT4),
    "i2tod": silent(_cast(FLOAT8), arrow=_in_arrow(pa.float64())),
    "i4tof": _cast(FLOAT4),
    "i4tod": silent(_cast(FLOAT8), arrow=_in_arrow(pa.float64())),
    "i8tof": _cast(FLOAT4),
    "i8tod": silent(_cast(FLOAT8)),
    "ftod": silent(_cast(FLOAT8), arrow=_in_arrow(pa.float64())),
    "dtof": _double_to_float,
    "ftoi2": _float_to_integer(INT2, 16),
    "ftoi4": _float_to_integer(INT4, 32),
    "ftoi8": _float_to_integer(INT8, 64),
    "dtoi2": _float_to_integer(INT2, 16),
    "dtoi4": _float_to_integer(INT4, 32),
    "dtoi8": _float_to_integer(INT8, 64),
    "int2_numeric": silent(_integer_to_numeric(5), arrow=_in_arrow(pa.decimal128(5, 0))),
    "int4_numeric": silent(_integer_to_numeric(10), arrow=_in_arrow(pa.decimal128(10, 0))),
    "int8_numeric": silent(_integer_to_numeric(19), arrow=_in_arrow(pa.decimal128(19, 0))),
    "numeric_int2": Implementation(_numeric_to_integer(INT2, 16), arrow=_whole_in_arrow(pa.int16())),
    "numeric_int4": Implementation(_numeric_to_integer(INT4, 32), arrow=_whole_in_arrow(pa.int32())),
    "numeric_int8": Implementation(_numeric_to_integer(INT8, 64), arrow=_whole_in_arrow(pa.int64())),
    "numeric_float8": Implementation(_numeric_to(FLOAT8, numeric.to_double), arrow=_double),
    "numeric_float4": _numeric_to(FLOAT4, numeric.to_single),
    "float8_numeric": _float_to_numeric(15),
    "float4_numeric": _float_to_numeric(6),
    "bool_int4": silent(_cast(INT4)),
}
