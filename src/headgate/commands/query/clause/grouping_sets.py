"""GROUPING SETS, ROLLUP and CUBE: the sets of expressions that a GROUP BY clause asks for (manual, 7.2.4)."""

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
    """The sets of a SELECT's GROUP BY, one without GROUPING SETS: the product of what each of its items gives."""
    parts = [_sets(each, item) for each in node.group_clause]
    found: list[GroupingSet] = []
    for each in itertools.product(*parts):
        found.append(_once(sum(each, ())))
        if len(found) > _MAX_SETS:
            raise PostgresError("54001", f"too many grouping sets present (maximum {_MAX_SETS})")
    if node.group_distinct:
        return list({frozenset(each): each for each in found}.values())
    return found


def _once(items: GroupingSet) -> GroupingSet:
    return tuple(dict.fromkeys(items))


def _sets(node: ParseNode, item: Item) -> list[GroupingSet]:
    inner = unwrap(node)
    if inner.DESCRIPTOR.name != "GroupingSet":
        return [_expressions(inner, item)]
    if inner.kind == pb.GROUPING_SET_EMPTY:
        return [()]
    if inner.kind == pb.GROUPING_SET_SETS:
        return [each for content in inner.content for each in _sets(content, item)]
    parts = [_expressions(unwrap(each), item) for each in inner.content]
    if inner.kind == pb.GROUPING_SET_ROLLUP:
        return [sum(parts[:size], ()) for size in range(len(parts), -1, -1)]
    if len(parts) > 12:
        raise PostgresError("54011", "CUBE is limited to 12 elements")
    return [sum(chosen, ()) for size in range(len(parts), -1, -1) for chosen in itertools.combinations(parts, size)]


def _expressions(node: ParseNode, item: Item) -> GroupingSet:
    """One expression, or those of ``(a, b)``."""
    if node.DESCRIPTOR.name == "RowExpr" and node.row_format == pb.COERCE_IMPLICIT_CAST:
        return tuple(item(each) for each in node.args)
    return (item(node),)
