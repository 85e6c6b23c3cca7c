"""UPDATE: SET lists over a table's rows, with FROM and RETURNING."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
from postgast import pg_query_pb2 as pb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headgate.analysis import from_clause as analysis
from headgate.catalog.relation import trigger as triggers
from headgate.catalog.relation.relation import Relation
from headgate.catalog.relation.relation_kind import RelationKind
from headgate.commands import privilege
from headgate.commands.dml import assignment, column_reads, current_row, driver_change, partition_pruning, returning
from headgate.commands.dml.insert import target
from headgate.commands.dml.rows import changed_rows, storage_error
from headgate.commands.publication import replica_identity
from headgate.commands.query import rendering, row_security
from headgate.commands.query.clause import from_clause, modifying_with
from headgate.commands.query.driver import key_lookup
from headgate.commands.query.plan import LEAF, Source
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.query.row_security import Rows, RowSecurity, Statement
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.trigger.statement import firing_triggers, of_statement
from headgate.errors import PostgresError
from headgate.expression.binding.scope import Scope
from headgate.sql.parser import unwrap
from headgate.storage.delta.delta_table import FILE, PLACE, ROW
from headgate.storage.spark.local_relation import in_one_piece
from headgate.storage.write import columns as spark_columns
from headgate.types.resultset import ResultSet


def update(node: pb.UpdateStmt, session: Session, planner: QueryPlanner | None = None) -> ResultSet | CommandResult:
    """Execute an UPDATE. `planner` is that of a statement inside WITH. The replica identity is checked before any row is examined."""
    transaction = session.begin_statement()
    relation = target(node.relation, session, "update", "UPDATE", current=current_row.is_asked(node))
    planner = planner or QueryPlanner(session, transaction)
    event = (triggers.UPDATE, {unwrap(target_node).name for target_node in node.target_list})
    with rendering.running(session, transaction), ExitStack() as stack, firing_triggers(planner, relation, event):
        planner.with_queries(node)
        modifying_with.freeze_subqueries(planner, node.returning_clause)
        if relation.kind == RelationKind.VIEW:
            return _update_view(planner, relation, node)
        few = None if node.from_clause else _few(planner, relation, node)
        if few is not None:
            return _update_few(planner, relation, node, few, stack)
        security = security_of(planner, relation, node)
        table, source = changed_source(planner, relation, node, node.from_clause, security)
        scope = source.scope(None)
        source = planner.where(node, source, scope)
        set_columns = _set_columns(planner, relation, node)
        new = assignment.new_row(node.target_list, planner, relation, table.star, source, source.frame)
        for changed_table in touched(planner, relation, node, node.from_clause):
            replica_identity.check(transaction.cursor, changed_table, "update")
        returns = node.HasField("returning_clause")
        others = returning.joined(node, table, source)
        proposed = new.frame.select(
            assignment.old_row(relation, table.star),
            new.row.alias("new"),
            F.col(FILE).alias("file"),
            F.col(ROW).alias("row"),
            *returning.beside(others),
        )
        with storage_error.sought(relation.name, proposed.select("new.*")):
            changed = proposed.dropDuplicates(["file", "row"]) if node.from_clause else proposed
            changed = assignment.numbered(planner, relation, changed, new, stack)
            violations = security.violations(Rows.UPDATED)
            count, rows = changed_rows.rewrite(planner, relation, changed, set_columns, violations, stack if returns else None)
        if rows is None:
            return CommandResult(f"UPDATE {count}")
        alias = node.relation.alias.aliasname
        return returning.of_written(node.returning_clause, planner, rows, relation, alias, f"UPDATE {count}", others)


def _update_view(planner: QueryPlanner, view: Relation, node: pb.UpdateStmt) -> ResultSet | CommandResult:
    """Update a view by its INSTEAD OF triggers."""
    table, source = changed_source(planner, view, node, node.from_clause)
    scope = source.scope(None)
    source = planner.where(node, source, scope)
    _set_columns(planner, view, node)
    new = assignment.new_row(node.target_list, planner, view, table.star, source, source.frame)
    others = returning.joined(node, table, source)
    changed = new.frame.select(assignment.old_row(view, table.star), new.row.alias("new"), *returning.beside(others))
    return written_instead(planner, view, node, changed, others)


def written_instead(
    planner: QueryPlanner, view: Relation, node: pb.UpdateStmt | pb.DeleteStmt, changed: DataFrame, others: Source | None
) -> ResultSet | CommandResult:
    """Pass the changes of an UPDATE or DELETE to the INSTEAD OF triggers of a view. `others` are the joined tables, for RETURNING."""
    event, word = (triggers.UPDATE, "UPDATE") if isinstance(node, pb.UpdateStmt) else (triggers.DELETE, "DELETE")
    rows = changed_rows.instead(planner, view, changed, event)
    tag = f"{word} {rows.num_rows}"
    if not node.HasField("returning_clause"):
        return CommandResult(tag)
    return returning.of_written(node.returning_clause, planner, rows, view, node.relation.alias.aliasname, tag, others)


def permit(node: pb.UpdateStmt, session: Session) -> None:
    """Raise 42501 without the right to UPDATE the columns that an UPDATE sets."""
    relation = target(node.relation, session, "update", "UPDATE", current=current_row.is_asked(node))
    _set_columns(QueryPlanner(session, session.begin_statement()), relation, node)


def _set_columns(planner: QueryPlanner, relation: Relation, node: pb.UpdateStmt) -> set[str]:
    """Return the columns that an UPDATE sets. Raise 42501 without the privilege on them."""
    names = {unwrap(target_node).name for target_node in node.target_list}
    chosen = [column.attnum for column in relation.columns if column.name in names]
    privilege.check_columns(planner.transaction.cursor, planner.session.context.user, relation, "UPDATE", chosen)
    planner.writes(relation, chosen)
    return names


def _few(planner: QueryPlanner, relation: Relation, node: pb.UpdateStmt) -> pa.Table | None:
    """Return the changed rows if the driver can determine them, otherwise None."""
    keeps_keys = keeps_keys_of(planner, relation, node)
    return driver_change.updated(planner, relation, node, named(relation, node), keeps_keys=keeps_keys)


def _update_few(
    planner: QueryPlanner, relation: Relation, node: pb.UpdateStmt, few: pa.Table, stack: ExitStack
) -> ResultSet | CommandResult:
    set_columns = _set_columns(planner, relation, node)
    count, rows = changed_rows.rewrite(planner, relation, few, set_columns, (), stack if node.HasField("returning_clause") else None)
    if rows is None:
        return CommandResult(f"UPDATE {count}")
    assert isinstance(rows, pa.Table)
    return returning.of_rows(node.returning_clause, planner, rows, relation, node.relation.alias.aliasname, f"UPDATE {count}")


def keeps_keys_of(planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt) -> bool:
    """Return whether an UPDATE or DELETE gives no row another unique key. A BEFORE trigger could do that."""
    if node.DESCRIPTOR.name != "UpdateStmt":
        return True
    row_firing = of_statement(planner, relation)
    if row_firing is not None and row_firing.has_rows(triggers.UPDATE):
        return False
    set_columns = {unwrap(target_node).name for target_node in node.target_list}
    return not any(changed_rows.touched_keys(table, set_columns) for table in (relation, *planner.transaction.reader.leaves(relation)))


def touched(planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, items: Sequence[pb.Node]) -> Sequence[Relation]:
    """Return the tables that an UPDATE or DELETE can change: the table, or leaves of it."""
    if relation.is_partitioned:
        return partition_pruning.leaves(planner, relation, node, items)
    return planner.transaction.reader.leaves(relation)


def _positions(planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, items: Sequence[pb.Node]) -> DataFrame:
    """Return the rows of a table with their positions, at least those that match WHERE. Acquire the table's write lock."""
    keeps_keys = keeps_keys_of(planner, relation, node)
    if current_row.is_asked(node):
        current = current_row.positions(planner, relation, node, keeps_keys=keeps_keys)
        return in_one_piece(planner.session_spark, current, StructType([*spark_columns(relation).fields, *PLACE.fields]))
    if items or not node.HasField("where_clause"):
        return planner.transaction.reader.positions(relation, keeps_keys=keeps_keys)
    table, _ = from_clause.named_table(planner, relation, *named(relation, node))
    keys = key_lookup.of_where(planner, relation, node.where_clause, Scope((table,)))
    if keys is None:
        return planner.transaction.reader.positions(relation, keeps_keys=keeps_keys)
    looked_up = key_lookup.positions(planner, relation, keys, keeps_keys=keeps_keys)
    return in_one_piece(planner.session_spark, looked_up, StructType([*spark_columns(relation).fields, *PLACE.fields]))


def named(relation: Relation, node: pb.DeleteStmt | pb.InsertStmt | pb.UpdateStmt) -> tuple[str, str | None]:
    """Return the name and the schema by which an UPDATE or DELETE refers to its table."""
    alias = node.relation.alias.aliasname
    return alias or relation.name, None if alias else relation.schema


def security_of(planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt) -> RowSecurity:
    statement = Statement.UPDATE if node.DESCRIPTOR.name == "UpdateStmt" else Statement.DELETE
    return row_security.of_statement(planner, relation, statement, lambda: column_reads.of_change(planner, relation, node))


def changed_source(
    planner: QueryPlanner,
    relation: Relation,
    node: pb.DeleteStmt | pb.UpdateStmt,
    items: Sequence[pb.Node],
    security: RowSecurity | None = None,
) -> tuple[Source, Source]:
    """Return (the table with its rows' positions, or the view; the same joined with FROM or USING).

    `security` is None for a view, and if the statement is only described.
    """
    table = (_of_view if relation.kind == RelationKind.VIEW else _of_table)(planner, relation, node, items)
    if security is not None:
        table = security.visible(table)
    if not items:
        return table, table
    multiplies = not planner.describing and analysis.multiplies(items, node.where_clause, beside=1)
    table = from_clause.noticing(table) if multiplies else table
    others = from_clause.plan_from(planner, items, multiplies=multiplies)
    if any(joined_table.name == table.tables[0].name for joined_table in others.tables):
        raise PostgresError("42712", f'table name "{table.tables[0].name}" specified more than once')
    whole = replace(
        table,
        frame=table.frame.crossJoin(others.frame),
        tables=table.tables + others.tables,
        star=table.star + others.star,
        merged=others.merged,
    )
    return table, whole


def _of_table(planner: QueryPlanner, relation: Relation, node: pb.DeleteStmt | pb.UpdateStmt, items: Sequence[pb.Node]) -> Source:
    if planner.describing:
        frame = planner.frame_of(relation).select("*", F.lit("").alias(FILE), F.lit(0).alias(ROW))
    elif relation.is_partitioned and not current_row.is_asked(node):
        leaves = partition_pruning.leaves(planner, relation, node, items)
        frame = planner.transaction.partitioned(relation).positions(leaves, keeps_keys=keeps_keys_of(planner, relation, node))
    else:
        frame = _positions(planner, relation, node, items)
    frame = modifying_with.unwritten(planner, relation, frame)
    if relation.has_leaves:
        frame = frame.withColumn(LEAF, planner.transaction.partitioned(relation).leaf_column())
    table = from_clause.table_source(planner, frame, relation, *named(relation, node), keep=(FILE, ROW))
    from_clause.restrict(planner, relation, table.star, named(relation, node)[0])
    return table


def _of_view(planner: QueryPlanner, view: Relation, node: pb.DeleteStmt | pb.UpdateStmt, _items: Sequence[pb.Node]) -> Source:
    """Return the rows of a view, which have no positions."""
    name, schema = named(view, node)
    source = from_clause.as_table(planner, planner.view(view), name, schema)
    from_clause.restrict(planner, view, source.star)
    return source
