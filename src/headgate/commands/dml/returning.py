"""RETURNING: the rows that a command wrote, as the result of a query."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.catalog.relation.relation import Relation
from headgate.commands.query import rendering
from headgate.commands.query.clause import from_clause, select_list
from headgate.commands.query.driver import table_rows
from headgate.commands.query.driver.table_rows import HeldTable, usual_way_says
from headgate.commands.query.plan import Plan, PlanColumn, Source
from headgate.commands.query.planner import Planner
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.write import columns as spark_columns
from headgate.types.resultset import ResultSet


def plan_returning(
    clause: pb.ReturningClause, planner: Planner, frame: DataFrame, relation: Relation, alias: str, others: Source | None = None
) -> Plan:
    """The plan of RETURNING over rows of the relation (columns by name); `others`: what it was joined with (columns by key)."""
    keep = [each.key for each in others.star] if others is not None else []
    if relation.is_partitioned:
        frame = frame.withColumn(from_clause.LEAF, planner.transaction.partitioned(relation).place_oid())
    source = from_clause.table_source(planner, frame, relation, alias or relation.name, None if alias else relation.schema, keep=keep)
    if others is not None:
        rows = [F.lit(True).alias(each.row_key) for each in others.tables if each.row_key]
        whole = source.frame.select("*", *rows)
        source = Source(whole, source.tables + others.tables, source.star + others.star, others.merged)
    from_clause.restrict(planner, relation, source.star, alias or relation.name)
    context = planner.context.within(construct="RETURNING", aggregates=False)
    targets = select_list.resolve_unknown(select_list.expand(clause.exprs, source, source.scope(None), context), context)
    columns = tuple(PlanColumn(each.name, each.expression.type, planner.key(each.name), each.relation, each.attnum) for each in targets)
    selected = [planner.column(each.expression).alias(column.key) for each, column in zip(targets, columns, strict=True)]
    return Plan(source.frame.select(*selected), columns)


def joined(table: Source, source: Source) -> Source | None:
    """What a table was joined with in UPDATE … FROM and DELETE … USING; None for nothing."""
    tables, star = source.tables[len(table.tables) :], source.star[len(table.star) :]
    return replace(source, tables=tables, star=star) if tables else None


def held(planner: Planner, changed: DataFrame, others: Source) -> tuple[DataFrame, pa.Table]:
    """Changed rows computed once: a frame of them, and the columns of what they were joined with, in the same order."""
    whole = changed.toArrow()
    keys = [each.key for each in others.star]
    frame = local_frame(planner.session_spark, whole, changed.schema)
    return frame.drop(*keys), whole.select(keys)


def beside(planner: Planner, rows: pa.Table, others: pa.Table, relation: Relation, schema: StructType) -> DataFrame:
    """The written rows with the columns of what they were joined with."""
    whole = pa.table([*rows.columns, *others.columns], names=[*rows.column_names, *others.column_names])
    fields = [each for each in schema.fields if each.name in others.column_names]
    return local_frame(planner.session_spark, whole, StructType([*spark_columns(relation).fields, *fields]))


def returned(
    clause: pb.ReturningClause, planner: Planner, frame: DataFrame, relation: Relation, alias: str, tag: str, others: Source | None = None
) -> ResultSet:
    """The result of a command with RETURNING; the rows are computed at once, since later commands may change the table."""
    plan = plan_returning(clause, planner, frame, relation, alias, others)
    batches: list[pa.RecordBatch] = list(rendering.rows(plan, planner.session, planner.transaction))
    return ResultSet(rendering.result_columns(plan), batches, tag)


def of_rows(clause: pb.ReturningClause, planner: Planner, rows: pa.Table, relation: Relation, alias: str, tag: str) -> ResultSet:
    """The same of rows that the driver holds."""
    name = alias or relation.name, None if alias else relation.schema
    try:
        with usual_way_says():
            table = HeldTable(planner, relation, *name)
            context = planner.context.within(construct="RETURNING", aggregates=False)
            targets = select_list.resolve_unknown(select_list.expand(clause.exprs, table.source, table.scope, context), context)
            wanted = [table.prepared(each.expression) for each in targets]
        arrays = table.values(rows, wanted)
    except NotColumnwise:
        return returned(clause, planner, local_frame(planner.session_spark, rows, spark_columns(relation)), relation, alias, tag)
    return table_rows.result(table_rows.plan_columns(targets), arrays, planner.session, tag)
