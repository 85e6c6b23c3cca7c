"""Run SELECT by the first engine that takes it (`engine`), and describe it."""

from __future__ import annotations

from postgast import pg_query_pb2 as pb

from headgate.commands.query import engine, rendering
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.types.resultset import ResultColumn, ResultSet


def run(node: pb.SelectStmt, session: Session) -> ResultSet:
    """Run a SELECT in the session's transaction. The rows are computed lazily."""
    planner = Planner(session, session.begin_statement())
    query = engine.analysed(planner, node)
    return engine.first(planner, query, lambda chosen: chosen.run(planner, query))


def columns(node: pb.SelectStmt, planner: Planner) -> tuple[ResultColumn, ...]:
    """Return the columns of a SELECT without running it."""
    return rendering.result_columns(engine.analysed(planner, node).columns)
