"""Integers and booleans: arithmetic with PostgreSQL's overflow errors, division towards zero, bits, abs, mod, gcd.

The expression itself checks for overflow and raises the error when a row is computed, as PostgreSQL does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.duckdb import number
from headgate.expression.functions import array, floating_point
from headgate.expression.implementation.implementation import ArrowForm, Implementation, SparkForm, Table, native
from headgate.expression.node import Expression, FuncExpr
from headgate.expression.spark.value import INT2, INT4, INT8, SPARK, TEXT, Env, Rep, Value, in_rep, of_columns, raising
from headgate.expression.spark.vectorised import call, scalar

_NAMES = {"int2": "smallint", "int4": "integer", "int8": "bigint"}
_LEAST = {"int2": -(2**15), "int4": -(2**31), "int8": -(2**63)}


def out_of_range(rep: Rep) -> Column:
    """Return a Column that raises 22003 for the integer type."""
    return raising("22003", f"{_NAMES[rep.name]} out of range")


def division_by_zero() -> Column:
    """Return a Column that raises 22012."""
    return raising("22012", "division by zero")


def narrowed(number: Column, rep: Rep) -> Column:
    """Cast a bigint or wider value to the integer type. The Column raises the type's overflow error if the value does not fit."""
    low = _LEAST[rep.name]
    return F.when((number < F.lit(low)) | (number > F.lit(-low - 1)), out_of_range(rep)).otherwise(number.cast(SPARK[rep.name]))


def of_alike(rep: Rep, build: Callable[..., Column]) -> SparkForm:
    """Return the form of a function that `build` makes of the Columns of its operands, cast to the result's representation."""
    return lambda node, args: Value(rep, lambda env: build(*in_rep(rep, args, env)))


def _arithmetic(rep: Rep, attempt: Callable[[Column, Column], Column]) -> SparkForm:
    """Return the form of + - *. Spark's try_ function returns NULL on overflow, which is then raised as PostgreSQL's error.

    Spark's checked arithmetic is not used, although it raises too. The planner evaluates it if it infers that the operands are constants
    (from ``id = 5`` beside it), and then raises for a row that does not exist.
    """

    def make(args: Sequence[Value], env: Env) -> Column:
        a, b = in_rep(rep, args, env)
        are_known = _all_known([column for column, arg in zip((a, b), args, strict=True) if arg.constant is None])
        return F.coalesce(attempt(a, b), F.when(are_known, out_of_range(rep)))

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _all_known(columns: Sequence[Column]) -> Column:
    return functools.reduce(Column.__and__, [F.isnotnull(column) for column in columns]) if columns else F.lit(True)


def by_zero(a: Column, b: Column, zero: Column | None = None) -> Column:
    """Return whether a value is divided by zero. The left operand is evaluated first, as in PostgreSQL.

    `zero`: of the type of a decimal. Compared with a plain 0, one with 38 fraction digits would lose its last digit.
    """
    return F.isnotnull(a) & (b == (F.lit(0) if zero is None else zero))


def _division(rep: Rep) -> SparkForm:
    def make(args: Sequence[Value], env: Env) -> Column:
        a, b = in_rep(rep, args, env)
        quotient = F.call_function("div", a, b).cast(SPARK[rep.name])
        if args[1].constant not in (None, "0", "-1"):
            return quotient
        overflow = (a == F.lit(_LEAST[rep.name])) & (b == F.lit(-1))
        return F.when(by_zero(a, b), division_by_zero()).when(overflow, out_of_range(rep)).otherwise(quotient)

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _modulo(rep: Rep) -> SparkForm:
    def make(args: Sequence[Value], env: Env) -> Column:
        a, b = in_rep(rep, args, env)
        remainder = (a % b).cast(SPARK[rep.name])
        return remainder if args[1].constant not in (None, "0") else F.when(by_zero(a, b), division_by_zero()).otherwise(remainder)

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _negation(rep: Rep, *, magnitude: bool = False) -> SparkForm:
    def build(a: Column) -> Column:
        negative = (-a).cast(SPARK[rep.name])
        changed = F.when(a == F.lit(_LEAST[rep.name]).cast(SPARK[rep.name]), out_of_range(rep)).otherwise(negative)
        return F.when(a < 0, changed).otherwise(a) if magnitude else changed

    return native(rep, build)


def _bits(rep: Rep, operation: Callable[[Column, Column], Column]) -> SparkForm:
    return of_alike(rep, lambda a, b: operation(a, b).cast(SPARK[rep.name]))


def _shift(rep: Rep, function: str) -> SparkForm:
    """Return the form of << or >>. As in C on x86, the count is taken modulo the width (int2 is shifted as int4 and truncated)."""

    def build(a: Column, count: Column) -> Column:
        if rep == INT2:
            wide = F.call_function(function, a.cast("int"), count)
            low = wide.bitwiseAND(F.lit(0xFFFF))
            return F.when(low >= 0x8000, low - F.lit(0x10000)).otherwise(low).cast("smallint")
        return F.call_function(function, a, count)

    return native(rep, build)


def _same(node: Expression, args: Sequence[Value]) -> Value:
    return args[0]


_PAIRS = {
    "int2": INT2,
    "int4": INT4,
    "int8": INT8,
    "int24": INT4,
    "int42": INT4,
    "int28": INT8,
    "int82": INT8,
    "int48": INT8,
    "int84": INT8,
}
"""Result types of the operators of two integers, by the prefix of their keys."""
_DUCKDB = {INT2: "SMALLINT", INT4: "INTEGER", INT8: "BIGINT"}
_ARROW = {INT2: pa.int16(), INT4: pa.int32(), INT8: pa.int64()}


def _with_cast_operands(rep: Rep, kernel: ArrowForm) -> ArrowForm:
    """Return a kernel that first casts its operands to the result's type."""
    kind = _ARROW[rep]
    return lambda *values: kernel(*(value if value.type == kind else pc.cast(value, kind) for value in values))


def _remainder(left: object, right: object) -> object:
    """Return ``left % right``, with the sign of the dividend."""
    return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))


def _of_two(prefix: str, rep: Rep) -> Table:
    """Return the arithmetic operators of two integers. Their kernels raise on overflow and division by zero."""

    def entry(spark: SparkForm, kernel: ArrowForm, symbol: str) -> Implementation:
        return Implementation(spark, arrow=_with_cast_operands(rep, kernel), duckdb=number.integer(symbol))

    return {
        f"{prefix}pl": entry(_arithmetic(rep, F.try_add), pc.add_checked, "+"),
        f"{prefix}mi": entry(_arithmetic(rep, F.try_subtract), pc.subtract_checked, "-"),
        f"{prefix}mul": entry(_arithmetic(rep, F.try_multiply), pc.multiply_checked, "*"),
        f"{prefix}div": entry(_division(rep), pc.divide_checked, "//"),
    }


def _of_one_type(prefix: str, rep: Rep) -> Table:
    """Return the functions whose operands and result have one type."""
    kind = _DUCKDB[rep]
    shifted = None if rep == INT2 else f"({{0}} >> ({{1}} & {63 if rep == INT8 else 31}))"
    return {
        f"{prefix}mod": Implementation(_modulo(rep), arrow=_with_cast_operands(rep, _remainder), duckdb=number.integer("%")),
        f"{prefix}um": Implementation(_negation(rep), arrow=pc.negate_checked, duckdb=f"CAST((-{{0}}) AS {kind})"),
        f"{prefix}abs": Implementation(_negation(rep, magnitude=True), arrow=pc.abs_checked, duckdb=f"CAST(abs({{0}}) AS {kind})"),
        f"{prefix}up": Implementation(_same, duckdb=f"CAST((+{{0}}) AS {kind})"),
        f"{prefix}and": Implementation(_bits(rep, lambda a, b: a.bitwiseAND(b)), duckdb="({0} & {1})"),
        f"{prefix}or": Implementation(_bits(rep, lambda a, b: a.bitwiseOR(b)), duckdb="({0} | {1})"),
        f"{prefix}xor": Implementation(_bits(rep, lambda a, b: a.bitwiseXOR(b)), duckdb="xor({0}, {1})"),
        f"{prefix}not": Implementation(native(rep, F.bitwise_not), duckdb=f"CAST((~{{0}}) AS {kind})"),
        f"{prefix}shl": _shift(rep, "shiftleft"),
        f"{prefix}shr": Implementation(_shift(rep, "shiftright"), duckdb=shifted),
    }


def _families() -> Table:
    table: Table = {}
    for prefix, rep in _PAIRS.items():
        table |= _of_two(prefix, rep)
    for prefix, rep in (("int2", INT2), ("int4", INT4), ("int8", INT8)):
        table |= _of_one_type(prefix, rep)
    return table


def _hex(node: Expression, args: Sequence[Value]) -> Value:
    def build(number: Column) -> Column:
        digits = F.lower(F.hex(number))
        return F.right(digits, F.lit(8)) if args[0].rep == INT4 else digits

    return of_columns(TEXT, build, *args)


def _count_nulls(nulls: bool) -> SparkForm:
    """Return the form of num_nulls or num_nonnulls, over the arguments or over the elements of a VARIADIC array."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        if isinstance(node, FuncExpr) and node.variadic:
            return call(array.count_nulls if nulls else array.count_values, INT4, args, raises=False)

        def build(*columns: Column) -> Column:
            count = F.lit(0)
            for column in columns:
                null = F.isnull(column)
                count = count + F.when(null if nulls else ~null, F.lit(1)).otherwise(F.lit(0))
            return count.cast("int")

        return of_columns(INT4, build, *args)

    return builder


IMPLEMENTATIONS: Table = {
    **_families(),
    "to_hex32": Implementation(_hex, duckdb="printf('%x', CAST({0} AS BIGINT) & 4294967295)"),
    "to_hex64": Implementation(
        _hex, duckdb="lower(hex(CAST((CAST({0} AS HUGEINT) + 18446744073709551616) % 18446744073709551616 AS UBIGINT)))"
    ),
    "int4gcd": scalar(floating_point.in_range, INT4, prefix=(math.gcd, 31, "integer")),
    "int8gcd": scalar(floating_point.in_range, INT8, prefix=(math.gcd, 63, "bigint")),
    "int4lcm": scalar(floating_point.in_range, INT4, prefix=(math.lcm, 31, "integer")),
    "int8lcm": scalar(floating_point.in_range, INT8, prefix=(math.lcm, 63, "bigint")),
    "pg_num_nulls": _count_nulls(True),
    "pg_num_nonnulls": _count_nulls(False),
}
