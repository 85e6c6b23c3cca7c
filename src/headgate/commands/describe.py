"""Describe a statement before it runs: the types of its parameters and its columns (manual, 55.2.3, Describe)."""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import FromItem
from headgate.analysis.select_list import expand, resolve_unknown
from headgate.catalog.relation.relation import Relation
from headgate.commands.dml import assignment, merge, on_conflict, returning
from headgate.commands.dml.insert import target, target_columns, target_types, value_lists
from headgate.commands.dml.returning import plan_returning
from headgate.commands.dml.update import changed_source, named
from headgate.commands.function import call, user_call
from headgate.commands.query import engine, explain, rendering
from headgate.commands.query.clause import from_clause
from headgate.commands.query.driver import table_rows
from headgate.commands.query.evaluation import lit_null
from headgate.commands.query.plan import Source
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.result import Described
from headgate.commands.session import Session
from headgate.commands.table import create_table_as
from headgate.expression.binding import binder
from headgate.expression.binding.scope import EMPTY
from headgate.expression.node import SetToDefault
from headgate.sql.parser import ParseNode, has_condition, kind, unwrap, walk
from headgate.storage.spark.local_relation import local_frame
from headgate.storage.write import arrow_row
from headgate.storage.write import columns as spark_columns
from headgate.types import registry
from headgate.types.resultset import ResultColumn

_DESCRIBED = {"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "CallStmt"}


def describe(node: pb.InsertStmt | pb.SelectStmt | pb.UpdateStmt, session: Session, parameter_types: tuple[int, ...]) -> Described:
    """Return the parameters (0 in `parameter_types`: to be inferred) and columns of a statement without executing it."""
    if (query := _query_inside(node)) is not None:
        columns = explain.columns(node) if node.DESCRIPTOR.name == "ExplainStmt" else None
        return Described(describe(query, session, parameter_types).parameters, columns)
    if node.DESCRIPTOR.name not in _DESCRIBED:
        return Described(parameter_types, None)
    highest = max((parameter.number for parameter in walk(node) if kind(parameter) == "ParamRef"), default=0)
    known = {
        number: (parameter_types[number - 1] if number <= len(parameter_types) else 0)
        for number in range(1, max(highest, len(parameter_types)) + 1)
    }
    if node.DESCRIPTOR.name == "CallStmt":
        columns = call.described(node, session, known)
        return Described(_types(known), columns)
    node = user_call.described(node, session, known)
    planner = QueryPlanner(session, session.begin_statement(), known)
    if node.DESCRIPTOR.name != "SelectStmt":
        planner.with_queries(node)
    columns = _PLANNED[node.DESCRIPTOR.name](node, planner)
    return Described(_types(known), columns)


def _query_inside(node: ParseNode) -> ParseNode | None:
    """Return the query of EXPLAIN, DECLARE, CREATE TABLE AS or SELECT INTO, which has the statement's parameters, or None."""
    if node.DESCRIPTOR.name in ("ExplainStmt", "DeclareCursorStmt", "CreateTableAsStmt"):
        return unwrap(node.query)
    if node.DESCRIPTOR.name != "SelectStmt" or not node.HasField("into_clause"):
        return None
    return create_table_as.without_into(node)


def _types(known: dict[int, int]) -> tuple[int, ...]:
    """Return the types of the parameters. Parameters whose type was not inferred are text."""
    return tuple(registry.TEXT if known[number] in (0, registry.UNKNOWN) else known[number] for number in sorted(known))


def returned_columns(node: ParseNode, planner: QueryPlanner) -> tuple[ResultColumn, ...] | None:
    """Return the columns of the RETURNING clause of a statement that is only described."""
    return _PLANNED[node.DESCRIPTOR.name](node, planner)


def _insert(node: pb.InsertStmt, planner: QueryPlanner) -> tuple[ResultColumn, ...] | None:
    relation = target(node.relation, planner.session, "insert into", "INSERT")
    columns = target_columns(node, relation, parts=True)
    query = unwrap(node.select_stmt)
    if query is not None and query.values_lists:
        context = planner.context.within(construct="VALUES", default=True, sets=len(query.values_lists) == 1)
        for row in value_lists(query, node, columns):
            for item, column, kind in zip(row, columns, target_types(node, columns, context), strict=False):
                bound = binder.bind_raw(item, EMPTY, context)
                if not isinstance(bound, SetToDefault):
                    binder.assign(bound, kind, column.name, context)
    elif query is not None:
        planner.analyse(query, None, target_types(node, columns, planner.context))
    if node.HasField("on_conflict_clause"):
        on_conflict.analyse(node, planner, relation)
    return _returning(node, planner, relation)


def _update(node: pb.UpdateStmt, planner: QueryPlanner) -> tuple[ResultColumn, ...] | None:
    deleting = node.DESCRIPTOR.name == "DeleteStmt"
    relation = target(node.relation, planner.session, "delete from" if deleting else "update", "DELETE" if deleting else "UPDATE")
    from_items = node.using_clause if deleting else node.from_clause
    others = None
    if from_items:
        table, source = changed_source(planner, relation, node, from_items)
        scope, others = source.scope(None), returning.joined(node, table, source)
    else:
        scope = _alone(planner, relation, *named(relation, node)).scope(None)
    if has_condition(node):
        binder.bind_condition(node.where_clause, scope, "WHERE", context=planner.context.within(construct="WHERE"))
    if not deleting:
        assignment.set_list(node.target_list, planner, relation, scope)
    return _returning(node, planner, relation, others)


def _alone(planner: QueryPlanner, relation: Relation, name: str, schema: str | None) -> FromItem:
    """Return the names of a table whose rows are not read."""
    table, star = from_clause.named_table(planner, relation, name, schema)
    return FromItem((table,), star)


def _returning(
    node: pb.InsertStmt | pb.UpdateStmt, planner: QueryPlanner, relation: Relation, others: Source | None = None
) -> tuple[ResultColumn, ...] | None:
    if not node.HasField("returning_clause"):
        return None
    if others is None:
        source = _alone(planner, relation, *named(relation, node))
        context = planner.context.within(construct="RETURNING", aggregates=False)
        targets = expand(node.returning_clause.exprs, source, source.scope(None), context)
        return rendering.result_columns(table_rows.plan_columns(resolve_unknown(targets, context)))
    frame = local_frame(planner.session_spark, arrow_row(relation).empty_table(), spark_columns(relation))
    frame = frame.select("*", *[lit_null(column.type).alias(column.key) for column in others.star])
    frame = frame.select("*", *returning.beside(others))
    return rendering.result_columns(
        plan_returning(node.returning_clause, planner, frame, relation, node.relation.alias.aliasname, others).columns
    )


_PLANNED = {
    "SelectStmt": engine.columns, "InsertStmt": _insert, "UpdateStmt": _update, "DeleteStmt": _update, "MergeStmt": merge.analyse,
}  # fmt: skip
