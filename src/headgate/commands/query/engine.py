"""The engines that answer queries, in the order in which they are asked.

Called by all statements that run, describe, explain or copy a query. An engine decides from the analysed query alone, before anything runs,
whether it takes the query (`refusal`), so a query uses the same engine whether it is run, described or explained.

    driver    constants, and queries of one table of which every function has an exact Arrow form
    catalog   DuckDB: queries of system relations alone, and queries without relations that need a function which Spark does not have
    Spark     all other queries

The first engine that takes a query answers it. There is one declared outcome besides: an engine that took a query may find that its answer
would differ from PostgreSQL's (`NotColumnwise` of the driver, 0A000 of the catalog). Then the next engine answers (`first`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import duckdb
from postgast import pg_query_pb2 as pb

from headgate.analysis.query import Query
from headgate.commands.query import rendering
from headgate.commands.query.analysed_statement import AnalysedStatements
from headgate.commands.query.catalog import answer as catalog
from headgate.commands.query.driver import answer as driver
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import Session
from headgate.errors import PostgresError, causes
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.sql.parser import unwrap
from headgate.types.resultset import ResultColumn, ResultSet

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    """An engine. `refusal`: returns the reason why it does not take a query, or None. `run`: returns the result, computed lazily."""

    refusal: Callable[[QueryPlanner, Query], str | None]
    run: Callable[[QueryPlanner, Query], ResultSet]


def _run_by_spark(planner: QueryPlanner, query: Query) -> ResultSet:
    with rendering.running(planner.session, planner.transaction):
        plan = planner.plan(query)
    return rendering.result(plan, planner.session, planner.transaction)


DRIVER = Engine(lambda _, query: driver.refusal(query), driver.answer)
CATALOG = Engine(catalog.refusal, catalog.run)
SPARK = Engine(lambda _, __: None, _run_by_spark)
ENGINES = (DRIVER, CATALOG, SPARK)
PLANNING = (CATALOG, SPARK)
"""The engines for statements that need more of a query than its result: EXPLAIN and COPY."""


def analysed(planner: QueryPlanner, node: pb.SelectStmt) -> Query:
    """Return the analysed query of a statement. Spark may run the statements in its WITH clause."""
    statements: AnalysedStatements = planner.session.analysed
    return statements.query(planner, node, lambda: _analysed(planner, node))


def _analysed(planner: QueryPlanner, node: pb.SelectStmt) -> Query:
    modifies = any(unwrap(unwrap(item).ctequery).DESCRIPTOR.name != "SelectStmt" for item in node.with_clause.ctes)
    with rendering.running(planner.session, planner.transaction) if modifies else nullcontext():
        return planner.analyse(node)


def first(planner: QueryPlanner, query: Query, use: Callable[[Engine], T], engines: Sequence[Engine] = ENGINES) -> T:
    """Return what `use` returns for the first engine that takes the query, or for the next one if that one cannot answer exactly.

    If neither the catalog nor Spark supports a query of the catalog's own (`catalog.is_own`), raise the catalog's error.
    """
    declined: PostgresError | None = None
    for engine in engines:
        if engine.refusal(planner, query) is not None:
            continue
        try:
            return use(engine)
        except NotColumnwise:
            continue
        except PostgresError as error:
            if declined is not None and error.sqlstate == "0A000" and catalog.is_own(planner, query):
                raise declined from error
            if engine is not CATALOG or error.sqlstate != "0A000" or not _is_open(planner, error):
                raise
            declined = error
    raise AssertionError("Spark takes every query")


def _is_open(planner: QueryPlanner, declined: PostgresError) -> bool:
    """Return whether the transaction can read the catalog. An error of DuckDB itself has aborted it, so it is opened again."""
    own = next((cause for cause in causes(declined) if not isinstance(cause, PostgresError)), None)
    return not isinstance(own, duckdb.Error) or planner.transaction.look_again()


def run(node: pb.SelectStmt, session: Session) -> ResultSet:
    """Run a SELECT in the session's transaction. The rows are computed lazily."""
    planner = QueryPlanner(session, session.begin_statement())
    query = analysed(planner, node)
    return first(planner, query, lambda chosen: chosen.run(planner, query))


def columns(node: pb.SelectStmt, planner: QueryPlanner) -> tuple[ResultColumn, ...]:
    """Return the columns of a SELECT without running it."""
    return rendering.result_columns(analysed(planner, node).columns)
