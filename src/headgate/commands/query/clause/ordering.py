"""ORDER BY, DISTINCT, LIMIT and OFFSET on frames.

Rows are sorted and compared by `compile.sort_key`, a key with the order and the equality of PostgreSQL's values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from headgate.analysis.query import Limit, Sort, reference
from headgate.commands.query.plan import Plan, col
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError, not_supported
from headgate.expression.node import Const, Expression, FuncExpr, TypeRef
from headgate.expression.spark.comparison import C_COLLATIONS, directed
from headgate.types.base.base_types import base_type
from headgate.types.storage import stored_as_text

_WHOLE = re.compile(r"-?\d+")


def sort(planner: Planner, plan: Plan, sorts: Sequence[Sort]) -> Plan:
    """Sort the plan. Columns that are only sort keys follow the columns of the plan."""
    if not sorts:
        return plan
    return Plan(plan.frame.orderBy(*[_direction(planner, item) for item in sorts]), plan.columns, tuple(sorts))


def sort_key(planner: Planner, expression: Expression) -> Column:
    """Return a Column with PostgreSQL's order and equality for the expression's values. Only the C collations are supported."""
    if expression.type.collation not in C_COLLATIONS:
        raise not_supported("sorting by a collation other than C is not supported")
    return planner.evaluation.sort_key(expression)


def plain_equality(kind: TypeRef) -> bool:
    """Return whether stored values of the type are equal exactly when PostgreSQL's values are."""
    described = base_type(kind.oid)
    return not stored_as_text(kind.oid, kind.typmod) or (described.one_text and described.key is not None)


def distinct(planner: Planner, plan: Plan, values: Sequence[Expression] = ()) -> Plan:
    """Return one row of each set of equal rows. `values`: what is compared, if it is not the columns."""
    if all(plain_equality(column.type) for column in plan.columns):
        return Plan(plan.frame.select(*[col(column.key) for column in plan.columns]).distinct(), plan.columns)
    keys = [sort_key(planner, value) for value in values or map(reference, plan.columns)]
    names = [planner.key("equal") for _ in keys]
    frame = plan.frame.select("*", *(key.alias(name) for key, name in zip(keys, names, strict=True))).dropDuplicates(names)
    return Plan(frame.drop(*names), plan.columns)


def distinct_on(planner: Planner, plan: Plan, on: Sequence[Sort], sorts: Sequence[Sort]) -> Plan:
    """Return the first row, in sort order, of each set of rows that are equal in `on` (over the projected frame or its targets)."""
    place = planner.key("place")
    window = Window.partitionBy(*[sort_key(planner, item.expression) for item in on])
    window = window.orderBy(*([_direction(planner, item) for item in sorts] or [F.lit(0)]))
    frame = plan.frame.select("*", F.row_number().over(window).alias(place)).where(col(place) == 1)
    return Plan(frame, plan.columns)


def _direction(planner: Planner, item: Sort) -> Column:
    return directed(sort_key(planner, item.expression), descending=item.descending, nulls_first=item.nulls_first)


def limit(planner: Planner, plan: Plan, limit: Limit | None, sorts: Sequence[Sort]) -> Plan:
    """Apply LIMIT and OFFSET. WITH TIES also returns the rows that sort equal to the last one."""
    if limit is None:
        return plan
    frame = plan.frame
    offset = None if limit.offset is None else _count(planner, limit.offset)
    count = None if limit.count is None else _count(planner, limit.count)
    if offset is not None and offset < 0:
        raise PostgresError("2201X", "OFFSET must not be negative")
    if count is not None and count < 0:
        raise PostgresError("2201W", "LIMIT must not be negative")
    if limit.with_ties and count is not None:
        return _with_ties(planner, plan, offset or 0, count, sorts)
    if offset:
        frame = frame.offset(offset)
    if count is not None:
        frame = frame.limit(min(count, 2**31 - 1))
    return Plan(frame, plan.columns, plan.sorts)


def first(planner: Planner, plan: Plan, limit: Limit) -> Plan:
    """Return the rows that LIMIT and OFFSET read, those that OFFSET skips included."""
    offset = 0 if limit.offset is None else _count(planner, limit.offset) or 0
    count = None if limit.count is None else _count(planner, limit.count)
    if count is None or count < 0 or offset < 0:
        return plan
    return Plan(plan.frame.limit(min(offset + count, 2**31 - 1)), plan.columns, plan.sorts)


def _with_ties(planner: Planner, plan: Plan, offset: int, count: int, sorts: Sequence[Sort]) -> Plan:
    row, rank = planner.key("row"), planner.key("rank")
    window = Window.orderBy(*[_direction(planner, item) for item in sorts])
    numbered = plan.frame.select("*", F.row_number().over(window).alias(row), F.rank().over(window).alias(rank))
    selected = numbered.where((col(row) > offset) & (col(rank) <= offset + count)) if count else numbered.where(F.lit(False))
    return Plan(selected.orderBy(col(row)), plan.columns)


def constant_count(planner: Planner, value: Expression) -> Const | None:
    """Return LIMIT or OFFSET as a constant, or None if it must be computed."""
    prepared = planner.prepare(value)
    while isinstance(prepared, FuncExpr) and len(prepared.args) == 1:
        prepared = prepared.args[0]
    is_whole = isinstance(prepared, Const) and (prepared.value is None or _WHOLE.fullmatch(prepared.value))
    return prepared if is_whole and isinstance(prepared, Const) else None


def _count(planner: Planner, value: Expression) -> int | None:
    constant = constant_count(planner, value)
    if constant is not None:
        return None if constant.value is None else int(constant.value)
    [row] = planner.one_row().select(planner.column(value).alias("count")).collect()
    return None if row["count"] is None else int(row["count"])
