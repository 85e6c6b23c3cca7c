"""GROUP BY, aggregates and HAVING.

`read` splits the SELECT list, HAVING and ORDER BY into aggregates, which are computed over the groups, and expressions over the groups'
columns. An expression that equals an item of GROUP BY references that item. Any other column raises 42803, unless the query groups by the
primary key of its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from postgast import pg_query_pb2 as pb
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.catalog.relation import relation as relations
from headgate.commands.query.clause import grouping_sets, ordering
from headgate.commands.query.clause.select_list import SelectItem
from headgate.commands.query.evaluation import lit_null
from headgate.commands.query.plan import Sort, Source, col
from headgate.errors import PostgresError
from headgate.expression import rewriting
from headgate.expression.binding import binder
from headgate.expression.binding.coercion import resolve_unknown
from headgate.expression.binding.scope import Scope
from headgate.expression.implementation.implementations import gathers
from headgate.expression.node import Aggregate, ColumnRef, Expression, Grouping, walk
from headgate.sql.parser import ParseNode, unwrap

if TYPE_CHECKING:
    from headgate.commands.query.planner import Planner

Grouped = tuple[Source, list[SelectItem], list[Sort]]


@dataclass(frozen=True)
class GroupedQuery:
    """The groups of a query, and its SELECT list, sort items and HAVING as expressions over the columns of the groups."""

    groups: Groups
    targets: list[SelectItem]
    sorts: list[Sort]
    having: Expression | None


def read(
    planner: Planner, node: pb.SelectStmt, source: Source, scope: Scope, targets: Sequence[SelectItem], sorts: Sequence[Sort]
) -> GroupedQuery | None:
    """Resolve GROUP BY, aggregates and HAVING; return None if the query does not group."""
    having = None
    context = planner.context.within(construct="HAVING", aggregates=True)
    if node.HasField("having_clause"):
        having = binder.bind_condition(node.having_clause, scope, "HAVING", context=context)
    expressions = [item.expression for item in targets] + [item.expression for item in sorts] + ([having] if having is not None else [])
    if not node.group_clause and having is None and not any(_has_aggregate(expression) for expression in expressions):
        return None
    groups = Groups(planner, source, grouping_sets.read(node, lambda item: _item(planner, item, targets, scope)))
    return GroupedQuery(
        groups,
        [replace(target, expression=groups.over_groups(target.expression)) for target in targets],
        [replace(sort_item, expression=groups.over_groups(sort_item.expression)) for sort_item in sorts],
        None if having is None else groups.over_groups(having),
    )


def group(
    planner: Planner, node: pb.SelectStmt, source: Source, scope: Scope, targets: Sequence[SelectItem], sorts: Sequence[Sort]
) -> Grouped | None:
    """Return the source, targets and sort items after grouping, or None if the query does not group."""
    query = read(planner, node, source, scope, targets, sorts)
    if query is None:
        return None
    frame = query.groups.frame()
    if query.having is not None:
        frame = frame.where(planner.evaluation.filter(query.having))
    return Source(frame, source.tables, ()), query.targets, query.sorts


def _has_aggregate(expression: Expression) -> bool:
    return any(isinstance(node, (Aggregate, Grouping)) for node in walk(expression))


def _item(planner: Planner, node: ParseNode, targets: Sequence[SelectItem], scope: Scope) -> Expression:
    """Bind an item of GROUP BY: a position in the SELECT list, a column of FROM, an output name, or an expression."""
    inner = unwrap(node)
    place = ordering.group_place(inner, targets)
    context = planner.context.within(construct="GROUP BY")
    if place is not None:
        expression = targets[place].expression
    else:
        name = ordering.plain_name(inner)
        named = [target for target in targets if target.name == name] if name is not None else []
        in_scope = any(column.name == name for table in scope.tables for column in table.columns)
        expression = named[0].expression if named and not in_scope else binder.bind(inner, scope, context=context)
    if _has_aggregate(expression):
        raise PostgresError("42803", "aggregate functions are not allowed in GROUP BY")
    resolved = resolve_unknown(expression, context)
    ordering.require_equality(resolved)
    return resolved


class Groups:
    """The groups of a query and the values that are computed over them."""

    def __init__(self, planner: Planner, source: Source, sets: Sequence[Sequence[Expression]]) -> None:
        self.planner = planner
        self.source = source
        self.sets = sets
        self.items = {item: planner.key("group") for grouping_set in sets for item in grouping_set}
        self.masks: dict[Grouping, str] = {}
        self.aggregates: dict[Aggregate, str] = {}
        self.dependent: dict[str, str] = {}

    def over_groups(self, expression: Expression) -> Expression:
        """Return the expression with aggregates and grouped items replaced by columns of the grouped frame."""
        return rewriting.rewrite(expression, self._substitute)

    def _substitute(self, node: Expression) -> Expression | None:
        if node in self.items:
            return ColumnRef(type=node.type, name="group", attnum=1, key=self.items[node], location=node.location)
        if isinstance(node, Grouping):
            return self._mask(node)
        if isinstance(node, Aggregate):
            node = self._in_order(node)
            key = self.aggregates.setdefault(node, self.planner.key("aggregate"))
            return ColumnRef(type=node.type, name="aggregate", attnum=1, key=key, location=node.location)
        if isinstance(node, ColumnRef) and not node.levels_up:
            return self._column(node)
        return None

    def _mask(self, node: Grouping) -> Expression:
        if any(argument not in self.items for argument in node.args):
            message = "arguments to GROUPING must be grouping expressions of the associated query level"
            raise PostgresError("42803", message, position=node.location + 1 if node.location >= 0 else None)
        key = self.masks.setdefault(node, self.planner.key("grouping"))
        return ColumnRef(type=node.type, name="grouping", attnum=1, key=key, location=node.location)

    def _in_order(self, node: Aggregate) -> Aggregate:
        """Return the aggregate with the order of a sorted subquery in FROM, if it depends on the order and has no ORDER BY."""
        if node.order or node.distinct or not self.source.sorts or not gathers(node.function):
            return node
        return replace(
            node, order=tuple((sort_item.expression, sort_item.descending, sort_item.nulls_first) for sort_item in self.source.sorts)
        )

    def _column(self, node: ColumnRef) -> Expression:
        if not self._depends_on_key(node):
            table = f"{node.qualifier}." if node.qualifier else ""
            raise PostgresError(
                "42803",
                f'column "{table}{node.name}" must appear in the GROUP BY clause or be used in an aggregate function',
                position=node.location + 1 if node.location >= 0 else None,
            )
        key = self.dependent.setdefault(node.key, self.planner.key("dependent"))
        return replace(node, key=key)

    def _depends_on_key(self, node: ColumnRef) -> bool:
        table = next(
            (scope_table for scope_table in self.source.tables if any(column.key == node.key for column in scope_table.columns)), None
        )
        if table is None or not table.relation:
            return False
        database = self.planner.session.context.database
        relation = relations.find(self.planner.transaction.cursor, database, table.relation)
        if relation is None or not relation.primary_key:
            return False
        grouped = {item.key for item in self.items if isinstance(item, ColumnRef)}
        keys = {column.key for column in table.columns if column.attnum in relation.primary_key}
        return bool(keys) and keys <= grouped

    def frame(self) -> DataFrame:
        """Return the grouped frame: one row per group, with the items, the aggregates and the columns that depend on the primary key."""
        if len(self.sets) == 1:
            return self._grouped(self.sets[0])
        whole: DataFrame | None = None
        for grouping_set in self.sets:
            grouped = self._grouped(grouping_set)
            whole = grouped if whole is None else whole.unionByName(grouped)
        assert whole is not None
        return whole

    def _grouped(self, items: Sequence[Expression]) -> DataFrame:
        """Return the rows of one grouping set. The items of the other sets are NULL."""
        planner = self.planner
        results: list[Column] = [planner.column(aggregate).alias(key) for aggregate, key in self.aggregates.items()]
        results += [F.first(col(source)).alias(key) for source, key in self.dependent.items()]
        missing = [lit_null(item.type).alias(key) for item, key in self.items.items() if item not in items]
        masks = [self._bits(grouping, items).alias(key) for grouping, key in self.masks.items()]
        if not items:
            single_row = self.source.frame.select(*(results or [F.count(F.lit(1)).alias(planner.key("count"))]))
            selected = [col(key) for key in (*self.aggregates.values(), *self.dependent.values())]
            return single_row.select(*selected, *missing, *masks) if missing or masks else single_row
        keys: list[Column] = []
        for item in items:
            key = self.items[item]
            if ordering.plain_equality(item.type):
                keys.append(planner.column(item).alias(key))
            else:  # equal values that print differently (1.0 and 1.00) are one group, which shows one of them
                keys.append(ordering.sort_key(planner, item).alias(planner.key("key")))
                results.append(F.first(planner.column(item)).alias(key))
        grouped = self.source.frame.groupBy(*keys)
        frame = grouped.agg(*results) if results else grouped.agg(F.count(F.lit(1)).alias(planner.key("count")))
        if len(self.sets) == 1 and not masks:
            return frame
        selected = [col(key) for key in (*self.aggregates.values(), *self.dependent.values(), *(self.items[item] for item in items))]
        return frame.select(*selected, *missing, *masks)

    def _bits(self, node: Grouping, items: Sequence[Expression]) -> Column:
        bits = 0
        for argument in node.args:
            bits = bits * 2 + (argument not in items)
        return F.lit(bits)
