"""EXPLAIN: the plan that Spark makes of a query, as Spark shows it (there are no costs: Spark has none to show before it runs).

A query that the catalogs answer by themselves has no such plan, and says so. Statements that change data and ANALYZE, which would run
the query, are refused.
"""

from __future__ import annotations

from typing import Any

from headgate.catalog import query as catalog_query
from headgate.commands.query import render, select
from headgate.commands.query.planner import Planner
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.sql.parser import unwrap
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet, of_rows

COLUMNS = (ResultColumn("QUERY PLAN", registry.TEXT),)
_IGNORED = frozenset({"costs", "buffers", "timing", "summary", "settings", "wal"})


def explain(node: Any, session: Session) -> ResultSet:
    """EXPLAIN [(VERBOSE)] SELECT …: one row a line. VERBOSE shows Spark's logical plans too."""
    verbose = _is_verbose(node)
    query = unwrap(node.query)
    if query.DESCRIPTOR.name != "SelectStmt":
        raise not_supported("EXPLAIN of a statement that is not SELECT is not supported")
    transaction = session.begin_statement()
    if select.by_catalog(query, session):
        catalog_query.describe(query, session.context, transaction.cursor, functions=session.functions)
        return of_rows(COLUMNS, [("Catalog Query",)], "EXPLAIN")
    planner = Planner(session, transaction)
    with render.running(session, transaction):
        frame = planner.select(query, None).frame
        execution = frame._jdf.queryExecution()
        text = execution.toString() if verbose else execution.simpleString()
    return of_rows(COLUMNS, [(line,) for line in text.rstrip().split("\n")], "EXPLAIN")


def _is_verbose(node: Any) -> bool:
    verbose = False
    for option in map(unwrap, node.options):
        word = unwrap(option.arg) if option.HasField("arg") else None
        given = "on" if word is None else str(getattr(word, "sval", getattr(word, "ival", ""))).lower()
        on = given not in ("off", "false", "0")
        if option.defname == "verbose":
            verbose = on
        elif option.defname == "analyze" and on:
            raise not_supported("EXPLAIN ANALYZE is not supported")
        elif option.defname == "format" and given != "text":
            raise not_supported(f"EXPLAIN FORMAT {given.upper()} is not supported")
        elif option.defname not in (*_IGNORED, "analyze", "format"):
            raise PostgresError("42601", f'unrecognized EXPLAIN option "{option.defname}"')
    return verbose
