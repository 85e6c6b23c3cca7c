"""Integers and booleans: arithmetic with PostgreSQL's overflow errors, division towards zero, bits, abs, mod, gcd.

Spark's ANSI arithmetic raises where PostgreSQL does; `failure` names the error. The table is keyed by PostgreSQL's C functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.functions import floating_point
from headgate.expression.node import Expression
from headgate.expression.spark.form import Builder, right_first
from headgate.expression.spark.value import INT2, INT4, INT8, SPARK, TEXT, Env, Rep, Value, raising
from headgate.expression.spark.vectorised import scalar

_NAMES = {"int2": "smallint", "int4": "integer", "int8": "bigint"}
_LEAST = {"int2": -(2**15), "int4": -(2**31), "int8": -(2**63)}


def out_of_range(rep: Rep) -> Column:
    """Raises 22003 for the integer type."""
    return raising("22003", f"{_NAMES[rep.name]} out of range")


def _typed(rep: Rep, args: Sequence[Value], env: Env) -> list[Column]:
    return [each.make(env) if each.rep == rep else each.make(env).cast(SPARK[rep.name]) for each in args]


def narrowed(made: Column, rep: Rep) -> Column:
    """A bigint or wider as the integer type, with its own error where it does not fit."""
    low = _LEAST[rep.name]
    return F.when((made < F.lit(low)) | (made > F.lit(-low - 1)), out_of_range(rep)).otherwise(made.cast(SPARK[rep.name]))


def _arithmetic(rep: Rep, operation: Callable[[Column, Column], Column]) -> Builder:
    """+ - *: int2 and int4 in the next wider type, so that the error is PostgreSQL's; int8 by Spark's own check."""

    def make(args: Sequence[Value], env: Env) -> Column:
        if rep == INT8:
            return operation(*_typed(INT8, args, env))
        return narrowed(operation(*_typed(INT8, args, env)), rep)

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _division(rep: Rep) -> Builder:
    def make(args: Sequence[Value], env: Env) -> Column:
        a, b = _typed(INT8, args, env)
        if rep == INT8:
            overflow = (a == F.lit(_LEAST["int8"])) & (b == F.lit(-1))
            return F.when(overflow, out_of_range(INT8)).otherwise(F.call_function("div", a, b))
        return narrowed(F.call_function("div", a, b), rep)

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _modulo(rep: Rep) -> Builder:
    def make(args: Sequence[Value], env: Env) -> Column:
        a, b = _typed(rep, args, env)
        return (a % b).cast(SPARK[rep.name])

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _negation(rep: Rep, *, magnitude: bool = False) -> Builder:
    def make(args: Sequence[Value], env: Env) -> Column:
        a = args[0].make(env)
        negative = (-a).cast(SPARK[rep.name])
        changed = F.when(a == F.lit(_LEAST[rep.name]).cast(SPARK[rep.name]), out_of_range(rep)).otherwise(negative)
        return F.when(a < 0, changed).otherwise(a) if magnitude else changed

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _bits(rep: Rep, operation: Callable[[Column, Column], Column]) -> Builder:
    return lambda node, args: Value(rep, lambda env: operation(*_typed(rep, args, env)).cast(SPARK[rep.name]))


def _shift(rep: Rep, function: str) -> Builder:
    """<< and >>: as C does on x86, the count modulo the width (int2 is shifted as an int4 and cut)."""

    def make(args: Sequence[Value], env: Env) -> Column:
        a, count = args[0].make(env), args[1].make(env)
        if rep == INT2:
            wide = F.call_function(function, a.cast("int"), count)
            low = wide.bitwiseAND(F.lit(0xFFFF))
            return F.when(low >= 0x8000, low - F.lit(0x10000)).otherwise(low).cast("smallint")
        return F.call_function(function, a, count)

    return lambda node, args: Value(rep, lambda env: make(args, env))


def _same(node: Expression, args: Sequence[Value]) -> Value:
    return args[0]


def _families() -> dict[str, Builder]:
    table: dict[str, Builder] = {}
    plus, minus, times = (lambda a, b: a + b), (lambda a, b: a - b), (lambda a, b: a * b)
    pairs = {
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
    for prefix, rep in pairs.items():
        table[f"{prefix}pl"] = _arithmetic(rep, plus)
        table[f"{prefix}mi"] = _arithmetic(rep, minus)
        table[f"{prefix}mul"] = _arithmetic(rep, times)
        table[f"{prefix}div"] = right_first(_division(rep))
    for prefix, rep in (("int2", INT2), ("int4", INT4), ("int8", INT8)):
        table[f"{prefix}mod"] = right_first(_modulo(rep))
        table[f"{prefix}um"] = _negation(rep)
        table[f"{prefix}abs"] = _negation(rep, magnitude=True)
        table[f"{prefix}up"] = _same
        table[f"{prefix}and"] = _bits(rep, lambda a, b: a.bitwiseAND(b))
        table[f"{prefix}or"] = _bits(rep, lambda a, b: a.bitwiseOR(b))
        table[f"{prefix}xor"] = _bits(rep, lambda a, b: a.bitwiseXOR(b))
        table[f"{prefix}not"] = lambda node, args, rep=rep: Value(rep, lambda env: F.bitwise_not(args[0].make(env)))  # type: ignore[misc]
        table[f"{prefix}shl"] = _shift(rep, "shiftleft")
        table[f"{prefix}shr"] = _shift(rep, "shiftright")
    return table


def _hex(node: Expression, args: Sequence[Value]) -> Value:
    def make(env: Env) -> Column:
        shown = F.lower(F.hex(args[0].make(env)))
        return F.right(shown, F.lit(8)) if args[0].rep == INT4 else shown

    return Value(TEXT, make)


def _count_nulls(wanted: bool) -> Builder:
    def builder(node: Expression, args: Sequence[Value]) -> Value:
        def make(env: Env) -> Column:
            made = F.lit(0)
            for each in args:
                null = F.isnull(each.make(env))
                made = made + F.when(null if wanted else ~null, F.lit(1)).otherwise(F.lit(0))
            return made.cast("int")

        return Value(INT4, make)

    return builder


BUILDERS: dict[str, Builder] = {
    **_families(),
    "to_hex32": _hex,
    "to_hex64": _hex,
    "int4gcd": scalar(floating_point.divisor_4, INT4),
    "int8gcd": scalar(floating_point.divisor_8, INT8),
    "int4lcm": scalar(floating_point.multiple_4, INT4),
    "int8lcm": scalar(floating_point.multiple_8, INT8),
    "pg_num_nulls": _count_nulls(True),
    "pg_num_nonnulls": _count_nulls(False),
}
