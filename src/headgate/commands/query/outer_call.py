"""Take calls with columns of the outer query out of subqueries: ``EXISTS (SELECT 1 FROM u WHERE f(t.a) = u.b)``, ``f(t.a) IN (SELECT …)``.

`row_by_row` calls `taken_out`, evaluates the calls for each row of the outer query, and puts the values into columns that the subqueries
name instead. Only calls of STABLE and IMMUTABLE functions are taken out: a VOLATILE function is called for each row of the subquery. A call
stays if it is in a CASE or COALESCE with columns of the subquery, in a subquery of the subquery, or in FROM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headgate.analysis.query import PlanColumn, Query, Select, SetOperation, parts, reference
from headgate.commands import stored_expression
from headgate.expression import builtin, rewriting
from headgate.expression.node import (
    Aggregate,
    Case,
    CaseTest,
    Coalesce,
    ColumnRef,
    Expression,
    FuncExpr,
    SubLink,
    UserCall,
    WindowCall,
    walk,
)

_Change = Callable[[Expression], Expression]


def taken_out(
    expressions: Sequence[Expression], is_called: Callable[[Expression], bool], key: Callable[[], str]
) -> tuple[dict[Expression, PlanColumn], list[Expression]]:
    """Return the calls in the subqueries of expressions that need only the outer query, and the expressions with references to these.

    `is_called`: returns whether an expression has such a call. `key`: returns the key of a new column.
    """
    calls: dict[Expression, PlanColumn] = {}

    def placed(node: Expression, level: int = 1) -> Expression | None:
        if not is_called(node) or isinstance(node, SubLink):
            return node
        if not is_of_level(node, level):
            return node if isinstance(node, Case | Coalesce) else None
        call = rewriting.rewrite(node, lambda part: replace(part, levels_up=0) if isinstance(part, ColumnRef) else None)
        if call not in calls:
            calls[call] = PlanColumn("value", node.type, key())
        return replace(reference(calls[call]), levels_up=level)

    def changed(node: Expression) -> Expression | None:
        if not isinstance(node, SubLink) or not isinstance(node.query, Query):
            return None
        query, test = node.query, node.test
        if any(isinstance(part, UserCall) and is_called(part) for part in parts(query)):
            query = _rewritten(query, lambda expression: rewriting.rewrite(expression, placed))
        if test is not None and is_called(test):
            test = rewriting.rewrite(test, lambda part: placed(part, level=0))
        return None if query is node.query and test is node.test else replace(node, query=query, test=test)

    return calls, [rewriting.rewrite(expression, changed) for expression in expressions]


def is_of_level(node: Expression, level: int) -> bool:
    """Return whether an expression has one value for each row of the query around it, so many levels up."""
    nodes = list(walk(node))
    columns = [part for part in nodes if isinstance(part, ColumnRef)]
    if not columns or any(column.levels_up != level for column in columns) or stored_expression.volatile(node):
        return False
    return not any(isinstance(part, SubLink | Aggregate | WindowCall | CaseTest) or _returns_set(part) for part in nodes)


def _returns_set(node: Expression) -> bool:
    return isinstance(node, FuncExpr) and builtin.function(node.function).retset


def _rewritten(query: Query, change: _Change) -> Query:
    """Return a query with changed expressions in its SELECT list, WHERE, GROUP BY, HAVING and ORDER BY."""
    body = query.body
    if isinstance(body, SetOperation):
        return replace(query, body=replace(body, left=_rewritten(body.left, change), right=_rewritten(body.right, change)))
    if not isinstance(body, Select):
        return query
    grouped = body.grouped
    if grouped is not None:
        having = None if grouped.having is None else change(grouped.having)
        changed = [(change(aggregate), key) for aggregate, key in grouped.aggregates.items()]
        aggregates = {aggregate: key for aggregate, key in changed if isinstance(aggregate, Aggregate)}
        grouped = replace(grouped, having=having, aggregates=aggregates)
    body = replace(
        body,
        where=None if body.where is None else change(body.where),
        targets=tuple(replace(target, expression=change(target.expression)) for target in body.targets),
        grouped=grouped,
    )
    return replace(query, body=body, sorts=tuple(replace(sort, expression=change(sort.expression)) for sort in query.sorts))
