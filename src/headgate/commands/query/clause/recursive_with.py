"""WITH RECURSIVE: the rows of the first term, then repeatedly those of the second term over the rows of the previous round (manual, 7.8.2).

Called by the planner. The rows of each round are computed and stored before the next round is planned. With UNION, duplicates of earlier
rows are dropped. ``SELECT … FROM cte LIMIT n`` needs n rows in any choice, so the rounds end there (`enough`): a recursion without an end
has a result with LIMIT, as the manual shows.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from headgate.analysis.query import Cte, CteItem, Query, Recursion, Select
from headgate.commands.query.clause import ordering, set_operation
from headgate.commands.query.plan import Plan, col
from headgate.commands.query.planner import Planner
from headgate.expression import builtin
from headgate.expression.node import SubLink, UserCall, walk


def enough(planner: Planner, query: Query, select: Select) -> int | None:
    """Return how many rows of the recursive query in its FROM a query needs, or None for all of them."""
    if not isinstance(select.source, CteItem) or query.ctes != (select.source.cte,) or query.limit is None or query.limit.with_ties:
        return None
    # a subquery may read the recursive query too, and a function in the SELECT list may return no row
    if any(
        isinstance(node, SubLink | UserCall) or builtin.returns_set(node) for target in select.targets for node in walk(target.expression)
    ):
        return None
    if not replace(query, limit=None).only_projects:
        return None
    bounds = [ordering.constant_count(planner, value) for value in (query.limit.count, query.limit.offset) if value is not None]
    counts = [int(bound.value) for bound in bounds if bound is not None and bound.value is not None]
    return sum(counts) if query.limit.count is not None and len(counts) == len(bounds) else None


def run(planner: Planner, cte: Cte, recursion: Recursion, most: int | None = None) -> Plan:
    """Return the rows of a recursive query: all, or at least `most` of them if there are so many."""
    assert cte.query is not None
    assert cte.columns is not None
    columns = cte.columns
    first = planner.plan(cte.query)
    if not recursion.all:
        first = ordering.distinct(planner, first)
    working = _compute_once(first.frame.select(*[col(column.key) for column in columns]))
    whole = working
    count = 0
    while not working.isEmpty():
        planner.session.check_cancel()
        if most is not None and (count := count + working.count()) >= most:
            break
        with planner.working_table(recursion.working, Plan(working, columns)):
            term = planner.plan(recursion.term)
            values = [planner.column(value).alias(column.key) for value, column in zip(recursion.values, columns, strict=True)]
        new_rows = term.frame.select(*values)
        if not recursion.all:
            new_rows = set_operation.new_rows(planner, new_rows, whole, columns)
        working = _compute_once(new_rows)
        whole = whole.unionAll(working)
    return Plan(whole, columns)


def _compute_once(frame: DataFrame) -> DataFrame:
    """Return the rows computed once, without their lineage."""
    return frame.localCheckpoint()
