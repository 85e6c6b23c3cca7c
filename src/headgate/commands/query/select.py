"""SELECT: by the catalog where the query reads system relations only, on Spark where it reads tables."""

from __future__ import annotations

from typing import Any

from headgate.catalog import query as catalog_query
from headgate.catalog.physical import Cursor
from headgate.commands.query import constant, render
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.sql.parser import walk
from headgate.types.resultset import ResultSet


def run(node: Any, session: Session) -> ResultSet:
    """Answers a SELECT (the rows are lazy) in the session's transaction."""
    transaction = session.begin_statement()
    known = constant.answer(node, session)
    if known is not None:
        return known
    if by_catalog(node, session):
        try:
            return _by_catalog(node, session, transaction.cursor)
        except catalog_query.BeyondCatalog:
            if _reads_relations(node):
                raise
    planner = Planner(session, transaction)
    with render.running(session, transaction):
        plan = planner.select(node, None)
    return render.result(plan, session, transaction)


def _by_catalog(node: Any, session: Session, cursor: Cursor) -> ResultSet:
    with session.cancelling(cursor.interrupt):
        return catalog_query.answer(node, "", session.context, cursor, session.dynamic, session.functions, session.parameters)


def by_catalog(node: Any, session: Session) -> bool:
    """Whether the catalog answers the query by itself: it reads system relations only, or nothing that the catalog cannot compute."""
    cursor = session.begin_statement().cursor
    if not catalog_query.uses_catalog_only(node, session.context, cursor):
        return False
    if _reads_relations(node):
        return True
    if constant.answer(node, session) is not None:
        return False
    try:
        given = tuple(each.type_oid for each in session.parameters)
        catalog_query.describe(node, session.context, cursor, given, session.functions)
    except PostgresError as error:
        return error.sqlstate not in ("0A000", "42883")
    return True


def _reads_relations(node: Any) -> bool:
    return any(each.DESCRIPTOR.name == "RangeVar" for each in walk(node))
