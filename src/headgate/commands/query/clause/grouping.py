"""GROUP BY and HAVING on frames: one row per group, with its items and aggregates under the keys of the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.analysis.query import Grouped
from headgate.commands.query import row_by_row
from headgate.commands.query.clause import ordering, volatile_call
from headgate.commands.query.evaluation import lit_null
from headgate.commands.query.plan import Source, col
from headgate.commands.query.planner import Planner
from headgate.expression import rewriting
from headgate.expression.implementation.implementations import gathers
from headgate.expression.implementation.system import has_volatile
from headgate.expression.node import Aggregate, Expression, Grouping


def group(planner: Planner, grouped: Grouped, source: Source) -> Source:
    """Return the groups that meet HAVING: the items, the aggregates and the columns that depend on the primary key."""
    grouped, source = _compute_calls(planner, grouped, source)
    groups = _Groups(planner, grouped, source).frame()
    return Source(groups if grouped.having is None else row_by_row.filtered(planner.evaluation, groups, grouped.having), source.tables, ())


def _compute_calls(planner: Planner, grouped: Grouped, source: Source) -> tuple[Grouped, Source]:
    """Return the groups and their source after the calls in items and aggregates that have one value for each row of the source."""
    parts = [*grouped.items, *(part for aggregate in grouped.aggregates for part in aggregate.children())]
    called = list(dict.fromkeys(part for part in parts if row_by_row.calls_session(part) or has_volatile(part)))
    if not called:
        return grouped, source
    frame, values = volatile_call.compute(planner, source.frame, called)
    places = dict(zip(called, values, strict=True))
    items = {places.get(item, item): key for item, key in grouped.items.items()}
    aggregates = {}
    for aggregate, key in grouped.aggregates.items():
        changed = rewriting.rewrite(aggregate, places.get)
        assert isinstance(changed, Aggregate)
        aggregates[changed] = key
    sets = tuple(tuple(places.get(item, item) for item in grouping_set) for grouping_set in grouped.sets)
    return replace(grouped, sets=sets, items=items, aggregates=aggregates), replace(source, frame=frame)


class _Groups:
    def __init__(self, planner: Planner, grouped: Grouped, source: Source) -> None:
        self.planner, self.grouped, self.source = planner, grouped, source

    def _in_order(self, node: Aggregate) -> Aggregate:
        """Return the aggregate with the order of a sorted subquery in FROM, if it depends on the order and has no ORDER BY."""
        if node.order or node.distinct or not self.source.sorts or not gathers(node.function):
            return node
        return replace(
            node, order=tuple((sort_item.expression, sort_item.descending, sort_item.nulls_first) for sort_item in self.source.sorts)
        )

    def frame(self) -> DataFrame:
        """Return the grouped frame: one row per group, with the items, the aggregates and the columns that depend on the primary key."""
        if len(self.grouped.sets) == 1:
            return self._group(self.grouped.sets[0])
        whole: DataFrame | None = None
        for grouping_set in self.grouped.sets:
            grouped = self._group(grouping_set)
            whole = grouped if whole is None else whole.unionByName(grouped)
        assert whole is not None
        return whole

    def _group(self, items: Sequence[Expression]) -> DataFrame:
        """Return the rows of one grouping set. The items of the other sets are NULL."""
        planner = self.planner
        results: list[Column] = [planner.column(self._in_order(aggregate)).alias(key) for aggregate, key in self.grouped.aggregates.items()]
        results += [F.first(col(source.key)).alias(key) for source, key in self.grouped.dependent.items()]
        missing = [lit_null(item.type).alias(key) for item, key in self.grouped.items.items() if item not in items]
        masks = [self._bits(grouping, items).alias(key) for grouping, key in self.grouped.masks.items()]
        if not items:
            single_row = self.source.frame.select(*(results or [F.count(F.lit(1)).alias(planner.key("count"))]))
            selected = [col(key) for key in (*self.grouped.aggregates.values(), *self.grouped.dependent.values())]
            return single_row.select(*selected, *missing, *masks) if missing or masks else single_row
        keys: list[Column] = []
        for item in items:
            key = self.grouped.items[item]
            if ordering.plain_equality(item.type):
                keys.append(planner.column(item).alias(key))
            else:  # equal values that print differently (1.0 and 1.00) are one group, which shows one of them
                keys.append(ordering.sort_key(planner, item).alias(planner.key("key")))
                results.append(F.first(planner.column(item)).alias(key))
        grouped = self.source.frame.groupBy(*keys)
        frame = grouped.agg(*results) if results else grouped.agg(F.count(F.lit(1)).alias(planner.key("count")))
        if len(self.grouped.sets) == 1 and not masks:
            return frame
        selected = [
            col(key)
            for key in (*self.grouped.aggregates.values(), *self.grouped.dependent.values(), *(self.grouped.items[item] for item in items))
        ]
        return frame.select(*selected, *missing, *masks)

    def _bits(self, node: Grouping, items: Sequence[Expression]) -> Column:
        bits = 0
        for argument in node.args:
            bits = bits * 2 + (argument not in items)
        return F.lit(bits)
