"""Run and describe SELECT: the catalog answers queries of system relations only, the driver or Spark answers the others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import Query
from headgate.catalog.physical import Cursor
from headgate.commands.query import engine_choice, rendering
from headgate.commands.query.catalog import query as catalog_query
from headgate.commands.query.driver import answer as driver
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.commands.result import Described
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.types.resultset import ResultSet


def run(node: pb.SelectStmt, session: Session) -> ResultSet:
    """Run a SELECT in the session's transaction. The rows are computed lazily."""
    transaction = session.begin_statement()
    by_catalog, planned = _way(node, session)
    if by_catalog:
        try:
            return _by_catalog(node, session, transaction.cursor)
        except PostgresError as refused:
            if not isinstance(refused, catalog_query.BeyondCatalog) or engine_choice.reads_relations(node):
                planned = engine_choice.instead(refused, session, lambda: _planned(node, session))
    if planned is None:
        planned = _planned(node, session)
    return rendering.result(planned, session, transaction) if isinstance(planned, Plan) else planned


def analysed(node: pb.SelectStmt, planner: Planner) -> Query:
    """Return the analysed query. Spark may run the statements in its WITH clause."""
    with rendering.running(planner.session, planner.transaction) if node.HasField("with_clause") else nullcontext():
        return planner.analyse(node)


def _by_catalog(node: pb.SelectStmt, session: Session, cursor: Cursor) -> ResultSet:
    with session.cancelling(cursor.interrupt):
        return catalog_query.answer(node, session.context, cursor, session.dynamic, session.functions, session.parameters)


def by_catalog(node: pb.SelectStmt, session: Session, known: Mapping[int, int] | None = None) -> bool:
    """Return whether the catalog answers the query (`engine_choice`). It may still reject the query, which `described` reports.

    `known`: the types of the parameters of a query that is only described (0: to be inferred).
    """
    return _way(node, session, known)[0]


def described(node: pb.SelectStmt, session: Session, known: Mapping[int, int] | None = None) -> Described | None:
    """Describe a query for which `by_catalog` is true. Return None if the catalog rejects it and Spark does not."""
    parameter_types = (
        tuple(parameter.type_oid for parameter in session.parameters) if known is None else tuple(known[number] for number in sorted(known))
    )
    try:
        return Described(
            *catalog_query.describe(node, session.context, session.begin_statement().cursor, parameter_types, session.functions)
        )
    except PostgresError as refused:
        engine_choice.instead(refused, session, lambda: _planned(node, session, known))
        return None


def _way(node: pb.SelectStmt, session: Session, known: Mapping[int, int] | None = None) -> tuple[bool, ResultSet | Plan | None]:
    return engine_choice.find(node, session, lambda: _planned(node, session, known))


def _planned(node: pb.SelectStmt, session: Session, known: Mapping[int, int] | None = None) -> ResultSet | Plan:
    """Return the driver's result or, if the driver cannot answer the query, Spark's plan."""
    transaction = session.begin_statement()
    planner = Planner(session, transaction, None if known is None else dict(known))
    query = analysed(node, planner)
    result = driver.of(planner, query)
    if result is not None:
        return result
    with rendering.running(session, transaction):
        return planner.plan(query)
