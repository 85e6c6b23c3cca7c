"""GROUP BY, aggregates and HAVING.

`read` splits what the SELECT list, HAVING and ORDER BY ask into aggregates, computed over the groups, and expressions over
the groups' columns. An expression equal to an item of GROUP BY is that item; a column that is neither is 42803, unless the
primary key of its table is grouped by.
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
    wanted = [each.expression for each in targets] + [each.expression for each in sorts] + ([having] if having is not None else [])
    if not node.group_clause and having is None and not any(_has_aggregate(each) for each in wanted):
        return None
    groups = Groups(planner, source, grouping_sets.read(node, lambda each: _item(planner, each, targets, scope)))
    return GroupedQuery(
        groups,
        [replace(each, expression=groups.over_groups(each.expression)) for each in targets],
        [replace(each, expression=groups.over_groups(each.expression)) for each in sorts],
        None if having is None else groups.over_groups(having),
    )


def group(
    planner: Planner, node: pb.SelectStmt, source: Source, scope: Scope, targets: Sequence[SelectItem], sorts: Sequence[Sort]
) -> Grouped | None:
    """The source, targets and sort items after grouping; None where the query does not group."""
    found = read(planner, node, source, scope, targets, sorts)
    if found is None:
        return None
    frame = found.groups.frame()
    if found.having is not None:
        frame = frame.where(planner.evaluation.filter(found.having))
    return Source(frame, source.tables, ()), found.targets, found.sorts


def _has_aggregate(expression: Expression) -> bool:
    return any(isinstance(each, (Aggregate, Grouping)) for each in walk(expression))


def _item(planner: Planner, node: ParseNode, targets: Sequence[SelectItem], scope: Scope) -> Expression:
    """An item of GROUP BY: a place in the SELECT list, a column of FROM, an output name, or an expression."""
    inner = unwrap(node)
    place = ordering.group_place(inner, targets)
    context = planner.context.within(construct="GROUP BY")
    if place is not None:
        expression = targets[place].expression
    else:
        name = ordering.plain_name(inner)
        named = [each for each in targets if each.name == name] if name is not None else []
        in_scope = any(column.name == name for table in scope.tables for column in table.columns)
        expression = named[0].expression if named and not in_scope else binder.bind(inner, scope, context=context)
    if _has_aggregate(expression):
        raise PostgresError("42803", "aggregate functions are not allowed in GROUP BY")
    known = resolve_unknown(expression, context)
    ordering.require_equality(known)
    return known


class Groups:
    """The groups of one query and what is computed over them."""

    def __init__(self, planner: Planner, source: Source, sets: Sequence[Sequence[Expression]]) -> None:
        self.planner = planner
        self.source = source
        self.sets = sets
        self.items = {item: planner.key("group") for each in sets for item in each}
        self.masks: dict[Grouping, str] = {}
        self.aggregates: dict[Aggregate, str] = {}
        self.dependent: dict[str, str] = {}

    def over_groups(self, expression: Expression) -> Expression:
        """The expression with aggregates and grouped items as columns of the grouped frame."""
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
        if any(each not in self.items for each in node.args):
            message = "arguments to GROUPING must be grouping expressions of the associated query level"
            raise PostgresError("42803", message, position=node.location + 1 if node.location >= 0 else None)
        key = self.masks.setdefault(node, self.planner.key("grouping"))
        return ColumnRef(type=node.type, name="grouping", attnum=1, key=key, location=node.location)

    def _in_order(self, node: Aggregate) -> Aggregate:
        """An aggregate that gathers values, without an order of its own, takes them as a sorted subquery in FROM gives them."""
        if node.order or node.distinct or not self.source.sorts or not gathers(node.function):
            return node
        return replace(node, order=tuple((each.expression, each.descending, each.nulls_first) for each in self.source.sorts))

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
        table = next((each for each in self.source.tables if any(column.key == node.key for column in each.columns)), None)
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
        """The grouped frame: a row per group with the items, the aggregates and the columns that depend on the key."""
        if len(self.sets) == 1:
            return self._grouped(self.sets[0])
        whole: DataFrame | None = None
        for each in self.sets:
            one = self._grouped(each)
            whole = one if whole is None else whole.unionByName(one)
        assert whole is not None
        return whole

    def _grouped(self, items: Sequence[Expression]) -> DataFrame:
        """The rows of one grouping set; the other sets' items are NULL in them."""
        planner = self.planner
        results: list[Column] = [planner.column(each).alias(key) for each, key in self.aggregates.items()]
        results += [F.first(col(source)).alias(key) for source, key in self.dependent.items()]
        missing = [lit_null(item.type).alias(key) for item, key in self.items.items() if item not in items]
        masks = [self._bits(each, items).alias(key) for each, key in self.masks.items()]
        if not items:
            found = self.source.frame.select(*(results or [F.count(F.lit(1)).alias(planner.key("count"))]))
            wanted = [col(key) for key in (*self.aggregates.values(), *self.dependent.values())]
            return found.select(*wanted, *missing, *masks) if missing or masks else found
        keys: list[Column] = []
        for item in items:
            key = self.items[item]
            if ordering.plain_equality(item.type):
                keys.append(planner.column(item).alias(key))
            else:  # values that are equal but print differently (1.0 and 1.00) are one group, shown as one of them
                keys.append(ordering.sort_key(planner, item).alias(planner.key("key")))
                results.append(F.first(planner.column(item)).alias(key))
        grouped = self.source.frame.groupBy(*keys)
        found = grouped.agg(*results) if results else grouped.agg(F.count(F.lit(1)).alias(planner.key("count")))
        if len(self.sets) == 1 and not masks:
            return found
        wanted = [col(key) for key in (*self.aggregates.values(), *self.dependent.values(), *(self.items[item] for item in items))]
        return found.select(*wanted, *missing, *masks)

    def _bits(self, node: Grouping, items: Sequence[Expression]) -> Column:
        bits = 0
        for each in node.args:
            bits = bits * 2 + (each not in items)
        return F.lit(bits)
