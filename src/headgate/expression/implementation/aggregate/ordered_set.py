"""Ordered-set aggregates, whose values are sorted by WITHIN GROUP: percentile_cont, percentile_disc, mode (manual, 9.21).

NULL values are ignored.
"""

from __future__ import annotations

import functools

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.errors import PostgresError
from headgate.expression.functions.aggregate import most_frequent
from headgate.expression.implementation.aggregate.aggregate import AggregateImplementation
from headgate.expression.node import Const, FuncExpr
from headgate.expression.spark.aggregate_call import AggregateCall, texts_of
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import BYTES, DIGITS, FLOAT8, Env, Value, refuse, rep_of, settle
from headgate.expression.spark.vectorised import of_lists
from headgate.types import registry


def _percentile(group: AggregateCall, *, continuous: bool) -> Value:
    """Return percentile_cont over double precision, or percentile_disc of any type. NULL values are ignored."""
    fraction_node = group.node.args[0]
    while isinstance(fraction_node, FuncExpr) and len(fraction_node.args) == 1:
        fraction_node = fraction_node.args[0]
    if group.kinds[0].oid != registry.FLOAT8 or not isinstance(fraction_node, Const) or fraction_node.value is None:
        raise refuse(f"{group.function.name} with anything but one constant fraction")
    fraction = float(fraction_node.value)
    if not 0 <= fraction <= 1:
        raise PostgresError("22003", f"percentile value {fraction:g} is not between 0 and 1")
    ordering = group.order[0]
    if continuous and ordering.kind.oid != registry.FLOAT8:
        raise refuse("percentile_cont of intervals")
    value = settle(ordering.value)
    rows = group.rows([value], lambda env: F.isnotnull(value(env)))

    def make(env: Env) -> Column:
        sorted_rows = rows(env)
        size = F.size(sorted_rows)
        if not continuous:
            place = F.greatest(F.ceil(F.lit(fraction) * size).cast("int") - 1, F.lit(0))
            return F.get(texts_of(sorted_rows), place)
        position = F.lit(fraction) * (size - 1)
        low = F.floor(position).cast("int")
        below, above = F.get(texts_of(sorted_rows), low), F.get(texts_of(sorted_rows), F.ceil(position).cast("int"))
        exact = F.when(F.ceil(position) == low, below).otherwise(below + (position - low) * (above - below))
        return F.when(size > 0, exact)

    return Value(FLOAT8 if continuous else ordering.value.rep, make)


def _mode(group: AggregateCall) -> Value:
    """Return mode(): the most frequent value, or the first in the order among equally frequent ones."""
    ordering = group.order[0]
    item, key = settle(as_item(ordering.value, ordering.kind)), settle(equal_keys(ordering.value, ordering.kind))
    rows = group.rows([item, key], lambda env: F.isnotnull(key(env)))
    oid = ordering.kind.oid
    rep = DIGITS if oid == registry.NUMERIC else rep_of(oid)
    if rep.name not in ("text", "digits", "int2", "int4", "int8", "bool", "float8"):
        raise refuse(f"mode of {registry.format_type(oid)}")

    def make(env: Env) -> Column:
        sorted_rows = rows(env)
        frequent = of_lists(most_frequent)(
            texts_of(sorted_rows),
            F.transform(
                sorted_rows, lambda row: F.hex(row["v1"].cast("binary")) if ordering.value.rep == BYTES else row["v1"].cast("string")
            ),
        )
        return (
            frequent
            if rep.name in ("text", "digits")
            else frequent.cast({"int2": "smallint", "int4": "int", "int8": "bigint", "bool": "boolean", "float8": "double"}[rep.name])
        )

    return Value(rep, make)


AGGREGATES = {
    "percentile_cont": AggregateImplementation(functools.partial(_percentile, continuous=True)),
    "percentile_disc": AggregateImplementation(functools.partial(_percentile, continuous=False)),
    "mode": AggregateImplementation(_mode),
}
