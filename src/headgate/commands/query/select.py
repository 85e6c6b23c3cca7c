"""SELECT: by the catalog where the query reads system relations only, on Spark where it reads tables."""

from __future__ import annotations

from typing import Any

from headgate.catalog import query as catalog_query
from headgate.catalog.physical import Cursor
from headgate.commands.query import render
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.types.resultset import ResultSet


def run(node: Any, session: Session) -> ResultSet:
    """Answers a SELECT (the rows are lazy) in the session's transaction."""
    transaction = session.begin_statement()
    if by_catalog(node, session):
        return _by_catalog(node, session, transaction.cursor)
    planner = Planner(session, transaction)
    with render.running(session, transaction):
        plan = planner.select(node, None)
    return render.result(plan, session, transaction)


def _by_catalog(node: Any, session: Session, cursor: Cursor) -> ResultSet:
    with session.cancelling(cursor.interrupt):
        try:
            return catalog_query.answer(node, "", session.context, cursor, session.dynamic, session.functions, session.parameters)
        except PostgresError as error:
            if error.sqlstate == "57014":
                session.check_cancel()  # knows whether it was the user or statement_timeout
            raise


def by_catalog(node: Any, session: Session) -> bool:
    """Whether the catalog answers the query by itself."""
    return catalog_query.uses_catalog_only(node, session.context, session.begin_statement().cursor)
