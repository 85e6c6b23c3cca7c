"""Answer queries of system relations by DuckDB: which queries these are, before anything runs, and their rows.

Called by `engine`. The catalog's SQL matches PostgreSQL's closely enough only for the data in catalogs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headgate.analysis.query import ChangesItem, CteItem, FunctionItem, Part, Query, RelationItem, TransitionItem, parts
from headgate.commands.query import instant
from headgate.commands.query.catalog import query as catalog_query
from headgate.commands.query.catalog import session_call
from headgate.commands.query.planner import Planner
from headgate.expression.builtin import function
from headgate.expression.duckdb.value import REGISTERED, element_of
from headgate.expression.node import ArrayExpr, Const, Expression, FuncExpr, Param, SqlValue, UserCall
from headgate.expression.spark import compiler, set_returning
from headgate.types import registry
from headgate.types.resultset import ResultSet


def refusal(planner: Planner, query: Query) -> str | None:
    """Return the reason why the catalog does not take a query, or None if it does.

    It takes its own queries, and queries without relations that have a function without a form on Spark.
    """
    items = list(parts(query))
    if any(isinstance(item, TransitionItem | ChangesItem | UserCall) or _is_users(item) for item in items):
        return "not only system relations"
    if _is_own(items, planner.session.functions) or any(map(_needs_catalog, items)):
        return None
    return "no function of the catalog alone"


def is_own(planner: Planner, query: Query) -> bool:
    """Return whether a query without a user's relation is one for the catalog, whatever functions Spark has."""
    return _is_own(list(parts(query)), planner.session.functions)


def _is_own(items: Sequence[Part], functions: Collection[str]) -> bool:
    """Return whether a query reads system relations, or only WITH queries.

    A query without relations counts as one if it calls a function that acts on the node or the session, or has regclass or a similar type,
    whose values only the catalog can read and print.
    """
    if any(isinstance(item, RelationItem | CteItem) for item in items):
        return True
    types = {item.type.oid for item in items if isinstance(item, Expression)}
    if any(oid >= registry.FIRST_USER_OID for oid in types):
        return False
    calls = (item for item in items if isinstance(item, FuncExpr))
    return any((element_of(oid) or oid) in REGISTERED for oid in types) or any(session_call.called(call) in functions for call in calls)


def _is_users(item: Part) -> bool:
    if isinstance(item, CteItem):
        return item.cte.rows is not None
    return isinstance(item, RelationItem) and item.relation.oid >= registry.FIRST_USER_OID


def _needs_catalog(item: Part) -> bool:
    if isinstance(item, FunctionItem):
        return not all(map(set_returning.has_form, item.calls))
    return isinstance(item, Expression) and not compiler.has_form(item) and not _is_constant(item)


def _is_constant(node: Expression) -> bool:
    """Return whether Spark's planner replaces a node by its value, as it does with calls of session functions (`Evaluation.prepare`)."""
    match node:
        case Const() | Param() | SqlValue() | ArrayExpr():
            return True
        case FuncExpr():
            return not compiler.has_form(node) and not function(node.function).retset and all(map(_is_constant, node.args))
        case _:
            return False


def acts(node: FuncExpr) -> bool:
    """Return whether a function has side effects, or reports the state of the node: Spark has no form of it."""
    called = function(node.function)
    return called.volatility == "v" and called.name not in instant.FUNCTIONS and not compiler.has_form(node)


def run(planner: Planner, query: Query) -> ResultSet:
    session, cursor = planner.session, planner.transaction.cursor
    with session.cancelling(cursor.interrupt):
        return catalog_query.answer(query, session.context, cursor, session.dynamic, session.functions, session.parameters)


def check(planner: Planner, query: Query) -> None:
    """Raise 0A000 if the catalog cannot answer a query. Nothing is run."""
    session = planner.session
    catalog_query.check(query, session.context, planner.transaction.cursor, session.dynamic, session.functions, session.parameters)
