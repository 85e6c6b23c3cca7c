"""numeric: arithmetic, rounding and functions, in Spark decimals if the exact result and its scale fit, otherwise on text.

Spark's decimal rules give PostgreSQL's digits as long as the result has at most 38 digits. The result's precision is therefore computed
first. If it does not fit, the operation runs as an Arrow function of `functions.numeric`. Division always does, because its scale
depends on the values (select_div_scale). Arrow's decimals follow the same rules. A result of more than 38 digits raises there, and is
left to Spark (`columnwise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.duckdb import number
from headgate.expression.functions import numeric, numeric_power
from headgate.expression.implementation.implementation import Implementation, NotColumnwise, Operand, SparkForm, Table
from headgate.expression.implementation.number.integer import by_zero, division_by_zero
from headgate.expression.node import Expression
from headgate.expression.spark.value import DIGITS, INT4, Rep, Value, as_text, decimal, of_columns
from headgate.expression.spark.vectorised import call, scalar
from headgate.types.typmod import MAX_PRECISION

ZERO = Rep("decimal", 1, 0)
_WHOLE = pa.scalar(0, pa.int32())
_NO_DIGITS = Value(INT4, lambda env: F.lit(0), constant="0")
_NEGATED = 34
"""Number of digits to which Spark's minus and abs round (Scala's BigDecimal, MathContext.DECIMAL128). Longer numbers would get wrong
digits, or overflow for 38 nines."""


def spark_decimal(rep: Rep) -> str:
    """Return the SQL name of a decimal type."""
    return f"decimal({rep.precision},{rep.scale})"


def exactly(function: Callable[..., str | None], args: Sequence[Value]) -> Value:
    """Return a call of a function of `functions.numeric` with numerics (passed as text) and integers."""
    return call(function, DIGITS, args)


def unify(values: Sequence[Value]) -> list[Value]:
    """Convert values of one type to one representation. Numerics of different scales become text, so that each keeps its own scale."""
    names = {value.rep for value in values}
    if len(names) == 1:
        return list(values)
    if not all(value.rep.name in ("decimal", "digits") for value in values):
        return list(values)
    reps = [value.rep for value in values if not value.is_null]
    decimals_only = bool(reps) and all(rep.name == "decimal" for rep in reps)
    if decimals_only and len({rep.scale for rep in reps}) == 1:
        target = decimal(max(rep.precision for rep in reps), reps[0].scale)
        return [_widen(value, target) for value in values]
    return [_texts(value) for value in values]


def _widen(value: Value, target: Rep) -> Value:
    if value.rep == target:
        return value
    return Value(target, lambda env: value.make(env).cast(spark_decimal(target)), constant=value.constant)


def _texts(value: Value) -> Value:
    if value.rep == DIGITS:
        return value
    return Value(DIGITS, as_text(value), value.fallible, value.constant)


def _both(args: Sequence[Value]) -> bool:
    return all(arg.rep.name == "decimal" for arg in args)


def _sum(operation: Callable[[Column, Column], Column], exact: Callable[[str, str], str]) -> SparkForm:
    def builder(node: Expression, args: Sequence[Value]) -> Value:
        left, right = args
        if _both(args):
            scale = max(left.rep.scale, right.rep.scale)
            precision = max(left.rep.whole, right.rep.whole) + scale + 1
            if precision <= MAX_PRECISION:
                target = decimal(precision, scale)
                return of_columns(target, lambda a, b: operation(a, b).cast(spark_decimal(target)), left, right)
        return exactly(exact, args)

    return builder


def _product(node: Expression, args: Sequence[Value]) -> Value:
    left, right = args
    if _both(args) and left.rep.precision + right.rep.precision + 1 <= MAX_PRECISION:
        target = decimal(left.rep.precision + right.rep.precision + 1, left.rep.scale + right.rep.scale)
        return of_columns(target, lambda a, b: (a * b).cast(spark_decimal(target)), left, right)
    return exactly(numeric.multiply, args)


def _modulo(node: Expression, args: Sequence[Value]) -> Value:
    left, right = args
    scale = max(left.rep.scale, right.rep.scale)
    whole = max(left.rep.whole, right.rep.whole)
    if _both(args) and whole + scale <= MAX_PRECISION:
        target = spark_decimal(decimal(whole + scale, scale))

        def build(dividend: Column, divisor: Column) -> Column:
            a, b = dividend.cast(target), divisor.cast(target)
            return F.when(by_zero(a, b, F.lit(0).cast(target)), division_by_zero()).otherwise((a % b).cast(target))

        return of_columns(decimal(whole + scale, scale), build, *args)
    return exactly(numeric.modulo, args)


def _negate(column: Column, rep: Rep) -> Column:
    """Negate a decimal. One with many digits is negated by its text, because Spark's minus would round it."""
    if rep.precision <= _NEGATED:
        return (-column).cast(spark_decimal(rep))
    digits, zero = column.cast("string"), _zero(rep)
    negated = F.when(column > zero, F.concat(F.lit("-"), digits)).when(column < zero, F.substring(digits, 2, MAX_PRECISION + 2))
    return negated.otherwise(digits).cast(spark_decimal(rep))


def _zero(rep: Rep) -> Column:
    """Return zero in the decimal's own type. Compared with a plain 0, a decimal with 38 fraction digits would lose its last digit."""
    return F.lit(0).cast(spark_decimal(rep))


def _change_sign(change: Callable[[Column, Rep], Column], exact: Callable[[str], str]) -> SparkForm:
    def builder(node: Expression, args: Sequence[Value]) -> Value:
        [value] = args
        if _both(args):
            return Value(value.rep, lambda env: change(value.make(env), value.rep))
        return exactly(exact, args)

    return builder


def _whole(native: Callable[[Column], Column], exact: Callable[[str], str]) -> SparkForm:
    def builder(node: Expression, args: Sequence[Value]) -> Value:
        [value] = args
        if _both(args) and value.rep.whole + 1 <= MAX_PRECISION:
            target = decimal(value.rep.whole + 1, 0)
            return Value(target, lambda env: native(value.make(env)).cast(spark_decimal(target)))
        return exactly(exact, args)

    return builder


def _sign(node: Expression, args: Sequence[Value]) -> Value:
    [value] = args
    if not _both(args):
        return exactly(numeric.sign, args)

    def build(a: Column) -> Column:
        zero = _zero(value.rep)
        return F.when(a > zero, F.lit(1)).when(a < zero, F.lit(-1)).when(a == zero, F.lit(0)).cast("decimal(1,0)")

    return of_columns(ZERO, build, value)


def _round(node: Expression, args: Sequence[Value]) -> Value:
    value, scale = _with_scale(args)
    if scale is not None and value.rep.name == "decimal" and scale >= 0 and value.rep.whole + scale + 1 <= MAX_PRECISION:
        target = decimal(value.rep.whole + scale + 1, scale)
        return Value(target, lambda env: F.round(value.make(env), scale).cast(spark_decimal(target)))
    return exactly(numeric.round_to, (args[0], args[1] if len(args) > 1 else _NO_DIGITS))


def _truncate(node: Expression, args: Sequence[Value]) -> Value:
    value, scale = _with_scale(args)
    if (
        scale is not None
        and value.rep.name == "decimal"
        and 0 <= scale <= 18
        and value.rep.whole + max(scale, value.rep.scale) + 1 <= MAX_PRECISION
    ):
        target = decimal(value.rep.whole + scale + 1, scale)
        unit = Decimal(1).scaleb(-scale)

        def build(a: Column) -> Column:
            return (a if scale >= value.rep.scale else a - a % F.lit(unit)).cast(spark_decimal(target))

        return of_columns(target, build, value)
    return exactly(numeric.truncate_to, (args[0], args[1] if len(args) > 1 else _NO_DIGITS))


def _with_scale(args: Sequence[Value]) -> tuple[Value, int | None]:
    if len(args) == 1:
        return args[0], 0
    constant = args[1].constant
    return args[0], int(constant) if constant is not None else None


def _decimal_logarithm(node: Expression, args: Sequence[Value]) -> Value:
    return call(numeric_power.logarithm_to, DIGITS, args, prefix=("10",))


def rounded(value: Operand, scale: int) -> Operand:
    """Round decimals of Arrow to a scale, halves away from zero."""
    if not pa.types.is_decimal(value.type):
        raise NotColumnwise("numeric that is stored as text")
    whole = value.type.precision - value.type.scale + 1
    if value.type.scale > scale:  # if a carry needs a digit that the type does not have, Arrow returns 0
        wide = value.cast(pa.decimal128(value.type.precision + 1, value.type.scale))
        value = pc.round(wide, scale, round_mode="half_towards_infinity")
    return value.cast(pa.decimal128(whole + scale, scale))


def _rounded_to(value: Operand, scale: Operand = _WHOLE) -> Operand:
    if not isinstance(scale, pa.Scalar) or not scale.is_valid or scale.as_py() < 0:
        raise NotColumnwise("a scale that is not a constant, or is negative")
    return rounded(value, scale.as_py())


IMPLEMENTATIONS: Table = {
    "numeric_add": Implementation(_sum(lambda a, b: a + b, numeric.add), arrow=pc.add, duckdb=number.numeric("+")),
    "numeric_sub": Implementation(_sum(lambda a, b: a - b, numeric.subtract), arrow=pc.subtract, duckdb=number.numeric("-")),
    "numeric_mul": Implementation(_product, arrow=pc.multiply, duckdb=number.numeric("*")),
    "numeric_div": lambda node, args: exactly(numeric.divide, args),
    "numeric_div_trunc": lambda node, args: exactly(numeric.truncated_quotient, args),
    "numeric_mod": Implementation(_modulo, duckdb=number.numeric("%")),
    "numeric_uminus": Implementation(_change_sign(_negate, numeric.negate), arrow=pc.negate, duckdb=number.numeric("-")),
    "numeric_uplus": Implementation(lambda node, args: args[0], duckdb=number.numeric("+")),
    "numeric_abs": Implementation(
        _change_sign(lambda a, rep: F.when(a < _zero(rep), _negate(a, rep)).otherwise(a), numeric.absolute), arrow=pc.abs, duckdb="abs({0})"
    ),
    "numeric_ceil": _whole(F.ceil, numeric.ceiling),
    "numeric_floor": _whole(F.floor, numeric.floor),
    "numeric_sign": _sign,
    "numeric_round": Implementation(_round, arrow=_rounded_to),
    "round/1700": Implementation(_round, arrow=_rounded_to),
    "numeric_trunc": _truncate,
    "trunc/1700": _truncate,
    "numeric_sqrt": scalar(numeric.square_root, DIGITS),
    "numeric_exp": scalar(numeric_power.exponential, DIGITS),
    "numeric_ln": scalar(numeric_power.logarithm, DIGITS),
    "numeric_log": scalar(numeric_power.logarithm_to, DIGITS),
    "log/1700": _decimal_logarithm,
    "log10/1700": _decimal_logarithm,
    "numeric_power": scalar(numeric_power.power, DIGITS),
    "numeric_fac": scalar(numeric_power.factorial, DIGITS),
    "numeric_gcd": scalar(numeric_power.of_integers, DIGITS, prefix=(math.gcd,)),
    "numeric_lcm": scalar(numeric_power.of_integers, DIGITS, prefix=(math.lcm,)),
    "numeric_min_scale": scalar(numeric_power.least_scale, INT4),
    "numeric_scale": scalar(numeric_power.display_scale, INT4),
    "numeric_trim_scale": scalar(numeric_power.trimmed, DIGITS),
    "width_bucket_numeric": scalar(numeric_power.bucket, INT4),
}
