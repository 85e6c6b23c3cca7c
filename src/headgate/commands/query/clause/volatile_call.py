"""random() and gen_random_uuid(): each call becomes a column of the input frame before it is used.

Called by the planner for SELECT lists and by `grouping`. Spark evaluates a Column each time it occurs in an expression, and the compiler
may use an operand twice. Only a column of the frame has one value per row.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headgate.analysis.query import PlanColumn, reference
from headgate.commands.query import row_by_row
from headgate.commands.query.planner import Planner
from headgate.expression import rewriting
from headgate.expression.implementation.system import has_volatile, is_volatile
from headgate.expression.node import Expression


def compute(planner: Planner, frame: DataFrame, expressions: Sequence[Expression]) -> tuple[DataFrame, list[Expression]]:
    """Return the frame with columns of calls that have one value per row, and the expressions with references to these columns.

    These are the volatile calls, and those that need the session (`row_by_row.settled`).
    """
    frame, settled = row_by_row.settled(planner.evaluation, frame, expressions)
    if not any(map(has_volatile, settled)):
        return frame, settled
    columns = {}

    def placed(node: Expression) -> Expression | None:
        if not is_volatile(node):
            return None
        column = PlanColumn("volatile", node.type, planner.key("volatile"))
        columns[column.key] = planner.column(node)
        return reference(column)

    changed = [rewriting.rewrite(expression, placed) for expression in settled]
    return frame.withColumns(columns), changed
