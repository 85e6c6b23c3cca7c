"""RETURNING: the rows that a command wrote, as the result of a query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headgate.catalog.relation import Relation
from headgate.commands.query import from_clause, render, target
from headgate.commands.query.plan import Plan, PlanColumn
from headgate.commands.query.planner import Planner
from headgate.types.resultset import ResultSet


def plan_returning(clause: Any, planner: Planner, frame: DataFrame, relation: Relation, alias: str) -> Plan:
    """The plan of RETURNING over rows of the relation (columns by name)."""
    source = from_clause.table_source(planner, frame, relation, alias or relation.name, None if alias else relation.schema)
    context = planner.context.within(construct="RETURNING", aggregates=False)
    targets = target.resolve_unknown(target.expand(clause.exprs, source, source.scope(None), context), context)
    columns = tuple(PlanColumn(each.name, each.expression.type, planner.key(each.name), each.relation, each.attnum) for each in targets)
    selected = [planner.column(each.expression).alias(column.key) for each, column in zip(targets, columns, strict=True)]
    return Plan(source.frame.select(*selected), columns)


def returned(clause: Any, planner: Planner, frame: DataFrame, relation: Relation, alias: str, tag: str) -> ResultSet:
    """The result of a command with RETURNING; the rows are computed at once, since later commands may change the table."""
    plan = plan_returning(clause, planner, frame, relation, alias)
    batches: list[pa.RecordBatch] = list(render.rows(plan, planner.session, planner.transaction))
    return ResultSet(render.result_columns(plan), batches, tag)
