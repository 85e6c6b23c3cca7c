"""Floating point: float4 and float8 arithmetic and functions with PostgreSQL's overflow, underflow and domain errors.

Spark computes the same IEEE results but returns infinities, NaN and NULL where PostgreSQL raises an error. Guards add these errors.
Functions whose last digit depends on the C library (power, exp, ln, sin, …) run in Python (`functions.floating_point`), because Java's
differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.duckdb import number
from headgate.expression.functions import floating_point
from headgate.expression.implementation.implementation import Guarded, Implementation, SparkForm, Table, native
from headgate.expression.implementation.number.integer import by_zero, division_by_zero, of_alike
from headgate.expression.spark.value import FLOAT4, FLOAT8, INT4, SPARK, Rep, raising
from headgate.expression.spark.vectorised import scalar

INFINITY = float("inf")


def is_infinite(column: Column) -> Column:
    return F.abs(column) == F.lit(INFINITY)


def _overflow() -> Column:
    return raising("22003", "value out of range: overflow")


def _underflow() -> Column:
    return raising("22003", "value out of range: underflow")


def _sum(rep: Rep, operation: Callable[[Column, Column], Column]) -> SparkForm:
    def build(a: Column, b: Column) -> Column:
        result = operation(a, b).cast(SPARK[rep.name])
        return F.when(is_infinite(result) & ~is_infinite(a) & ~is_infinite(b), _overflow()).otherwise(result)

    return of_alike(rep, build)


def _product(rep: Rep) -> SparkForm:
    def build(a: Column, b: Column) -> Column:
        result = (a * b).cast(SPARK[rep.name])
        over = is_infinite(result) & ~is_infinite(a) & ~is_infinite(b)
        under = (result == 0) & (a != 0) & (b != 0)
        return F.when(over, _overflow()).when(under, _underflow()).otherwise(result)

    return of_alike(rep, build)


def _quotient(rep: Rep) -> SparkForm:
    def build(a: Column, b: Column) -> Column:
        result = F.try_divide(a.cast("double"), b.cast("double")).cast(SPARK[rep.name])
        over = is_infinite(result) & ~is_infinite(a)
        under = (result == 0) & (a != 0) & ~is_infinite(b)
        return (
            F.when(by_zero(a, b) & ~F.isnan(a), division_by_zero())
            .when((b == 0) & F.isnan(a), F.lit(float("nan")).cast(SPARK[rep.name]))
            .when(over, _overflow())
            .when(under, _underflow())
            .otherwise(result)
        )

    return of_alike(rep, build)


def _map(rep: Rep, function: Callable[[Column], Column]) -> SparkForm:
    return native(rep, lambda column: function(column).cast(SPARK[rep.name]))


def _whole(function: Callable[[Column], Column]) -> SparkForm:
    """Return the form of ceil or floor. Doubles beyond 2^52 are integers, and Spark's bigint result would saturate. -0 stays -0."""

    def build(a: Column) -> Column:
        large = (F.abs(a) >= F.lit(4503599627370496.0)) | F.isnan(a)
        whole = function(F.when(large, F.lit(0.0)).otherwise(a)).cast("double")
        signed = F.when(whole == 0, a * F.lit(0.0)).otherwise(whole)
        return F.when(large, a).otherwise(signed)

    return native(FLOAT8, build)


def _root(a: Column) -> Column:
    bad = raising("2201F", "cannot take square root of a negative number")
    return F.when((a < 0) & ~F.isnan(a), bad).otherwise(F.sqrt(a))


def _sign(a: Column) -> Column:
    return F.when(F.isnan(a), F.lit(0.0)).when(a > 0, F.lit(1.0)).when(a <= 0, F.when(a < 0, F.lit(-1.0)).otherwise(F.lit(0.0)))


def _truncate(a: Column) -> Column:
    large = (F.abs(a) >= F.lit(4503599627370496.0)) | F.isnan(a)
    inner = F.when(large, F.lit(0.0)).otherwise(a)
    whole = F.when(a >= 0, F.floor(inner).cast("double")).otherwise(-F.floor(-inner).cast("double"))
    return F.when(large, a).when(whole == 0, a * F.lit(0.0)).otherwise(whole)


def _families() -> Table:
    table: Table = {}
    pairs = {"float4": FLOAT4, "float8": FLOAT8, "float48": FLOAT8, "float84": FLOAT8}
    for prefix, rep in pairs.items():
        table[f"{prefix}pl"] = Implementation(_sum(rep, lambda a, b: a + b), duckdb=number.floating("+"))
        table[f"{prefix}mi"] = Implementation(_sum(rep, lambda a, b: a - b), duckdb=number.floating("-"))
        table[f"{prefix}mul"] = Implementation(_product(rep), duckdb=number.floating("*"))
        table[f"{prefix}div"] = Implementation(_quotient(rep), duckdb=number.floating("/"))
    for prefix, rep in (("float4", FLOAT4), ("float8", FLOAT8)):
        table[f"{prefix}um"] = _map(rep, lambda a: -a)
        table[f"{prefix}abs"] = _map(rep, F.abs)
        table[f"{prefix}up"] = lambda node, args: args[0]
    table["float8abs"] = Implementation(_map(FLOAT8, F.abs), duckdb="abs({0})")
    return table


_LIBRARY: dict[str, Callable[..., float]] = {
    "dpow": floating_point.power, "dexp": floating_point.exponential, "dcbrt": math.cbrt, "degrees": floating_point.degrees,
    "radians": floating_point.radians, "dcot": floating_point.cotangent, "datan": math.atan, "datan2": math.atan2,
    "dsinh": floating_point.hyperbolic_sine, "dcosh": floating_point.hyperbolic_cosine, "dtanh": math.tanh, "dasinh": math.asinh,
    "dacosh": floating_point.area_cosine, "datanh": floating_point.area_tangent, "dsind": floating_point.sine_degrees,
    "dcosd": floating_point.cosine_degrees, "dtand": floating_point.tangent_degrees, "dcotd": floating_point.cotangent_degrees,
    "dasind": floating_point.arc_sine_degrees, "dacosd": floating_point.arc_cosine_degrees,
    "datand": floating_point.arc_tangent_degrees, "datan2d": floating_point.arc_tangent_2_degrees,
}  # fmt: skip
_WITHIN: dict[str, tuple[Callable[..., float], Callable[[float], float]]] = {
    "dlog1": (floating_point.logarithm, math.log), "dlog10": (floating_point.logarithm, math.log10),
    "dsin": (floating_point.periodic, math.sin), "dcos": (floating_point.periodic, math.cos), "dtan": (floating_point.periodic, math.tan),
    "dasin": (floating_point.within_one, math.asin), "dacos": (floating_point.within_one, math.acos),
}  # fmt: skip
"""Functions of the C library, each with the one that checks its argument."""
IMPLEMENTATIONS: Table = {
    **_families(),
    "dround": _map(FLOAT8, F.rint),
    "dceil": Implementation(_whole(F.ceil), duckdb="ceil({0})"),
    "dfloor": Implementation(_whole(F.floor), duckdb="floor({0})"),
    "dtrunc": native(FLOAT8, _truncate),
    "dsqrt": Implementation(
        native(FLOAT8, _root),
        duckdb=Guarded("CASE WHEN {0} < 0 THEN <2201F cannot take square root of a negative number> ELSE sqrt({0}) END"),
    ),
    "dsign": Implementation(native(FLOAT8, _sign), duckdb="CAST(sign({0}) AS DOUBLE)"),
    "dpi": Implementation(native(FLOAT8, lambda: F.lit(math.pi)), duckdb="pi()"),
    **{key: scalar(function, FLOAT8) for key, function in _LIBRARY.items()},
    **{key: scalar(check, FLOAT8, prefix=(function,)) for key, (check, function) in _WITHIN.items()},
    "width_bucket_float8": scalar(floating_point.bucket, INT4),
}
