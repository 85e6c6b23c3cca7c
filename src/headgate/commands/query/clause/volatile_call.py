"""random() and gen_random_uuid(): each call becomes a column of the input frame before it is used.

Called by the planner for SELECT lists and by UPDATE for SET. Spark evaluates a Column each time it occurs in an expression, and the
compiler may use an operand twice. Only a column of the frame has one value per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from headgate.analysis.query import PlanColumn, reference
from headgate.expression import builtin, rewriting
from headgate.expression.implementation.system import VOLATILE
from headgate.expression.node import Expression, FuncExpr, walk

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner


def settled(planner: Planner, frame: DataFrame, expressions: Sequence[Expression]) -> tuple[DataFrame, list[Expression]]:
    """Return the frame with an additional column for every volatile call, and the expressions with references to these columns."""
    if not any(map(has_volatile, expressions)):
        return frame, list(expressions)
    columns = {}

    def placed(node: Expression) -> Expression | None:
        if not is_volatile(node):
            return None
        column = PlanColumn("volatile", node.type, planner.key("volatile"))
        columns[column.key] = planner.column(node)
        return reference(column)

    changed = [rewriting.rewrite(expression, placed) for expression in expressions]
    return frame.withColumns(columns), changed


def has_volatile(expression: Expression) -> bool:
    return any(map(is_volatile, walk(expression)))


def is_volatile(node: Expression) -> bool:
    return isinstance(node, FuncExpr) and builtin.function(node.function).key in VOLATILE
