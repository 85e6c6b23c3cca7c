"""EXPLAIN: show the plan that Spark makes for a query.

There are no costs, because Spark does not estimate them before it runs. The text format is Spark's own. With ANALYZE, the query is run, its
rows are discarded, and each step shows Spark's metrics. FORMAT JSON has PostgreSQL's structure, so that programs can read it. A query that
the catalog answers has one step. Statements that change data are rejected.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import Query
from headgate.commands.query import engine, rendering
from headgate.commands.query.catalog import answer as catalog
from headgate.commands.query.query_planner import QueryPlanner
from headgate.commands.session import Session
from headgate.errors import PostgresError, not_supported
from headgate.sql.options import options as read_options
from headgate.sql.parser import ParseNode, unwrap
from headgate.storage.spark.internals.plan_step import Execution, PlanStep
from headgate.types import registry
from headgate.types.resultset import ResultColumn, ResultSet, of_rows

_IGNORED = frozenset({"costs", "buffers", "timing", "settings", "wal"})
_ONLY_MEASURED = frozenset({"timing", "wal"})


@dataclass(frozen=True)
class _Options:
    verbose: bool = False
    analyze: bool = False
    json: bool = False
    summary: bool = False


@dataclass(frozen=True)
class _Explained:
    """An explained query. `text`: Spark's own lines. Times are in milliseconds; `execution` is None if the query was not run."""

    step: PlanStep
    text: str
    planning: float
    execution: float | None


def columns(node: ParseNode) -> tuple[ResultColumn, ...]:
    """Return the only result column, "QUERY PLAN"."""
    return (ResultColumn("QUERY PLAN", registry.JSON if _options(node).json else registry.TEXT),)


def runs(node: ParseNode) -> bool:
    """Return whether EXPLAIN runs the query (ANALYZE)."""
    return _options(node).analyze


def explain(node: pb.ExplainStmt, session: Session) -> ResultSet:
    """Run EXPLAIN [(ANALYZE, VERBOSE, FORMAT JSON, …)] SELECT …. VERBOSE also shows Spark's logical plans."""
    options = _options(node)
    query = unwrap(node.query)
    if query.DESCRIPTOR.name != "SelectStmt":
        raise not_supported("EXPLAIN of a statement that is not SELECT is not supported")
    explained = _explain(query, session, options)
    if options.json:
        lines = [json.dumps([_document(explained, options)], indent=2)]
    elif options.analyze:
        lines = [*_lines(explained.step), *_times(explained, options)]
    else:
        lines = [*explained.text.rstrip().split("\n"), *_times(explained, options)]
    return of_rows(columns(node), [(line,) for line in lines], "EXPLAIN")


def _explain(node: pb.SelectStmt, session: Session, options: _Options) -> _Explained:
    began, planner = time.monotonic(), QueryPlanner(session, session.begin_statement())
    query = engine.analysed(planner, node)

    def explained(chosen: engine.Engine) -> _Explained:
        return (_of_catalog if chosen is engine.CATALOG else _of_spark)(planner, query, options, began)

    return engine.first(planner, query, explained, engine.PLANNING)


def _of_catalog(planner: QueryPlanner, query: Query, options: _Options, began: float) -> _Explained:
    catalog.check(planner, query)
    planned, measured, execution = time.monotonic(), {}, None
    if options.analyze:
        measured = {"number of output rows": sum(batch.num_rows for batch in engine.CATALOG.run(planner, query))}
        execution = _milliseconds(planned)
    return _Explained(PlanStep("Catalog Query", "Catalog Query", measured, ()), "Catalog Query", (planned - began) * 1000, execution)


def _of_spark(planner: QueryPlanner, query: Query, options: _Options, began: float) -> _Explained:
    planner.evaluation.runs = options.analyze
    with rendering.running(planner.session, planner.transaction):
        execution = Execution(planner.plan(query).frame)
        planned, took = time.monotonic(), None
        if options.analyze:
            execution.run()
            took = _milliseconds(planned)
        return _Explained(execution.steps(), execution.text(verbose=options.verbose), (planned - began) * 1000, took)


def _milliseconds(since: float) -> float:
    return (time.monotonic() - since) * 1000


def _document(explained: _Explained, options: _Options) -> dict[str, object]:
    document: dict[str, object] = {"Plan": _node(explained.step, options)}
    if options.summary:
        document["Planning Time"] = round(explained.planning, 3)
    if explained.execution is not None and options.summary:
        document["Execution Time"] = round(explained.execution, 3)
    return document


def _node(step: PlanStep, options: _Options) -> dict[str, object]:
    document: dict[str, object] = {"Node Type": step.name, "Step": step.line}
    if options.analyze:
        if step.rows is not None:
            document |= {"Actual Rows": step.rows, "Actual Loops": 1}
        document["Metrics"] = {name: value for name, value in step.measured.items() if value}
    if step.inputs:
        document["Plans"] = [_node(input_step, options) for input_step in step.inputs]
    return document


def _lines(step: PlanStep, depth: int = 0) -> Iterator[str]:
    indent = "" if not depth else " " * (6 * depth - 4) + "->  "
    yield f"{indent}{step.line}" + ("" if step.rows is None else f"  (actual rows={step.rows} loops=1)")
    inner = " " * (6 * depth + 2)
    yield from (f"{inner}{name}: {value}" for name, value in sorted(step.measured.items()) if value and name != "number of output rows")
    for input_step in step.inputs:
        yield from _lines(input_step, depth + 1)


def _times(explained: _Explained, options: _Options) -> Iterator[str]:
    if options.summary:
        yield f"Planning Time: {explained.planning:.3f} ms"
    if options.summary and explained.execution is not None:
        yield f"Execution Time: {explained.execution:.3f} ms"


def _options(node: pb.ExplainStmt) -> _Options:
    switches: dict[str, bool] = {}
    as_json = False
    for option in read_options(node.options):
        name = option.name
        if name == "format":
            value = "on" if option.value is None else option.value.lower()
            if value not in ("text", "json", "xml", "yaml"):
                message = f'unrecognized value for EXPLAIN option "format": "{value}"'
                raise PostgresError("22023", message, location=option.location)
            if value in ("xml", "yaml"):
                raise not_supported(f"EXPLAIN FORMAT {value.upper()} is not supported")
            as_json = value == "json"
        elif name in (*_IGNORED, "verbose", "analyze", "summary"):
            switches[name] = option.boolean()
        else:
            raise PostgresError("42601", f'unrecognized EXPLAIN option "{name}"', location=option.location)
    analyze = switches.get("analyze", False)
    for name in sorted(_ONLY_MEASURED):
        if switches.get(name) and not analyze:
            raise PostgresError("22023", f"EXPLAIN option {name.upper()} requires ANALYZE")
    return _Options(switches.get("verbose", False), analyze, as_json, switches.get("summary", analyze))
