"""Answer queries of system relations by DuckDB: which queries these are, before anything runs, their columns and their rows.

Called by `engine`. The compiler of catalog queries (`select.CatalogPlanner`) reads FROM itself, so a query of system relations is not
analysed further: its `Query` holds the parse tree. The catalog's SQL matches PostgreSQL's closely enough only for the data in catalogs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import ChangesItem, Query, RelationItem, SystemSelect, TransitionItem, parts
from headgate.catalog.namespace import check_use, effective
from headgate.catalog.relation import relation
from headgate.commands.query import change_scan
from headgate.commands.query.catalog import query as catalog_query
from headgate.commands.query.catalog import volatile_function
from headgate.commands.session import Session
from headgate.expression.builtin import function
from headgate.expression.duckdb.value import REGISTERED
from headgate.expression.node import ArrayExpr, Const, Expression, FuncExpr, Param, SqlValue
from headgate.expression.spark import compiler
from headgate.sql.names import strings
from headgate.sql.parser import ParseNode, walk
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

_REGISTERED = frozenset(registry.format_type(type_oid) for type_oid in REGISTERED)


def system_select(node: pb.SelectStmt, session: Session) -> Query | None:
    """Return a query of system relations alone, or None for any other query.

    A query without relations counts as one if it calls a function that acts on the node or the session, or names regclass or a similar
    type, whose values only the catalog can read and print. So does a query of its own WITH queries.
    """
    nodes = list(walk(node))
    relations = [message for message in nodes if message.DESCRIPTOR.name == "RangeVar"]
    types = [message for message in nodes if message.DESCRIPTOR.name == "TypeName"]
    if any(map(change_scan.is_call, nodes)) or _reads_users(relations, nodes, session):
        return None
    if not relations and any(map(_is_users, types)):
        return None
    locked = sum(len(message.locked_rels) for message in nodes if message.DESCRIPTOR.name == "LockingClause")
    if (
        len(relations) > locked
        or any(map(_is_registered, types))
        or any(volatile_function.acts(message, session.functions) for message in nodes)
    ):
        return Query(SystemSelect(), tree=node)
    return None


def _reads_users(relations: Iterable[pb.RangeVar], nodes: Iterable[ParseNode], session: Session) -> bool:
    """Return whether a query names a user's relation or a transition table. A name of no relation is neither, and raises 42P01 later."""
    context, path = session.context, None
    ctes = {message.ctename for message in nodes if message.DESCRIPTOR.name == "CommonTableExpr"}
    for node in relations:
        name, schema = node.relname, node.schemaname or None
        if schema is None and name in session.transition_tables:
            return True
        if schema in ("pg_catalog", "information_schema") or (schema is None and name in ctes):
            continue
        cursor = session.begin_statement().cursor
        if path is None:
            path = effective(cursor, context.database, context.user, context.search_path, context.temp_schema)
        schema = (context.temp_schema or schema) if schema == "pg_temp" else schema
        oid = relation.find_oid(cursor, context.database, schema, name, path)
        if oid is not None and oid >= registry.FIRST_USER_OID:
            return True
        if oid is None and schema is not None:
            check_use(cursor, context.user, context.database, schema)
    return False


def _is_users(node: pb.TypeName) -> bool:
    """Return whether a TypeName names a user-defined type."""
    if not node.names:
        return False
    parts = strings(node.names)
    named_type = registry.known().find_name(parts[-1], parts[-2] if len(parts) > 1 else None)
    return named_type is not None and named_type.oid >= registry.FIRST_USER_OID


def _is_registered(node: pb.TypeName) -> bool:
    return bool(node.names) and strings(node.names)[-1] in _REGISTERED


def refusal(query: Query) -> str | None:
    """Return the reason why the catalog does not take a query, or None if it does.

    It also takes a query without relations that has a function without a form on Spark.
    """
    if isinstance(query.body, SystemSelect):
        return None
    items = list(parts(query))
    if any(isinstance(item, RelationItem | TransitionItem | ChangesItem) for item in items):
        return "not only system relations"
    if any(isinstance(item, Expression) and not compiler.has_form(item) and not _is_constant(item) for item in items):
        return None
    return "no function of the catalog alone"


def _is_constant(node: Expression) -> bool:
    """Return whether Spark's planner replaces a node by its value, as it does with calls of session functions (`Evaluation.prepare`)."""
    match node:
        case Const() | Param() | SqlValue() | ArrayExpr():
            return True
        case FuncExpr():
            return not compiler.has_form(node) and not function(node.function).retset and all(map(_is_constant, node.args))
        case _:
            return False


def run(planner: Planner, query: Query) -> ResultSet:
    """Return the result of a query."""
    assert query.tree is not None
    session, cursor = planner.session, planner.transaction.cursor
    with session.cancelling(cursor.interrupt):
        return catalog_query.answer(query.tree, session.context, cursor, session.dynamic, session.functions, session.parameters)


def columns(planner: Planner, query: Query) -> tuple[ResultColumn, ...]:
    """Return the columns of a query without running it, and infer the types of its parameters."""
    assert query.tree is not None
    session, cursor, types = planner.session, planner.transaction.cursor, planner.parameters
    inferred, described = catalog_query.describe(query.tree, session.context, cursor, list(types.values()), session.functions)
    types.update(enumerate(inferred, 1))
    return described
