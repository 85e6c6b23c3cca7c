"""INSERT, UPDATE and DELETE in WITH: each runs once and returns the rows of its RETURNING (manual, 7.8.4).

Called by the planner; INSERT, UPDATE and DELETE call `freeze_subqueries`. All parts of a statement must see the tables as they were before
it. So the frames of the tables that it names are created before the first of these statements runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.catalog.relation.relation_kind import TABLE_KINDS
from headgate.commands import lookup
from headgate.commands.query.clause import system_relation
from headgate.commands.query.plan import Plan
from headgate.errors import PostgresError
from headgate.sql.parser import ParseNode, unwrap, walk
from headgate.storage import row_store
from headgate.storage.row_store import RowPart
from headgate.storage.spark import exchange
from headgate.types.registry import FIRST_USER_OID
from headgate.types.resultset import ResultSet

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner


def freeze(planner: Planner, clause: pb.WithClause, statement: pb.SelectStmt) -> None:
    """Create the frames of the statement's tables, if its WITH clause changes data."""
    if planner.frozen or all(unwrap(unwrap(item).ctequery).DESCRIPTOR.name == "SelectStmt" for item in clause.ctes):
        return
    _freeze(planner, walk(statement))


def freeze_subqueries(planner: Planner, *clauses: ParseNode) -> None:
    """Create the frames of the tables in subqueries of clauses that are evaluated while rows are written (ON CONFLICT, RETURNING)."""
    for clause in clauses:
        nodes = list(walk(clause))
        if any(node.DESCRIPTOR.name == "SubLink" for node in nodes):
            _freeze(planner, nodes)


def _freeze(planner: Planner, nodes: Iterable[ParseNode]) -> None:
    cursor, context = planner.transaction.cursor, planner.session.context
    for node in nodes:
        if node.DESCRIPTOR.name != "RangeVar":
            continue
        try:
            relation = lookup.source(cursor, context, node)
        except PostgresError:  # the name of a WITH query, or a relation that is rejected when it is read
            continue
        if relation.oid >= FIRST_USER_OID and relation.kind in TABLE_KINDS and relation.oid not in planner.frozen:
            planner.frozen[relation.oid] = planner.frame_of(relation)


def run(planner: Planner, query: pb.DeleteStmt | pb.InsertStmt) -> Plan | None:
    """Run the statement. Return the rows of its RETURNING, or None."""
    result = planner.session.node.modify(query, planner if planner.describing else planner.nested())
    if result is None:
        return None
    rows = result.batches
    return _in_files(planner, result, rows) if isinstance(rows, RowPart) and rows.is_large else system_relation.frame_of(planner, result)


def _in_files(planner: Planner, done: ResultSet, rows: RowPart) -> Plan:
    """Write many rows to files, which tasks read until the transaction ends."""
    columns = system_relation.columns_of(planner, done)
    pieces = (
        system_relation.stored(columns, piece.to_batches()) for piece in row_store.tables(rows, exchange.FILE_ROWS, row_store.MEMORY_BYTES)
    )
    frame, forget = exchange.kept(planner.session_spark, pieces, planner.transaction.engine.exchange)
    planner.session.after_commit(forget)
    planner.session.after_rollback(forget)
    return Plan(frame, columns)
