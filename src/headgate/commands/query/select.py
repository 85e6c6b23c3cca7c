"""SELECT: by the catalog where the query reads system relations only, on Spark where it reads tables."""

from __future__ import annotations

from typing import Any

from headgate.catalog import query as catalog_query
from headgate.commands.query import render
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.types.resultset import ResultSet


def run(node: Any, session: Session) -> ResultSet:
    """Answers a SELECT (the rows are lazy) in the session's transaction."""
    transaction = session.begin_statement()
    if by_catalog(node, session):
        return catalog_query.answer(node, "", session.context, transaction.cursor, session.dynamic, session.functions, session.parameters)
    planner = Planner(session, transaction)
    with render.running(session, transaction):
        plan = planner.select(node, None)
    return render.result(plan, session, transaction)


def by_catalog(node: Any, session: Session) -> bool:
    """Whether the catalog answers the query by itself."""
    return catalog_query.uses_catalog_only(node, session.context, session.begin_statement().cursor)
