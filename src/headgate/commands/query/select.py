"""SELECT: by the catalog where the query reads system relations only, on Spark where it reads tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.catalog import query as catalog_query
from headgate.catalog.physical import Cursor
from headgate.catalog.value import REGISTERED
from headgate.commands.query import constant, render
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.names import strings
from headgate.sql.parser import walk
from headgate.types import registry
from headgate.types.resultset import ResultSet

_UNKNOWN = ("0A000", "42883")
_REGISTERED = frozenset(registry.format_type(each) for each in REGISTERED)


def run(node: Any, session: Session) -> ResultSet:
    """Answers a SELECT (the rows are lazy) in the session's transaction."""
    transaction = session.begin_statement()
    known = constant.answer(node, session)
    if known is not None:
        return known
    by_catalog, plan = _way(node, session)
    if by_catalog:
        try:
            return _by_catalog(node, session, transaction.cursor)
        except catalog_query.BeyondCatalog:
            if _reads_relations(node):
                raise
    if plan is None:
        plan = _planned(node, session)
    return render.result(plan, session, transaction)


def _by_catalog(node: Any, session: Session, cursor: Cursor) -> ResultSet:
    with session.cancelling(cursor.interrupt):
        return catalog_query.answer(node, "", session.context, cursor, session.dynamic, session.functions, session.parameters)


def by_catalog(node: Any, session: Session, known: Mapping[int, int] | None = None) -> bool:
    """Whether the catalog answers the query: it reads system relations only, or none and needs what only the catalog has.

    `known`: the types of the parameters of a query that is only described (0: to be inferred).

    Expressions have one meaning, that of `headgate.expression`; the catalog's SQL is near to it for what catalogs hold, no more.
    """
    return constant.answer(node, session) is None and _way(node, session, known)[0]


def _way(node: Any, session: Session, known: Mapping[int, int] | None = None) -> tuple[bool, Plan | None]:
    """Whether the catalog answers a query; if not, its plan where that had to be made to know."""
    if not catalog_query.uses_catalog_only(node, session.context, session.begin_statement().cursor):
        return False, None
    if _reads_relations(node):
        return True, None
    if any(constant.acts(each, session) or _names_registered(each) for each in walk(node)):
        return _refused(node, session) not in _UNKNOWN, None
    try:
        return False, _planned(node, session, known)
    except PostgresError as error:
        if error.sqlstate in _UNKNOWN and _refused(node, session) is None:
            return True, None
        raise


def _names_registered(node: Any) -> bool:
    """Whether a node of the tree names regclass or one of its like, whose values only the catalog can read and print."""
    return node.DESCRIPTOR.name == "TypeName" and bool(node.names) and strings(node.names)[-1] in _REGISTERED


def _planned(node: Any, session: Session, known: Mapping[int, int] | None = None) -> Plan:
    transaction = session.begin_statement()
    with render.running(session, transaction):
        return Planner(session, transaction, None if known is None else dict(known)).select(node, None)


def _refused(node: Any, session: Session) -> str | None:
    """With what SQLSTATE the catalog refuses the query; None if it takes it."""
    given = tuple(each.type_oid for each in session.parameters)
    try:
        catalog_query.describe(node, session.context, session.begin_statement().cursor, given, session.functions)
    except PostgresError as error:
        return error.sqlstate
    return None


def _reads_relations(node: Any) -> bool:
    return any(each.DESCRIPTOR.name == "RangeVar" for each in walk(node))
