"""WITH RECURSIVE: the rows of the first term, then repeatedly those of the second term over the rows of the previous round (manual, 7.8.2).

Called by the planner. The rows of each round are computed and stored before the next round is planned. With UNION, duplicates of earlier
rows are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame

from headgate.commands.query.clause import ordering, set_operation
from headgate.commands.query.plan import Plan, PlanColumn, col, reference
from headgate.errors import PostgresError, not_supported
from headgate.expression.binding.coercion import coerce
from headgate.expression.binding.coercion_pathway import Reach
from headgate.sql.parser import ParseNode, position

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner


def run(planner: Planner, cte: ParseNode, query: ParseNode) -> Plan:
    """Return the rows of a recursive query."""
    where = position(cte.location)
    if query.op != pb.SETOP_UNION:
        message = f'recursive query "{cte.ctename}" does not have the form non-recursive-term UNION [ALL] recursive-term'
        raise PostgresError("42P19", message, position=where)
    if query.sort_clause or query.HasField("limit_count") or query.HasField("limit_offset"):
        raise not_supported("ORDER BY, OFFSET and LIMIT in a recursive query are not implemented", position=where)
    first = planner.select(query.larg, None)
    if not query.all:
        first = ordering.distinct(planner, first)
    from headgate.commands.query.planner import named

    shown = named(cte, Plan(first.frame.select(*[col(column.key) for column in first.columns]), first.columns))
    working = _kept(shown.frame)
    whole = working
    while not working.isEmpty():
        planner.session.check_cancel()
        planner.ctes[cte.ctename] = Plan(working, shown.columns)
        new_rows = _like_first(planner, cte, planner.select(query.rarg, None), shown.columns)
        if not query.all:
            new_rows = set_operation.new_rows(planner, new_rows, whole, shown.columns)
        working = _kept(new_rows)
        whole = whole.unionAll(working)
    return Plan(whole, shown.columns)


def _kept(frame: DataFrame) -> DataFrame:
    """Return the rows computed once, without their lineage."""
    return frame.localCheckpoint()


def _like_first(planner: Planner, cte: ParseNode, plan: Plan, columns: tuple[PlanColumn, ...]) -> DataFrame:
    """Return the rows of the recursive term in the types of the first term. Raise 42804 if a type would have to change."""
    if len(plan.columns) != len(columns):
        raise PostgresError("42601", "each UNION query must have the same number of columns")
    values = []
    for place, (one, target) in enumerate(zip(plan.columns, columns, strict=True), 1):
        value = coerce(reference(one), target.type, Reach.IMPLICIT, planner.context)
        if value is None or (value.type.oid, one.type.oid) != (target.type.oid, target.type.oid):
            shown = planner.context.types.format_type
            ours, theirs = shown(target.type.oid, target.type.typmod), shown(one.type.oid, one.type.typmod)
            raise PostgresError(
                "42804",
                f'recursive query "{cte.ctename}" column {place} has type {ours} in non-recursive term but type {theirs} overall',
                hint="Cast the output of the non-recursive term to the correct type.",
            )
        values.append(planner.column(value).alias(target.key))
    return plan.frame.select(*values)
