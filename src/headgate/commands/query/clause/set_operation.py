"""UNION, INTERSECT and EXCEPT: both sides in common types, compared as PostgreSQL compares.

Called by the planner. Where stored values are equal exactly if PostgreSQL's are, Spark's own operations do it; else the rows of both
sides are grouped by their keys (``1.0`` and ``1.00`` are one numeric) and counted by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.commands.query.clause import ordering
from headgate.commands.query.plan import Plan, PlanColumn, col, reference
from headgate.errors import PostgresError
from headgate.expression.binding import binder

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

_WORDS = {pb.SETOP_UNION: "UNION", pb.SETOP_INTERSECT: "INTERSECT", pb.SETOP_EXCEPT: "EXCEPT"}


def combine(planner: Planner, node: pb.SelectStmt, left: Plan, right: Plan) -> Plan:
    """The rows of ``left op right``; the columns are named as the left side's."""
    word = _WORDS[node.op]
    if len(left.columns) != len(right.columns):
        raise PostgresError("42601", f"each {word} query must have the same number of columns")
    columns, ours, theirs = [], [], []
    for one, other in zip(left.columns, right.columns, strict=True):
        sides, kind = binder.unify([each.literal or reference(each) for each in (one, other)], word, planner.context)
        column = PlanColumn(one.name, kind, planner.key(one.name))
        columns.append(column)
        ours.append(planner.column(sides[0]).alias(column.key))
        theirs.append(planner.column(sides[1]).alias(column.key))
    return _rows(planner, node, left.frame.select(*ours), right.frame.select(*theirs), tuple(columns))


def new_rows(planner: Planner, frame: DataFrame, before: DataFrame, columns: tuple[PlanColumn, ...]) -> DataFrame:
    """The differing rows of a frame that are not among those of another with the same columns: EXCEPT."""
    if all(ordering.plain_equality(each.type) for each in columns):
        return frame.subtract(before)
    return _counted(planner, pb.SETOP_EXCEPT, False, frame, before, columns).frame


def _rows(planner: Planner, node: pb.SelectStmt, ours: DataFrame, theirs: DataFrame, columns: tuple[PlanColumn, ...]) -> Plan:
    if node.op == pb.SETOP_UNION:
        plan = Plan(ours.unionAll(theirs), columns)
        return plan if node.all else ordering.distinct(planner, plan)
    if not columns or not all(ordering.plain_equality(each.type) for each in columns):
        return _counted(planner, node.op, node.all, ours, theirs, columns)
    if node.op == pb.SETOP_INTERSECT:
        return Plan(ours.intersectAll(theirs) if node.all else ours.intersect(theirs), columns)
    return Plan(ours.exceptAll(theirs) if node.all else ours.subtract(theirs), columns)


def _counted(planner: Planner, op: int, every: bool, ours: DataFrame, theirs: DataFrame, columns: tuple[PlanColumn, ...]) -> Plan:
    """By how often each row occurs on either side; the row that stands for its equals is the left side's."""
    side, left, right = planner.key("side"), planner.key("left"), planner.key("right")
    both = ours.withColumn(side, F.lit(1)).unionAll(theirs.withColumn(side, F.lit(0)))
    keys = [ordering.sort_key(planner, reference(each)).alias(planner.key("key")) for each in columns]
    values = [F.max_by(F.struct(col(each.key)), col(side))[each.key].alias(each.key) for each in columns]
    counts = [F.sum(col(side)).alias(left), F.sum(F.lit(1) - col(side)).alias(right)]
    grouped = both.groupBy(*keys).agg(*values, *counts)
    if op == pb.SETOP_INTERSECT:
        times = F.least(col(left), col(right))
    else:
        times = F.greatest(col(left) - col(right), F.lit(0)) if every else F.when(col(right) == 0, col(left)).otherwise(F.lit(0))
    shown = [col(each.key) for each in columns]
    if not every:
        return Plan(grouped.where(times > 0).select(*shown), columns)
    repeated = grouped.where(times > 0).select(*shown, F.explode(F.sequence(F.lit(1).cast("bigint"), times)).alias(side))
    return Plan(repeated.select(*shown), columns)
