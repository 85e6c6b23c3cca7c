"""INSERT, UPDATE and DELETE in WITH: each runs once, and gives the rows of its RETURNING (manual, 7.8.4).

Called by the planner, `freeze_subqueries` by INSERT, UPDATE and DELETE. All parts of a statement see the tables as they were before it: the
frames of the tables that it names are taken before the first of these statements runs.
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
    """Takes the frames of the statement's tables, if its WITH clause changes data."""
    if planner.frozen or all(unwrap(unwrap(each).ctequery).DESCRIPTOR.name == "SelectStmt" for each in clause.ctes):
        return
    _freeze(planner, walk(statement))


def freeze_subqueries(planner: Planner, *clauses: ParseNode) -> None:
    """Takes the frames of the tables in the subqueries of clauses (ON CONFLICT, RETURNING) that are looked at when rows are written."""
    for clause in clauses:
        nodes = list(walk(clause))
        if any(each.DESCRIPTOR.name == "SubLink" for each in nodes):
            _freeze(planner, nodes)


def _freeze(planner: Planner, nodes: Iterable[ParseNode]) -> None:
    cursor, context = planner.transaction.cursor, planner.session.context
    for each in nodes:
        if each.DESCRIPTOR.name != "RangeVar":
            continue
        try:
            relation = lookup.source(cursor, context, each)
        except PostgresError:  # the name of a query in WITH, or one that is refused where it is read
            continue
        if relation.oid >= FIRST_USER_OID and relation.kind in TABLE_KINDS and relation.oid not in planner.frozen:
            planner.frozen[relation.oid] = planner.frame_of(relation)


def run(planner: Planner, query: pb.DeleteStmt | pb.InsertStmt) -> Plan | None:
    """Runs the statement; the rows of its RETURNING, or None."""
    done = planner.session.node.modify(query, planner if planner.describing else planner.nested())
    if done is None:
        return None
    rows = done.batches
    return _in_files(planner, done, rows) if isinstance(rows, RowPart) and rows.is_large else system_relation.frame_of(planner, done)


def _in_files(planner: Planner, done: ResultSet, rows: RowPart) -> Plan:
    """The rows, which are many, in files that tasks read until the transaction ends."""
    columns = system_relation.columns_of(planner, done)
    pieces = (
        system_relation.stored(columns, piece.to_batches()) for piece in row_store.tables(rows, exchange.FILE_ROWS, row_store.MEMORY_BYTES)
    )
    frame, forget = exchange.kept(planner.session_spark, pieces, planner.transaction.engine.exchange)
    planner.session.after_commit(forget)
    planner.session.after_rollback(forget)
    return Plan(frame, columns)
