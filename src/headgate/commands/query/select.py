"""Run and describe SELECT: the catalog answers queries of system relations only, Spark answers queries of tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import Query
from headgate.catalog.physical import Cursor
from headgate.commands.query import change_scan, engine_choice, rendering
from headgate.commands.query.catalog import query as catalog_query
from headgate.commands.query.driver import constant, single_table
from headgate.commands.query.plan import Plan
from headgate.commands.query.planner import Planner
from headgate.commands.result import Described
from headgate.commands.session import Session
from headgate.errors import PostgresError
from headgate.types.resultset import ResultSet


def run(node: pb.SelectStmt, session: Session) -> ResultSet:
    """Run a SELECT in the session's transaction. The rows are computed lazily."""
    transaction = session.begin_statement()
    constant_result = constant.answer(node, session)
    if constant_result is not None:
        return constant_result
    changes = change_scan.answer(node, session)
    if changes is not None:
        return changes
    by_catalog, plan = _way(node, session)
    if by_catalog:
        try:
            return _by_catalog(node, session, transaction.cursor)
        except PostgresError as refused:
            if not isinstance(refused, catalog_query.BeyondCatalog) or engine_choice.reads_relations(node):
                plan = engine_choice.instead(refused, session, lambda: _planned(node, session))
    if plan is None:
        planner = Planner(session, transaction)
        query = analysed(node, planner)
        driver_result = single_table.answer(planner, query)
        if driver_result is not None:
            return driver_result
        with rendering.running(session, transaction):
            plan = planner.plan(query)
    return rendering.result(plan, session, transaction)


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
    return constant.answer(node, session) is None and _way(node, session, known)[0]


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


def _way(node: pb.SelectStmt, session: Session, known: Mapping[int, int] | None = None) -> tuple[bool, Plan | None]:
    return engine_choice.find(node, session, lambda: _planned(node, session, known))


def _planned(node: pb.SelectStmt, session: Session, known: Mapping[int, int] | None = None) -> Plan:
    transaction = session.begin_statement()
    with rendering.running(session, transaction):
        return Planner(session, transaction, None if known is None else dict(known)).select(node, None)
