"""Bind operands so that they are computed once, however often the Column of a function repeats them.

Spark's expressions cannot name their parts. A builder that checks its operands for overflow writes each of them several times, so that
nested calls grow exponentially with their depth (ten terms of ``a + b + …`` are 3^10 operands, which Spark does not finish
planning). `call` calls `once` for every strict call. Builders of several steps, such as those of time zones, call `bound`.
If an operand's Column is long, it is put into a struct, and the builder works on the fields of the struct inside a lambda. The Column is
then only as long as its operands and its own text. A lambda is interpreted, at about a tenth of the speed of generated code, so short
operands are still repeated.

Invariant: the struct computes all operands, in their order, before the call, as PostgreSQL does. A lambda cannot contain a Python
function. If a builder needs one (`value.PythonInside`), its operands are repeated.
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
"""Length in characters of a Column's text from which an operand is bound instead of repeated."""


def once(builder: SparkForm, node: n.Expression, operands: Sequence[n.Expression], args: Sequence[Value], usual: Value) -> Value:
    """Return the call, with its operands bound if one of them is long. `usual` is the call without bound operands."""
    indexes = [
        index for index, operand in enumerate(operands) if not isinstance(operand, (n.Const, n.ColumnRef)) and args[index].constant is None
    ]
    if not indexes:
        return usual
    names = {index: f"_operand_{index}" for index in indexes}
    bound = [replace(arg, make=_field(names[index]), raw=None, calm=False) if index in names else arg for index, arg in enumerate(args)]
    body = builder(node, bound)
    unbound = [arg for index, arg in enumerate(args) if index not in names and arg.constant is None]

    def make(env: Env) -> Column:
        def call(*bound_columns: Column) -> Column:
            columns = {**env.columns, **dict(zip(names.values(), bound_columns, strict=True))}
            missing = functools.reduce(
                Column.__or__, [F.isnull(column) for column in (*bound_columns, *(column.make(env) for column in unbound))]
            )
            return F.when(missing, F.lit(None)).otherwise(body.make(replace(env, columns=columns, guard=None, first=None)))

        return _bind([args[index].make(env) for index in indexes], call, lambda: usual.make(env))

    return replace(usual, make=make)


def bound(columns: Sequence[Column], body: Callable[..., Column], *, long: int = LONG) -> Column:
    """Return the Column that `body` builds from the columns. They are bound, so that `body` may repeat them, unless all are short."""
    return _bind(columns, body, lambda: body(*columns), long)


def _bind(columns: Sequence[Column], body: Callable[..., Column], usual: Callable[[], Column], long: int = LONG) -> Column:
    if max(len(str(operand)) for operand in columns) < long:
        return usual()
    names = [f"_{index}" for index in range(len(columns))]
    struct = F.struct(*[column.alias(name) for name, column in zip(names, columns, strict=True)])
    try:
        with without_python():
            return F.transform(F.array(struct), lambda fields: body(*[fields[name] for name in names]))[0]
    except PythonInside:
        return usual()


def _field(name: str) -> Callable[[Env], Column]:
    return lambda env: env.columns[name]
