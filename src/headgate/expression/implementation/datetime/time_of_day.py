"""time, time with time zone and interval: arithmetic, casts, justify_*, make_*, date_trunc, as Python functions on the stored text.

Nested calls stay in Python. `spark.comparison` compares the types. Functions that depend on the session's zone are in `time_zone`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import functions as F

from headgate.expression.functions import ordering
from headgate.expression.functions.datetime import interval, time_of_day, timestamp
from headgate.expression.implementation.implementation import Implementation, SparkForm, Table, native
from headgate.expression.node import Const, Expression, FuncExpr
from headgate.expression.spark.units import truncation_unit
from headgate.expression.spark.value import BOOL, INT4, TEXT, TIMESTAMP, TIMESTAMPTZ, Value, raising
from headgate.expression.spark.vectorised import call, scalar
from headgate.types import registry


def _to_modifier(function: Callable[[int, str], str]) -> SparkForm:
    """Return the form of a cast to the type's own modifier."""

    def builder(node: Expression, args: Sequence[Value]) -> Value:
        assert isinstance(node, FuncExpr)
        modifier = node.args[1]
        assert isinstance(modifier, Const)
        assert modifier.value is not None
        return call(function, TEXT, args[:1], prefix=(int(modifier.value),))

    return builder


def _truncate(node: Expression, args: Sequence[Value]) -> Value:
    """Compile date_trunc(field, interval)."""
    unit = truncation_unit(args[0])
    if unit.name in interval.TRUNCATED:
        return call(interval.truncated, TEXT, args[1:], prefix=(unit.name,))
    error = unit.error("interval", "Months usually have fractional weeks." if unit.name == "week" else None)
    return Value(TEXT, lambda env: F.when(F.isnotnull(args[1].make(env)), raising(*error).cast("string")))


plus_interval = scalar(time_of_day.moved, TEXT, prefix=(1,))

IMPLEMENTATIONS: Table = {
    "time_cmp": scalar(ordering.compared, INT4, prefix=(registry.TIME,)),
    "timetz_cmp": scalar(ordering.compared, INT4, prefix=(registry.TIMETZ,)),
    "interval_cmp": scalar(ordering.compared, INT4, prefix=(registry.INTERVAL,)),
    "time_pl_interval": plus_interval,
    "time_mi_interval": scalar(time_of_day.moved, TEXT, prefix=(-1,)),
    "timetz_pl_interval": scalar(time_of_day.zoned_moved, TEXT, prefix=(1,)),
    "timetz_mi_interval": scalar(time_of_day.zoned_moved, TEXT, prefix=(-1,)),
    "interval_pl_time/1186,1083": scalar(time_of_day.moved, TEXT, prefix=(1,), flipped=True),
    "interval_pl_timetz/1186,1266": scalar(time_of_day.zoned_moved, TEXT, prefix=(1,), flipped=True),
    "time_mi_time": scalar(time_of_day.difference, TEXT),
    "time_interval": scalar(time_of_day.span_of, TEXT),
    "interval_time": scalar(time_of_day.of_span, TEXT),
    "timetz_time": scalar(time_of_day.without_zone, TEXT),
    "timestamp_time": scalar(time_of_day.of_timestamp, TEXT),
    "time_scale": _to_modifier(time_of_day.rounded),
    "timetz_scale": _to_modifier(time_of_day.zoned_rounded),
    "datetime_timestamp": scalar(time_of_day.on_date, TIMESTAMP),
    "timedate_pl/1083,1082": scalar(time_of_day.on_date, TIMESTAMP, flipped=True),
    "datetimetz_timestamptz": scalar(time_of_day.zoned_on_date, TIMESTAMPTZ),
    "timetzdate_pl/1266,1082": scalar(time_of_day.zoned_on_date, TIMESTAMPTZ, flipped=True),
    "timetz_izone": scalar(time_of_day.at_offset, TEXT),
    "make_time": scalar(timestamp.made_time, TEXT),
    "interval_pl": Implementation(scalar(interval.added, TEXT, prefix=(1,)), duckdb="({0} + {1})"),
    "interval_mi": Implementation(scalar(interval.added, TEXT, prefix=(-1,)), duckdb="({0} - {1})"),
    "interval_um": Implementation(scalar(interval.negated, TEXT), duckdb="(-{0})"),
    "interval_mul": scalar(interval.times, TEXT),
    "mul_d_interval": scalar(interval.times, TEXT, flipped=True),
    "interval_div": scalar(interval.over, TEXT),
    "interval_justify_hours": scalar(interval.justify_hours, TEXT),
    "interval_justify_days": scalar(interval.justify_days, TEXT),
    "interval_justify_interval": scalar(interval.justify_interval, TEXT),
    "make_interval": scalar(interval.made, TEXT),
    "interval_scale": _to_modifier(interval.modified),
    "interval_trunc": _truncate,
    "interval_finite": native(BOOL, lambda column: F.when(F.isnotnull(column), F.lit(True))),
}
