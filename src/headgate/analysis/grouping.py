"""Analyse GROUP BY, aggregates and HAVING.

`read` splits the SELECT list, HAVING and ORDER BY into aggregates, which are computed over the groups, and expressions over the groups'
columns. An expression that equals an item of GROUP BY references that item. Any other column raises 42803, unless the query groups by the
primary key of its table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from postgast import pg_query_pb2 as pb

from headgate.analysis import ordering
from headgate.analysis.analyser import Analyser
from headgate.analysis.query import (
    AliasItem,
    CteItem,
    FromItem,
    FunctionItem,
    Grouped,
    GroupingClause,
    JoinItem,
    SelectItem,
    Sort,
    rewritten_sublink,
)
from headgate.errors import PostgresError, not_supported
from headgate.expression import rewriting
from headgate.expression.binding import binder, sort_operator
from headgate.expression.binding.coercion import resolve_unknown
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope
from headgate.expression.node import Aggregate, ColumnRef, Expression, Grouping, SubLink, WindowCall, walk
from headgate.sql.parser import ParseNode, unwrap

Item = Callable[[ParseNode], Expression]
GroupingSet = tuple[Expression, ...]
_MAX_SETS = 4096
_WORDS = {pb.GROUPING_SET_ROLLUP: "ROLLUP", pb.GROUPING_SET_CUBE: "CUBE", pb.GROUPING_SET_SETS: "GROUPING SETS"}


def read_sets(node: pb.SelectStmt, item: Item) -> tuple[Expression | GroupingClause, ...]:
    """Return the items of GROUP BY. Equal expressions count once."""
    items = [part for element in node.group_clause for part in _read_set(unwrap(element), item)]
    return tuple(part for place, part in enumerate(items) if isinstance(part, GroupingClause) or part not in items[:place])


def _read_set(node: ParseNode, item: Item, *, nested: bool = False) -> list[Expression | GroupingClause]:
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
        [part] = _read_set(unwrap(element), item, nested=True)
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


@dataclass(frozen=True)
class GroupedQuery:
    """The groups of a query, and its SELECT list and sort items as expressions over the columns of the groups."""

    grouped: Grouped
    targets: list[SelectItem]
    sorts: list[Sort]


def read(
    analyser: Analyser, node: pb.SelectStmt, source: FromItem, scope: Scope, targets: Sequence[SelectItem], sorts: Sequence[Sort]
) -> GroupedQuery | None:
    """Resolve GROUP BY, aggregates and HAVING; return None if the query does not group."""
    having = None
    context = analyser.context.within(construct="HAVING", aggregates=True)
    if node.HasField("having_clause"):
        having = binder.bind_condition(node.having_clause, scope, "HAVING", context=context)
    expressions = [item.expression for item in targets] + [item.expression for item in sorts] + ([having] if having is not None else [])
    outer_aggregates = scope.aggregates.keys if scope.aggregates is not None else {}
    is_grouped = bool(node.group_clause or outer_aggregates) or having is not None
    if not is_grouped and not any(_has_aggregate(expression) for expression in expressions):
        return None
    named = dict[int, Expression]()
    clause = read_sets(node, lambda element: _remembered(_item(analyser.context, element, targets, scope), targets, named))
    groups = _Groups(analyser, source, multiplied(clause, distinct=node.group_distinct), outer_aggregates)
    if len(groups.sets) > 1 and len(set(named.values())) < len(named):
        raise not_supported("grouping sets of columns of the SELECT list that have equal expressions are not supported")
    targets = [replace(target, expression=groups.over_groups(target.expression)) for target in targets]
    sorts = [replace(sort_item, expression=groups.over_groups(sort_item.expression)) for sort_item in sorts]
    over_groups = None if having is None else groups.over_groups(having)
    if groups.aggregates and any(isinstance(part, CteItem) and part.cte.is_working_table for part in _parts(source)):
        message = "aggregate functions are not allowed in a recursive query's recursive term"
        raise PostgresError("42P19", message, location=next(iter(groups.aggregates)).location)
    sets = tuple(map(tuple, groups.sets))
    grouped = Grouped(clause, node.group_distinct, sets, groups.items, groups.masks, groups.aggregates, groups.dependent, over_groups)
    return GroupedQuery(grouped, targets, sorts)


def _parts(item: FromItem) -> Iterator[FromItem]:
    """Yield a FROM clause and the items that it joins at its own level."""
    yield item
    match item:
        case JoinItem(left=left, right=right):
            yield from _parts(left)
            yield from _parts(right)
        case AliasItem(item=inner) | FunctionItem(left=FromItem() as inner):
            yield from _parts(inner)
        case _:
            pass


def _has_aggregate(expression: Expression) -> bool:
    return any(isinstance(node, (Aggregate, Grouping)) for node in walk(expression))


def _item(context: BindContext, node: ParseNode, targets: Sequence[SelectItem], scope: Scope) -> Expression:
    """Bind an item of GROUP BY: a position in the SELECT list, a column of FROM, an output name, or an expression."""
    inner = unwrap(node)
    place = ordering.place_of(inner, len(targets), "GROUP BY")
    context = context.within(construct="GROUP BY")
    if place is not None:
        expression = targets[place].expression
    else:
        name = ordering.plain_name(inner)
        named = [target for target in targets if target.name == name] if name is not None else []
        in_scope = any(column.name == name for table in scope.tables for column in table.columns)
        expression = named[0].expression if named and not in_scope else binder.bind(inner, scope, context=context)
    _refuse_calls(expression, context)
    resolved = resolve_unknown(expression, context)
    sort_operator.require_equality(resolved)
    return resolved


def _remembered(expression: Expression, targets: Sequence[SelectItem], named: dict[int, Expression]) -> Expression:
    """Return an item of GROUP BY. Add it to `named`, by its place, if it is an item of the SELECT list that is named there."""
    place = next((place for place, target in enumerate(targets) if target.expression is expression), None)
    if place is not None:
        named[place] = expression
    return expression


def _refuse_calls(expression: Expression, context: BindContext) -> None:
    """Raise an error if an output column that GROUP BY names contains an aggregate or a window function."""
    for node in walk(expression):
        if isinstance(node, (Aggregate, Grouping)):
            raise PostgresError("42803", "aggregate functions are not allowed in GROUP BY", location=node.location)
        if isinstance(node, WindowCall):
            raise PostgresError("42P20", "window functions are not allowed in GROUP BY", location=node.location)


class _Groups:
    """The groups of a query and the values that are computed over them."""

    def __init__(
        self, analyser: Analyser, source: FromItem, sets: Sequence[Sequence[Expression]], aggregates: Mapping[Expression, str]
    ) -> None:
        """`aggregates`: those that subqueries call, with the keys of their columns."""
        self.analyser = analyser
        self.source = source
        self.sets = sets
        self.items = {item: analyser.key("group") for grouping_set in sets for item in grouping_set}
        self.masks: dict[Grouping, str] = {}
        self.aggregates = {node: key for node, key in aggregates.items() if isinstance(node, Aggregate)}
        self._own = {column.key for table in source.all_tables for column in table.columns} | {column.key for column in source.star}
        self.dependent: dict[ColumnRef, str] = {}
        self._columns = {item.key: key for item, key in self.items.items() if isinstance(item, ColumnRef) and not item.levels_up}
        """The grouped columns by their keys: a column that JOIN … USING merged may have the key of that of a side, with another name."""

    def over_groups(self, expression: Expression) -> Expression:
        """Return the expression with aggregates and grouped items replaced by columns of the grouped frame, also in subqueries."""
        return rewriting.rewrite(expression, self._substitute)

    def _in_subquery(self, node: Expression) -> Expression | None:
        """Return the column of the groups for a column of this query that a subquery names, or None for any other node."""
        if not isinstance(node, ColumnRef) or not node.levels_up or node.key not in self._own:
            return None
        own = replace(node, levels_up=0)
        if len(self.sets) > 1:
            raise not_supported(
                "a subquery that names columns of a query with several grouping sets is not supported", location=node.location
            )
        if own in self.items:
            return replace(node, name="group", key=self.items[own])
        if not self._depends_on_key(own):
            message = f'subquery uses ungrouped column "{node.qualifier}.{node.name}" from outer query'
            raise PostgresError("42803", message, location=node.location)
        return replace(node, key=self.dependent.setdefault(own, self.analyser.key("dependent")))

    def _substitute(self, node: Expression) -> Expression | None:
        if node in self.items:
            return ColumnRef(type=node.type, name="group", attnum=1, key=self.items[node], location=node.location)
        if isinstance(node, SubLink) and (sublink := rewritten_sublink(node, self._in_subquery, self._substitute)) is not None:
            return sublink
        if isinstance(node, Grouping):
            return self._mask(node)
        if isinstance(node, Aggregate):
            key = self.aggregates.setdefault(node, self.analyser.key("aggregate"))
            return ColumnRef(type=node.type, name="aggregate", attnum=1, key=key, location=node.location)
        if isinstance(node, ColumnRef) and not node.levels_up:
            return self._column(node)
        return None

    def _mask(self, node: Grouping) -> Expression:
        if any(argument not in self.items for argument in node.args):
            message = "arguments to GROUPING must be grouping expressions of the associated query level"
            raise PostgresError("42803", message, position=node.location + 1 if node.location >= 0 else None)
        key = self.masks.setdefault(node, self.analyser.key("grouping"))
        return ColumnRef(type=node.type, name="grouping", attnum=1, key=key, location=node.location)

    def _column(self, node: ColumnRef) -> Expression:
        grouped = self._columns.get(node.key)
        if grouped is not None:
            return ColumnRef(type=node.type, name="group", attnum=1, key=grouped, location=node.location)
        if not self._depends_on_key(node):
            tables = (table.name for table in self.source.tables if any(column.key == node.key for column in table.columns))
            qualifier = node.qualifier or next(tables, "")
            shown = f"{qualifier}.{node.name}" if qualifier else node.name
            raise PostgresError(
                "42803",
                f'column "{shown}" must appear in the GROUP BY clause or be used in an aggregate function',
                position=node.location + 1 if node.location >= 0 else None,
            )
        key = self.dependent.setdefault(node, self.analyser.key("dependent"))
        return replace(node, key=key)

    def _depends_on_key(self, node: ColumnRef) -> bool:
        table = next(
            (scope_table for scope_table in self.source.tables if any(column.key == node.key for column in scope_table.columns)), None
        )
        if table is None or not table.relation:
            return False
        relation = self.analyser.names.relation_of_oid(table.relation)
        if relation is None or not any(index.primary and index.immediate for index in relation.indexes):
            return False
        grouped = {item.key for item in self.items if isinstance(item, ColumnRef)}
        keys = {column.key for column in table.columns if column.attnum in relation.primary_key}
        return bool(keys) and keys <= grouped
