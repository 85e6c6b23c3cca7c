"""INSERT, UPDATE and DELETE in WITH: each runs once and returns the rows of its RETURNING (manual, 7.8.4).

Called by the planner; INSERT, UPDATE and DELETE call `freeze_subqueries`. All parts of a statement must see the tables as they were before
it. So the frames of the tables that it names are created before the first of these statements runs. UPDATE and DELETE skip the rows that
an earlier part of the statement has written (`unwritten`).
"""

from __future__ import annotations

from collections.abc import Iterable

from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.analysis.analyser import Analyser
from headgate.analysis.query import PlanColumn
from headgate.catalog.relation import inheritance
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.commands import lookup
from headgate.commands.query.clause import system_relation
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.errors import PostgresError
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.storage import row_store
from headgate.storage.delta.delta_table import FILE
from headgate.storage.row_store import RowPart
from headgate.storage.spark import exchange
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultSet


def freeze(planner: Planner, clause: pb.WithClause, statement: ParseNode) -> None:
    """Create the frames of the statement's tables, if its WITH clause changes data."""
    if planner.frozen or all(unwrap(unwrap(item).ctequery).DESCRIPTOR.name == "SelectStmt" for item in clause.ctes):
        return
    for relation in _freeze(planner, walk(statement)):
        if not planner.describing:
            planner.own_files[relation.rows_key] = planner.transaction.reader.own_files(relation)


def freeze_subqueries(planner: Planner, *clauses: ParseNode) -> None:
    """Create the frames of the tables in subqueries of clauses that are evaluated while rows are written (ON CONFLICT, RETURNING)."""
    for clause in clauses:
        nodes = list(walk(clause))
        if any(node.DESCRIPTOR.name == "SubLink" for node in nodes):
            _freeze(planner, nodes)


def _freeze(planner: Planner, nodes: Iterable[ParseNode]) -> list[Relation]:
    """Create the frames of the tables that the nodes name. Return the tables."""
    tables = []
    cursor, context = planner.transaction.cursor, planner.session.context
    for node in nodes:
        if node.DESCRIPTOR.name != "RangeVar":
            continue
        try:
            relation = lookup.source(cursor, context, node)
            relation = inheritance.expanded(cursor, relation) if node.inh else relation
        except PostgresError:  # the name of a WITH query, or a relation that is rejected when it is read
            continue
        if relation.oid >= FIRST_USER_OID and relation.kind in TABLE_KINDS and relation.rows_key not in planner.frozen:
            planner.frozen[relation.rows_key] = planner.frame_of(relation)
            tables.append(relation)
    return tables


def unwritten(planner: Planner, relation: Relation, rows: DataFrame) -> DataFrame:
    """Return the rows to update or delete, with their positions, without those that the statement's WITH clause has written."""
    files = written_files(planner, relation)
    return rows.where(~F.col(FILE).isin(files)) if files else rows


def written_files(planner: Planner, relation: Relation) -> list[str]:
    """Return the files (URIs) with the rows that the statement's WITH clause has written to a table."""
    before = planner.own_files.get(relation.rows_key)
    return [] if before is None else sorted(planner.transaction.reader.own_files(relation) - before)


def run(planner: Planner, analyser: Analyser, query: ParseNode) -> tuple[tuple[PlanColumn, ...] | None, Plan | None]:
    """Run the statement. Return the columns and the rows of its RETURNING, or None. `analyser`: has the WITH queries before it."""
    for cte in analyser.ctes.values():
        planner.plan_of_cte(cte)  # it reads the tables as they are before the statement
    result = planner.session.parts.modify(query, planner.within(analyser) if planner.describing else planner.nested(analyser=analyser))
    if result is None:
        return None, None
    rows = result.batches
    if isinstance(rows, RowPart) and rows.is_large:
        plan = _in_files(planner, result, rows)
    else:
        plan = system_relation.frame_of(planner, result)
    return plan.columns, plan


def _in_files(planner: Planner, done: ResultSet, rows: RowPart) -> Plan:
    """Write many rows to files, which tasks read until the transaction ends."""
    columns = system_relation.columns_of(planner, done)
    pieces = (
        system_relation.stored(columns, piece.to_batches()) for piece in row_store.tables(rows, exchange.FILE_ROWS, row_store.MEMORY_BYTES)
    )
    frame, forget = exchange.kept(planner.session_spark, pieces, planner.transaction.storage.exchange)
    planner.transaction.until_end.callback(forget)
    return Plan(frame, columns)
