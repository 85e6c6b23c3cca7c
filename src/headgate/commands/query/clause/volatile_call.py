"""random() and gen_random_uuid(): each call becomes a column of the frame below before anything is made of it.

Called by the planner for SELECT lists and by UPDATE for SET. Spark computes a Column as often as it stands in an expression, and the
compiler may well name an operand twice: only what is a column already has one value for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from headgate.commands.query.plan import PlanColumn, reference
from headgate.expression import builtin, rewriting
from headgate.expression.implementation.system import VOLATILE
from headgate.expression.node import Expression, FuncExpr, walk

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner


def settled(planner: Planner, frame: DataFrame, expressions: Sequence[Expression]) -> tuple[DataFrame, list[Expression]]:
    """The frame with a further column for every volatile call, and the expressions with references to these in their place."""
    if not any(is_volatile(each) for expression in expressions for each in walk(expression)):
        return frame, list(expressions)
    columns = {}

    def placed(node: Expression) -> Expression | None:
        if not is_volatile(node):
            return None
        made = PlanColumn("volatile", node.type, planner.key("volatile"))
        columns[made.key] = planner.column(node)
        return reference(made)

    changed = [rewriting.rewrite(each, placed) for each in expressions]
    return frame.withColumns(columns), changed


def is_volatile(node: Expression) -> bool:
    """Whether a node is such a call."""
    return isinstance(node, FuncExpr) and builtin.function(node.function).key in VOLATILE
