"""A call of an aggregate over the rows of a group, and the collection of those rows if their order or equality matters.

Built by `aggregate.build` for the aggregates of `expression.implementation.aggregate`. The rows of a group become one array of structs,
sorted by Spark: for each item of ORDER BY its rank among NULLs and its key (see `comparison.equal_keys`), then the keys of DISTINCT,
then the arguments as text.

If nothing is sorted, the texts are collected without structs, and each element of a joined result (arrays of scalars, json) is printed
row by row beforehand. Every additional list of a group's values would occupy the group's size in the Java heap once more, which Spark
does not account for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.builtin import Function
from headgate.expression.node import Aggregate, TypeRef
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import Env, Make, Value, settle

Filter = Callable[[Make], Make]


@dataclass(frozen=True)
class Ordering:
    """An item of ORDER BY inside an aggregate: the value, its type, its direction."""

    value: Value
    kind: TypeRef
    descending: bool
    nulls_first: bool


class AggregateCall:
    """The parts of an aggregate call.

    `function` is the aggregate, `values` its planned arguments of the types `kinds`. `order` is its own ORDER BY, or WITHIN GROUP.
    `apply_filter` makes a Column NULL for the rows that FILTER excludes.
    """

    def __init__(
        self, function: Function, node: Aggregate, values: Sequence[Value], order: Sequence[Ordering], apply_filter: Filter
    ) -> None:
        self.function = function
        self.node = node
        self.values = values
        self.kinds = [arg.type for arg in node.args]
        self.order = list(order)
        self.apply_filter = apply_filter

    def sorting(self) -> list[Ordering]:
        """Return the items of ORDER BY, followed by the arguments of DISTINCT, which PostgreSQL sorts to find equal ones."""
        if not self.node.distinct:
            return self.order
        return self.order + [Ordering(value, kind, False, False) for value, kind in zip(self.values, self.kinds, strict=True)]

    def rows(self, items: Sequence[Make], condition: Make | None = None) -> Make:
        """Return the array of structs with fields v0, v1, … built by `items`, of the rows for which `condition` is true."""
        sorting = self.sorting()
        down = bool(sorting) and sorting[0].descending
        mixed = any(ordering.descending != down for ordering in sorting)
        keys = [settle(equal_keys(ordering.value, ordering.kind)) for ordering in sorting]

        def struct(env: Env) -> Column:
            fields = []
            for place, (item, key) in enumerate(zip(sorting, keys, strict=True)):
                sort_key = key(env)
                high, low = (F.lit(1), F.lit(0)) if item.nulls_first == (down if not mixed else False) else (F.lit(0), F.lit(1))
                fields += [F.when(F.isnull(sort_key), high).otherwise(low).alias(f"n{place}"), sort_key.alias(f"k{place}")]
            fields += [item(env).alias(f"v{place}") for place, item in enumerate(items)]
            whole = F.struct(*fields)
            return whole if condition is None else F.when(condition(env), whole)

        gathered = self.apply_filter(struct)
        compare = _comparator(sorting)

        def make(env: Env) -> Column:
            collected = env.over(F.collect_list(gathered(env)))
            if mixed:
                collected = F.array_sort(collected, compare)
            elif sorting:
                collected = F.sort_array(collected, asc=not down)
            return self._once(collected) if self.node.distinct else collected

        return make

    def _once(self, rows: Column) -> Column:
        """Return the first of adjacent rows with equal arguments.

        Each row is compared with the preceding one, which is passed as an argument. Spark does not accept a lambda that captures the rows
        if a key is computed in Python.
        """
        first = len(self.order)
        places = range(first, first + len(self.values))

        def differing(row: Column, before: Column) -> Column:
            differs = F.isnull(before)
            for place in places:
                differs = differs | ~row[f"k{place}"].eqNullSafe(before[f"k{place}"])
            return F.when(differs, row)

        return F.filter(F.zip_with(rows, F.concat(F.array(F.lit(None)), rows), differing), F.isnotnull)

    def texts(self, item: Make, condition: Make | None = None) -> Make:
        """Return the array of the texts that `item` builds. With `condition`, only rows for which it is true, and no NULLs."""
        if self.sorting():
            rows = self.rows([item], condition)
            return lambda env: texts_of(rows(env))
        bare = self.apply_filter(item if condition is None else lambda env: F.when(condition(env), item(env)))
        return lambda env: env.over(F.collect_list(bare(env)))

    def item(self, place: int = 0) -> Make:
        return settle(as_item(self.values[place], self.kinds[place]))


def _comparator(sorting: Sequence[Ordering]) -> Callable[[Column, Column], Column]:
    def compare(left: Column, right: Column) -> Column:
        order: Column | None = None
        for place, item in enumerate(sorting):
            less, more = (F.lit(1), F.lit(-1)) if item.descending else (F.lit(-1), F.lit(1))
            for name, if_less, if_greater in ((f"n{place}", F.lit(-1), F.lit(1)), (f"k{place}", less, more)):
                when = F.when if order is None else order.when
                order = when(left[name] < right[name], if_less).when(left[name] > right[name], if_greater)
        return F.lit(0) if order is None else order.otherwise(F.lit(0))

    return compare


def texts_of(rows: Column, place: int = 0) -> Column:
    return F.transform(rows, lambda row: row[f"v{place}"])
