"""GROUPING SETS, ROLLUP and CUBE: the grouping sets of a GROUP BY clause (manual, 7.2.4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from postgast import pg_query_pb2 as pb

from headgate.analysis.query import GroupingClause
from headgate.errors import PostgresError
from headgate.expression.node import Expression
from headgate.sql.parser import ParseNode, unwrap

Item = Callable[[ParseNode], Expression]
GroupingSet = tuple[Expression, ...]
_MAX_SETS = 4096
_WORDS = {pb.GROUPING_SET_ROLLUP: "ROLLUP", pb.GROUPING_SET_CUBE: "CUBE", pb.GROUPING_SET_SETS: "GROUPING SETS"}


def read(node: pb.SelectStmt, item: Item) -> tuple[Expression | GroupingClause, ...]:
    """Return the items of GROUP BY. Equal expressions count once."""
    items = [part for element in node.group_clause for part in _read(unwrap(element), item)]
    return tuple(part for place, part in enumerate(items) if isinstance(part, GroupingClause) or part not in items[:place])


def _read(node: ParseNode, item: Item, *, nested: bool = False) -> list[Expression | GroupingClause]:
    """Return one item, or the expressions of ``(a, b)`` at the top level. GROUPING SETS in GROUPING SETS is the same as its content."""
    if node.DESCRIPTOR.name == "RowExpr" and node.row_format == pb.COERCE_IMPLICIT_CAST:
        listed = [item(argument) for argument in node.args]
        return [GroupingClause("", tuple(listed))] if nested else [*listed]
    if node.DESCRIPTOR.name != "GroupingSet":
        return [item(node)]
    if node.kind == pb.GROUPING_SET_EMPTY:
        return [GroupingClause("", ())]
    content: list[Expression | GroupingClause] = []
    for element in node.content:
        [part] = _read(unwrap(element), item, nested=True)
        if isinstance(part, GroupingClause) and part.word == _WORDS[node.kind] == "GROUPING SETS":
            content += part.content
        else:
            content.append(part)
    return [GroupingClause(_WORDS[node.kind], tuple(content))]


def multiplied(clause: Iterable[Expression | GroupingClause], *, distinct: bool) -> list[GroupingSet]:
    """Return the grouping sets of a SELECT: the product of the sets of each GROUP BY item. Without GROUPING SETS, there is one."""
    sets: list[GroupingSet] = []
    for combination in itertools.product(*map(_sets, clause)):
        sets.append(tuple(dict.fromkeys(sum(combination, ()))))
        if len(sets) > _MAX_SETS:
            raise PostgresError("54001", f"too many grouping sets present (maximum {_MAX_SETS})")
    if distinct:
        return list({frozenset(grouping_set): grouping_set for grouping_set in sets}.values())
    return sets


def _sets(item: Expression | GroupingClause) -> list[GroupingSet]:
    if not isinstance(item, GroupingClause):
        return [(item,)]
    sets = [grouping_set for part in item.content for grouping_set in _sets(part)]
    match item.word:
        case "ROLLUP":
            return [sum(sets[:size], ()) for size in range(len(sets), -1, -1)]
        case "CUBE":
            if len(sets) > 12:
                raise PostgresError("54011", "CUBE is limited to 12 elements")
            return [sum(chosen, ()) for size in range(len(sets), -1, -1) for chosen in itertools.combinations(sets, size)]
        case "GROUPING SETS":
            return sets
        case _:
            return [sum(sets, ())]
