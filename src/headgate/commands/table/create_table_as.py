"""CREATE TABLE AS and SELECT INTO: create a table with the columns of a query and fill it with its rows.

Called by `execute`. The table is created by CREATE TABLE and filled by INSERT … SELECT, so that it is checked, stored and published like
any other. The tag is ``SELECT n``, as in PostgreSQL, or ``CREATE TABLE AS`` without data.
"""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import PlanColumn
from headgate.catalog.relation import relation as relations
from headgate.commands.dml import insert
from headgate.commands.query import rendering
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.result import CommandResult
from headgate.commands.session import Session
from headgate.commands.table import table
from headgate.errors import PostgresError, not_supported
from headgate.sql import names
from headgate.sql.parser import ParseNode, parse, unwrap
from headgate.types import registry

_PSEUDO = frozenset({registry.RECORD, registry.UNKNOWN, registry.VOID})


def create(node: pb.CreateTableAsStmt, session: Session) -> CommandResult:
    if node.objtype != pb.OBJECT_TABLE:
        raise not_supported("CREATE MATERIALIZED VIEW is not supported")
    query = unwrap(node.query)
    if query.DESCRIPTOR.name != "SelectStmt":
        raise not_supported("CREATE TABLE AS EXECUTE is not supported")
    return _make(node.into, query, session, if_not_exists=node.if_not_exists)


def select_into(node: ParseNode, session: Session) -> CommandResult:
    """Execute SELECT … INTO."""
    return _make(node.into_clause, without_into(node), session, if_not_exists=False)


def without_into(node: ParseNode) -> ParseNode:
    """Return the query of SELECT … INTO."""
    query = type(node)()
    query.CopyFrom(node)
    query.ClearField("into_clause")
    return query


def _make(into: pb.IntoClause, query: pb.SelectStmt, session: Session, *, if_not_exists: bool) -> CommandResult:
    if if_not_exists and _exists(into.rel, session):
        session.notices.notice(f'relation "{into.rel.relname}" already exists, skipping', sqlstate="42P07")
        return CommandResult("CREATE TABLE AS")
    transaction = session.begin_statement()
    planner = QueryPlanner(session, transaction)
    with rendering.running(session, transaction):
        columns = planner.analyse(query).columns
    table.create(_definition(into, columns), session)
    if into.skip_data:
        return CommandResult("CREATE TABLE AS")
    filling = pb.InsertStmt(relation=into.rel)
    filling.select_stmt.select_stmt.CopyFrom(query)
    result = insert.insert(filling, session)
    assert isinstance(result, CommandResult)
    return CommandResult(f"SELECT {result.tag.rpartition(' ')[2]}")


def _exists(rel: pb.RangeVar, session: Session) -> bool:
    cursor, context = session.begin_statement().cursor, session.context
    return relations.lookup(cursor, context.database, rel.schemaname or None, rel.relname, context.search_path) is not None


def _definition(into: pb.IntoClause, columns: tuple[PlanColumn, ...]) -> pb.CreateStmt:
    """Return the CREATE TABLE of a query's columns, with the names and options in INTO."""
    column_names = names.strings(into.col_names)
    if len(column_names) > len(columns):
        raise PostgresError("42601", "too many column names were specified")
    all_names = [*column_names, *(column.name for column in columns[len(column_names) :])]
    parts = []
    for name, plan_column in zip(all_names, columns, strict=True):
        if plan_column.type.oid in _PSEUDO:
            raise PostgresError("42P16", f'column "{name}" has pseudo-type {registry.format_type(plan_column.type.oid)}')
        parts.append(f"{names.quote_ident(name)} {registry.known().format_type(plan_column.type.oid, plan_column.type.typmod)}")
    [statement] = parse(f"CREATE TABLE x ({', '.join(parts)})")
    definition = statement.node
    definition.relation.CopyFrom(into.rel)
    definition.options.extend(into.options)
    definition.oncommit = into.on_commit or pb.ONCOMMIT_NOOP
    definition.tablespacename, definition.access_method = into.table_space_name, into.access_method
    return definition
