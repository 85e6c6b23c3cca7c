"""RETURNING: return the rows that a command wrote as the result of a query.

The result is computed before the command ends, because later commands may change the table. It is stored until it is sent (`RowStore`).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headgate.analysis import select_list
from headgate.analysis.query import PlanColumn, SelectItem
from headgate.catalog.relation.relation import Relation
from headgate.commands.query import rendering, row_by_row
from headgate.commands.query.clause import from_clause
from headgate.commands.query.driver import table_rows
from headgate.commands.query.driver.computation import usual_way_says
from headgate.commands.query.driver.table_rows import HeldTable
from headgate.commands.query.plan import LEAF, Plan, Source, col
from headgate.commands.query.planner import Planner
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Expression
from headgate.storage import row_store
from headgate.storage.row_store import RowStore
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns
from headgate.types.resultset import ResultSet
from headgate.types.storage import NO_COLUMN, own_name

JOINED = own_name("_joined")
"""The column of written rows with the row that they were joined with (UPDATE … FROM, DELETE … USING): a struct with a field per key.

For ON CONFLICT DO UPDATE it has the place of the proposed row.
"""


def plan_returning(
    clause: pb.ReturningClause, planner: Planner, frame: DataFrame, relation: Relation, alias: str, others: Source | None
) -> Plan:
    """Return the plan of RETURNING over rows of the relation (columns by name). `others` are the joined tables (`JOINED`)."""
    if relation.is_partitioned:
        frame = frame.withColumn(LEAF, planner.transaction.partitioned(relation).place_oid())
    keep = [JOINED] if others is not None else []
    source = from_clause.table_source(planner, frame, relation, alias or relation.name, None if alias else relation.schema, keep=keep)
    if others is not None:
        fields = [F.col(JOINED).getField(plan_column.key).alias(plan_column.key) for plan_column in others.star]
        rows = [F.lit(True).alias(joined_table.row_key) for joined_table in others.tables if joined_table.row_key]
        whole = source.frame.select("*", *fields, *rows)
        source = Source(whole, source.tables + others.tables, source.star + others.star, others.merged)
    from_clause.restrict(planner, relation, source.star, alias or relation.name)
    context = planner.context.within(construct="RETURNING", aggregates=False)
    targets = select_list.resolve_unknown(select_list.expand(clause.exprs, source, source.scope(None), context), context)
    columns = tuple(PlanColumn(item.name, item.expression.type, planner.key(item.name), item.relation, item.attnum) for item in targets)
    frame, values = row_by_row.settled(planner.evaluation, source.frame, [item.expression for item in targets])
    selected = [planner.column(value).alias(column.key) for value, column in zip(values, columns, strict=True)]
    return Plan(frame.select(*selected), columns)


def joined(node: pb.UpdateStmt | pb.DeleteStmt, table: Source, source: Source) -> Source | None:
    """Return the tables that UPDATE … FROM or DELETE … USING joins with, for RETURNING. None if it needs none."""
    if not node.HasField("returning_clause"):
        return None
    tables, star = source.tables[len(table.tables) :], source.star[len(table.star) :]
    return replace(source, tables=tables, star=star) if tables else None


def beside(others: Source | None) -> list[Column]:
    """Return the column JOINED, which changed rows carry for the joined tables, if there are any."""
    if others is None:
        return []
    return [F.struct(*[col(plan_column.key) for plan_column in others.star] or [F.lit(True).alias(NO_COLUMN)]).alias(JOINED)]


def of_written(
    clause: pb.ReturningClause, planner: Planner, rows: pa.Table | DataFrame, relation: Relation, alias: str, tag: str,
    others: Source | None = None,
) -> ResultSet:  # fmt: skip
    """Return the result of a command that has written these rows. With `others`, they have a column JOINED after the relation's."""
    if isinstance(rows, pa.Table) and others is None and not relation.with_children:
        return of_rows(clause, planner, rows, relation, alias, tag)
    if isinstance(rows, pa.Table):
        more = [] if others is None else others.frame.select(*beside(others)).schema.fields
        more += [StructField(LEAF, LongType())] if relation.with_children else []
        rows = local_frame(planner.session_spark, rows, StructType([*spark_columns(relation).fields, *more]))
    plan = plan_returning(clause, planner, rows, relation, alias, others)
    store = rendering.kept(planner.session)
    store.extend(rendering.rows(plan, planner.session, planner.transaction))
    return ResultSet(rendering.result_columns(plan.columns), store.part(0, store.rows), tag)


def of_rows(clause: pb.ReturningClause, planner: Planner, rows: pa.Table, relation: Relation, alias: str, tag: str) -> ResultSet:
    try:
        table, targets, expressions = _plan_in_driver(clause, planner, relation, alias)
        return table_rows.result(table_rows.plan_columns(targets), table.values(rows, expressions), planner.session, tag)
    except NotColumnwise:
        frame = local_frame(planner.session_spark, rows, spark_columns(relation))
        return of_written(clause, planner, frame, relation, alias, tag)


def of_store(
    clause: pb.ReturningClause, planner: Planner, rows: RowStore, relation: Relation, alias: str, tag: str, many: int
) -> ResultSet:
    """Return the same for stored rows, of which `many` are processed at once."""
    if not rows.rows:
        return of_rows(clause, planner, arrow_row(relation).empty_table(), relation, alias, tag)
    store, columns = rendering.kept(planner.session), None
    for part in row_store.tables(rows.part(0, rows.rows), many, row_store.MEMORY_BYTES):
        part_result = of_rows(clause, planner, part, relation, alias, tag)
        columns = columns or part_result.columns
        store.extend(part_result.batches)
    assert columns is not None
    return ResultSet(columns, store.part(0, store.rows), tag)


def _plan_in_driver(
    clause: pb.ReturningClause, planner: Planner, relation: Relation, alias: str
) -> tuple[HeldTable, list[SelectItem], list[Expression]]:
    """Return RETURNING over rows in the driver. Raise `NotColumnwise` if that is not possible."""
    with usual_way_says():
        table = HeldTable.named(planner, relation, alias or relation.name, None if alias else relation.schema)
        context = planner.context.within(construct="RETURNING", aggregates=False)
        targets = select_list.resolve_unknown(select_list.expand(clause.exprs, table.source, table.scope, context), context)
        return table, targets, [table.prepared(item.expression) for item in targets]
