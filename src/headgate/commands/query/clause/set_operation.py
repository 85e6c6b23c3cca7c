"""UNION, INTERSECT and EXCEPT of two plans, whose rows are compared as in PostgreSQL.

Called by the planner. If stored values are equal exactly when PostgreSQL's values are, Spark's own operations are used. Otherwise the rows
of both sides are grouped by their keys (``1.0`` and ``1.00`` are the same numeric) and counted by side.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.analysis.query import PlanColumn, SetOperation, reference
from headgate.commands.query.clause import ordering
from headgate.commands.query.plan import Plan, col
from headgate.commands.query.planner import Planner


def combine(planner: Planner, operation: SetOperation, columns: tuple[PlanColumn, ...]) -> Plan:
    """Return the rows of ``left op right``."""
    ours, theirs = (
        planner.plan(query).frame.select(*[planner.column(value).alias(column.key) for value, column in zip(values, columns, strict=True)])
        for query, values in ((operation.left, operation.left_values), (operation.right, operation.right_values))
    )
    return _rows(planner, operation, ours, theirs, columns)


def new_rows(planner: Planner, frame: DataFrame, before: DataFrame, columns: tuple[PlanColumn, ...]) -> DataFrame:
    """Return the distinct rows of a frame that are not in `before`, which has the same columns (EXCEPT)."""
    if all(ordering.plain_equality(column.type) for column in columns):
        return frame.subtract(before)
    return _combine_by_count(planner, pb.SETOP_EXCEPT, False, frame, before, columns).frame


def _rows(planner: Planner, operation: SetOperation, ours: DataFrame, theirs: DataFrame, columns: tuple[PlanColumn, ...]) -> Plan:
    if operation.op == pb.SETOP_UNION:
        plan = Plan(ours.unionAll(theirs), columns)
        return plan if operation.all else ordering.distinct(planner, plan)
    if not columns or not all(ordering.plain_equality(column.type) for column in columns):
        return _combine_by_count(planner, operation.op, operation.all, ours, theirs, columns)
    if operation.op == pb.SETOP_INTERSECT:
        return Plan(ours.intersectAll(theirs) if operation.all else ours.intersect(theirs), columns)
    return Plan(ours.exceptAll(theirs) if operation.all else ours.subtract(theirs), columns)


def _combine_by_count(planner: Planner, op: int, every: bool, ours: DataFrame, theirs: DataFrame, columns: tuple[PlanColumn, ...]) -> Plan:
    """Combine the rows by their number of occurrences on each side. Among equal rows, that of the left side is returned."""
    side, left, right = planner.key("side"), planner.key("left"), planner.key("right")
    both = ours.withColumn(side, F.lit(1)).unionAll(theirs.withColumn(side, F.lit(0)))
    keys = [ordering.sort_key(planner, reference(column)).alias(planner.key("key")) for column in columns]
    values = [F.max_by(F.struct(col(column.key)), col(side))[column.key].alias(column.key) for column in columns]
    counts = [F.sum(col(side)).alias(left), F.sum(F.lit(1) - col(side)).alias(right)]
    grouped = both.groupBy(*keys).agg(*values, *counts)
    if op == pb.SETOP_INTERSECT:
        times = F.least(col(left), col(right))
    else:
        times = F.greatest(col(left) - col(right), F.lit(0)) if every else F.when(col(right) == 0, col(left)).otherwise(F.lit(0))
    shown = [col(column.key) for column in columns]
    if not every:
        return Plan(grouped.where(times > 0).select(*shown), columns)
    repeated = grouped.where(times > 0).select(*shown, F.explode(F.sequence(F.lit(1).cast("bigint"), times)).alias(side))
    return Plan(repeated.select(*shown), columns)
