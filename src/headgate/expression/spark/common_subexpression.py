"""Operands that are computed once, however often the Column of a function repeats them.

Spark's expressions have no names for parts: a builder that looks at its operands for overflow writes each of them several times, and a
call of a call of a call grows with a power of its depth (ten terms of ``a + b + …`` are 3^10 operands, which Spark does not finish
planning). `once` is called by `call` for every strict call, `bound` by builders of several steps, such as those of time zones.
Where an operand's Column has grown long, it is put into a struct, and the builder works on the fields of the struct inside a lambda: the
Column is as long as its operands and its own text then. A lambda runs interpreted, at about a tenth of the speed of generated code, so
short operands are repeated as before.

What must hold: the struct computes all operands, in their order, before the call, as PostgreSQL does. A Python function cannot stand
inside a lambda; a builder that makes one (`value.PythonInside`) is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression import node as n
from headgate.expression.implementation.implementation import SparkForm
from headgate.expression.spark.value import Env, PythonInside, Value, without_python

LONG = 1500
"""Characters of a Column's text from which on an operand is not repeated."""


def once(builder: SparkForm, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value], usual: Value) -> Value:
    """The call with its operands bound where one of them is long; `usual`: the call as it is otherwise."""
    places = [place for place, each in enumerate(operands) if not isinstance(each, (n.Const, n.ColumnRef)) and args[place].constant is None]
    if not places:
        return usual
    names = {place: f"_operand_{place}" for place in places}
    bound = [replace(each, make=_field(names[place]), raw=None, calm=False) if place in names else each for place, each in enumerate(args)]
    body = builder(node, bound)
    beside = [each for place, each in enumerate(args) if place not in names and each.constant is None]

    def make(env: Env) -> Column:
        def call(*given: Column) -> Column:
            columns = {**env.columns, **dict(zip(names.values(), given, strict=True))}
            missing = functools.reduce(Column.__or__, [F.isnull(each) for each in (*given, *(each.make(env) for each in beside))])
            return F.when(missing, F.lit(None)).otherwise(body.make(replace(env, columns=columns, guard=None, first=None)))

        return _bound([args[place].make(env) for place in places], call, lambda: usual.make(env))

    return replace(usual, make=make)


def bound(columns: Sequence[Column], body: Callable[..., Column], *, long: int = LONG) -> Column:
    """The Column that `body` makes of these, which it may repeat as often as it likes; up to `long` characters it repeats them."""
    return _bound(columns, body, lambda: body(*columns), long)


def _bound(columns: Sequence[Column], body: Callable[..., Column], usual: Callable[[], Column], long: int = LONG) -> Column:
    if max(len(str(each)) for each in columns) < long:
        return usual()
    names = [f"_{place}" for place in range(len(columns))]
    struct = F.struct(*[column.alias(name) for name, column in zip(names, columns, strict=True)])
    try:
        with without_python():
            return F.transform(F.array(struct), lambda fields: body(*[fields[name] for name in names]))[0]
    except PythonInside:
        return usual()


def _field(name: str) -> Callable[[Env], Column]:
    return lambda env: env.columns[name]
