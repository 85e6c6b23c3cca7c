"""GROUPING SETS, ROLLUP and CUBE: the grouping sets of a GROUP BY clause (manual, 7.2.4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from postgast import pg_query_pb2 as pb

from headgate.errors import PostgresError
from headgate.expression.node import Expression
from headgate.sql.parser import ParseNode, unwrap

Item = Callable[[ParseNode], Expression]
GroupingSet = tuple[Expression, ...]
_MAX_SETS = 4096


def read(node: pb.SelectStmt, item: Item) -> list[GroupingSet]:
    """Return the grouping sets of a SELECT: the product of the sets of each GROUP BY item. Without GROUPING SETS, there is one."""
    parts = [_sets(element, item) for element in node.group_clause]
    sets: list[GroupingSet] = []
    for combination in itertools.product(*parts):
        sets.append(_once(sum(combination, ())))
        if len(sets) > _MAX_SETS:
            raise PostgresError("54001", f"too many grouping sets present (maximum {_MAX_SETS})")
    if node.group_distinct:
        return list({frozenset(grouping_set): grouping_set for grouping_set in sets}.values())
    return sets


def _once(items: GroupingSet) -> GroupingSet:
    return tuple(dict.fromkeys(items))


def _sets(node: ParseNode, item: Item) -> list[GroupingSet]:
    inner = unwrap(node)
    if inner.DESCRIPTOR.name != "GroupingSet":
        return [_expressions(inner, item)]
    if inner.kind == pb.GROUPING_SET_EMPTY:
        return [()]
    if inner.kind == pb.GROUPING_SET_SETS:
        return [grouping_set for content in inner.content for grouping_set in _sets(content, item)]
    parts = [_expressions(unwrap(content), item) for content in inner.content]
    if inner.kind == pb.GROUPING_SET_ROLLUP:
        return [sum(parts[:size], ()) for size in range(len(parts), -1, -1)]
    if len(parts) > 12:
        raise PostgresError("54011", "CUBE is limited to 12 elements")
    return [sum(chosen, ()) for size in range(len(parts), -1, -1) for chosen in itertools.combinations(parts, size)]


def _expressions(node: ParseNode, item: Item) -> GroupingSet:
    """Return one expression, or the expressions of ``(a, b)``."""
    if node.DESCRIPTOR.name == "RowExpr" and node.row_format == pb.COERCE_IMPLICIT_CAST:
        return tuple(item(argument) for argument in node.args)
    return (item(node),)
