"""DELETE, with USING and RETURNING."""

from __future__ import annotations

from contextlib import ExitStack

from postgast import pg_query_pb2 as pb
from pyspark.sql import functions as F

from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands.dml import assignment, current_row, driver_change, returning
from headgate.commands.dml.insert import target
from headgate.commands.dml.rows import changed_rows
from headgate.commands.dml.update import changed_source, named, security_of, touched, written_instead
from headgate.commands.publication import replica_identity
from headgate.commands.query import rendering
from headgate.commands.query.clause import modifying_with
from headgate.commands.query.plan import Source
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.trigger.statement import firing_triggers
from headgate.storage.delta.delta_table import FILE, ROW
from headgate.storage.row_set import Rows
from headgate.storage.write import columns as spark_columns
from headgate.types.resultset import ResultSet


def delete(node: pb.DeleteStmt, session: Session, planner: QueryPlanner | None = None) -> ResultSet | CommandResult:
    """Execute a DELETE. `planner` is that of a statement inside WITH. The replica identity is checked before any row is examined."""
    transaction = session.begin_statement()
    relation = target(node.relation, session, "delete from", "DELETE", current=current_row.is_asked(node))
    planner = planner or QueryPlanner(session, transaction)
    with rendering.running(session, transaction), ExitStack() as stack, firing_triggers(planner, relation, (triggers.DELETE, None)):
        planner.with_queries(node)
        modifying_with.freeze_subqueries(planner, node.returning_clause)
        if relation.kind == RelationKind.VIEW:
            return _delete_of_view(planner, relation, node)
        few = None if node.using_clause else driver_change.deleted(planner, relation, node, named(relation, node))
        if few is not None:
            return _delete_rows(planner, relation, node, few, stack)
        table, source = changed_source(planner, relation, node, node.using_clause, security_of(planner, relation, node))
        source = planner.where(node, source, source.scope(None))
        for changed_table in touched(planner, relation, node, node.using_clause):
            replica_identity.check(transaction.cursor, changed_table, "delete")
        row = spark_columns(relation)
        others = returning.joined(node, table, source)
        changed = source.frame.select(
            assignment.old_row(relation, table.star),
            F.lit(None).cast(row).alias("new"),
            F.col(FILE).alias("file"),
            F.col(ROW).alias("row"),
            *returning.beside(others),
        )
        if node.using_clause:
            changed = changed.dropDuplicates(["file", "row"])
        return _delete_rows(planner, relation, node, changed, stack, others)


def _delete_of_view(planner: QueryPlanner, view: Relation, node: pb.DeleteStmt) -> ResultSet | CommandResult:
    """Delete from a view by its INSTEAD OF triggers."""
    table, source = changed_source(planner, view, node, node.using_clause)
    source = planner.where(node, source, source.scope(None))
    others = returning.joined(node, table, source)
    changed = source.frame.select(assignment.old_row(view, table.star), *returning.beside(others))
    return written_instead(planner, view, node, changed, others)


def _delete_rows(
    planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt, changed: Rows, stack: ExitStack, others: Source | None = None
) -> ResultSet | CommandResult:
    """Delete rows. `others` are the joined tables."""
    count, rows = changed_rows.remove(planner, relation, changed, stack if node.HasField("returning_clause") else None)
    if rows is None:
        return CommandResult(f"DELETE {count}")
    alias = node.relation.alias.aliasname
    return returning.of_written(node.returning_clause, planner, rows, relation, alias, f"DELETE {count}", others)
