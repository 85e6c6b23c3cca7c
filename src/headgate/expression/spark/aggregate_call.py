"""A call of an aggregate over the rows of a group, and how those are gathered where their order or their equality matters.

Used by the aggregates of `expression.implementation.aggregate`; made by `aggregate.build`. The rows of a group become one array of structs,
sorted by Spark itself: for each item of ORDER BY its rank among NULLs and its key (see `comparison.equal_keys`), then the keys of DISTINCT,
then the arguments as text.

Where nothing is sorted the texts are gathered bare, and what is joined of them (arrays of scalars, json) is written row by row before: each
list of a group's values beside it is one more time the group in Java's heap, which Spark does not account for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from headgate.expression.builtin import Function
from headgate.expression.node import Aggregate, TypeRef
from headgate.expression.spark.array_element import as_item
from headgate.expression.spark.comparison import equal_keys
from headgate.expression.spark.value import Env, Make, Value, settle

Kept = Callable[[Make], Make]


@dataclass(frozen=True)
class Ordering:
    """An item of ORDER BY inside an aggregate: the value, its type, its direction."""

    value: Value
    kind: TypeRef
    descending: bool
    nulls_first: bool


class AggregateCall:
    """What an aggregate call is made of.

    `found`: the aggregate; `values`: its planned arguments, of the types `kinds`; `order`: what its own ORDER BY, or WITHIN GROUP, sorts
    by; `kept`: makes a Column NULL for the rows that FILTER leaves out.
    """

    def __init__(self, found: Function, node: Aggregate, values: Sequence[Value], order: Sequence[Ordering], kept: Kept) -> None:
        self.found = found
        self.node = node
        self.values = values
        self.kinds = [each.type for each in node.args]
        self.order = list(order)
        self.kept = kept

    def sorting(self) -> list[Ordering]:
        """ORDER BY, and behind it the arguments of DISTINCT, which PostgreSQL sorts to find equal ones."""
        if not self.node.distinct:
            return self.order
        return self.order + [Ordering(value, kind, False, False) for value, kind in zip(self.values, self.kinds, strict=True)]

    def rows(self, items: Sequence[Make], wanted: Make | None = None) -> Make:
        """The array of structs with fields v0, v1, … made by `items`; only rows where `wanted` holds."""
        sorting = self.sorting()
        down = bool(sorting) and sorting[0].descending
        mixed = any(each.descending != down for each in sorting)
        keys = [settle(equal_keys(each.value, each.kind)) for each in sorting]

        def struct(env: Env) -> Column:
            fields = []
            for place, (item, key) in enumerate(zip(sorting, keys, strict=True)):
                made = key(env)
                high, low = (F.lit(1), F.lit(0)) if item.nulls_first == (down if not mixed else False) else (F.lit(0), F.lit(1))
                fields += [F.when(F.isnull(made), high).otherwise(low).alias(f"n{place}"), made.alias(f"k{place}")]
            fields += [item(env).alias(f"v{place}") for place, item in enumerate(items)]
            whole = F.struct(*fields)
            return whole if wanted is None else F.when(wanted(env), whole)

        gathered = self.kept(struct)
        compare = _comparator(sorting)

        def make(env: Env) -> Column:
            found = env.over(F.collect_list(gathered(env)))
            if mixed:
                found = F.array_sort(found, compare)
            elif sorting:
                found = F.sort_array(found, asc=not down)
            return self._once(found) if self.node.distinct else found

        return make

    def _once(self, rows: Column) -> Column:
        """Of neighbours with equal arguments the first.

        Each row meets the one before it as an argument: Spark takes no lambda that holds the rows themselves where Python makes a key.
        """
        first = len(self.order)
        places = range(first, first + len(self.values))

        def differing(row: Column, before: Column) -> Column:
            made = F.isnull(before)
            for place in places:
                made = made | ~row[f"k{place}"].eqNullSafe(before[f"k{place}"])
            return F.when(made, row)

        return F.filter(F.zip_with(rows, F.concat(F.array(F.lit(None)), rows), differing), F.isnotnull)

    def texts(self, item: Make, wanted: Make | None = None) -> Make:
        """The array of the texts that `item` makes, which are not NULL where `wanted` holds."""
        if self.sorting():
            rows = self.rows([item], wanted)
            return lambda env: texts_of(rows(env))
        bare = self.kept(item if wanted is None else lambda env: F.when(wanted(env), item(env)))
        return lambda env: env.over(F.collect_list(bare(env)))

    def item(self, place: int = 0) -> Make:
        """An argument as text."""
        return settle(as_item(self.values[place], self.kinds[place]))


def _comparator(sorting: Sequence[Ordering]) -> Callable[[Column, Column], Column]:
    def compare(left: Column, right: Column) -> Column:
        made: Any = None
        for place, item in enumerate(sorting):
            less, more = (F.lit(1), F.lit(-1)) if item.descending else (F.lit(-1), F.lit(1))
            for name, one, other in ((f"n{place}", F.lit(-1), F.lit(1)), (f"k{place}", less, more)):
                chain = F if made is None else made
                made = chain.when(left[name] < right[name], one).when(left[name] > right[name], other)
        column: Column = made.otherwise(F.lit(0))
        return column

    return compare


def texts_of(rows: Column, place: int = 0) -> Column:
    """The texts of a field of gathered rows."""
    return F.transform(rows, lambda row: row[f"v{place}"])
