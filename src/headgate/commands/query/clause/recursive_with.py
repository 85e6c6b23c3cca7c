"""WITH RECURSIVE: the rows of the first term, then repeatedly those of the second term over the rows of the previous round (manual, 7.8.2).

Called by the planner. The rows of each round are computed and stored before the next round is planned. With UNION, duplicates of earlier
rows are dropped.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headgate.analysis.query import Cte, Recursion
from headgate.commands.query.clause import ordering, set_operation
from headgate.commands.query.plan import Plan, col
from headgate.commands.query.planner import Planner


def run(planner: Planner, cte: Cte, recursion: Recursion) -> Plan:
    assert cte.query is not None
    assert cte.columns is not None
    columns = cte.columns
    first = planner.plan(cte.query)
    if not recursion.all:
        first = ordering.distinct(planner, first)
    working = _compute_once(first.frame.select(*[col(column.key) for column in columns]))
    whole = working
    while not working.isEmpty():
        planner.session.check_cancel()
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
