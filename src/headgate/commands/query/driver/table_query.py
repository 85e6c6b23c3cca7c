"""Evaluate a SELECT of one table over rows that the driver holds: grouping, DISTINCT, ORDER BY, LIMIT, SELECT list.

Called by `answer`. `refusal` decides from the analysed query alone whether every function (`computation`) and aggregate of it is known. So
functions with side effects are never called here. Only then does `TableQuery.of` substitute parameters and session values.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headgate.analysis.query import Grouped, Limit, PlanColumn, Query, Select, Sort, reference
from headgate.commands.query.clause import ordering
from headgate.commands.query.driver import computation
from headgate.commands.query.driver.table_rows import HeldTable
from headgate.commands.query.driver.table_scan import Rows, keys_of
from headgate.expression import columnwise, columnwise_group
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Aggregate, ColumnRef, Expression
from headgate.expression.spark.session_time import SessionTime


@dataclass(frozen=True)
class _Groups:
    """GROUP BY: the items and aggregates by the keys of their columns, and HAVING over these."""

    items: Mapping[str, Expression]
    aggregates: Mapping[str, Aggregate]
    having: Expression | None


@dataclass(frozen=True)
class TableQuery:
    """A query of one table with substituted parameters. `condition` is the WHERE clause."""

    columns: tuple[PlanColumn, ...]
    condition: Expression | None
    groups: _Groups | None
    targets: tuple[Expression, ...]
    is_distinct: bool
    sorts: tuple[Sort, ...]
    limit: int | None
    offset: int
    time: SessionTime

    @classmethod
    def of(cls, table: HeldTable, query: Query, select: Select) -> TableQuery:
        """Prepare the clauses of an analysed query that `refusal` accepts."""
        limit = query.limit or Limit(None, None, with_ties=False)
        return cls(
            query.columns,
            None if select.where is None else table.prepared(select.where),
            None if select.grouped is None else _groups(table, select.grouped),
            tuple(table.prepared(target.expression) for target in select.targets),
            select.distinct,
            tuple(replace(sort, expression=table.prepared(sort.expression)) for sort in query.sorts),
            None if limit.count is None else _count(table, limit.count),
            0 if limit.offset is None else _count(table, limit.offset) or 0,
            table.time,
        )

    @property
    def keys(self) -> list[str]:
        """Return the keys of the table's columns that are needed from the rows that meet the condition."""
        if self.groups is not None:
            return keys_of([*self.groups.items.values(), *self.groups.aggregates.values()])
        return keys_of([*self.targets, *(sort.expression for sort in self.sorts)])

    @property
    def is_columnwise(self) -> bool:
        """Return whether Arrow has a form of every expression over the table's rows, so that there may be many."""
        condition = [] if self.condition is None else [self.condition]
        computed = [] if self.groups is not None else [*self.targets, *(sort.expression for sort in self.sorts)]
        return all(map(columnwise.is_known, [*condition, *computed]))

    @property
    def enough(self) -> int | None:
        """Return the number of rows that suffice, in any choice, or None if all rows are needed."""
        is_any = self.groups is None and not self.is_distinct and not self.sorts
        return self.limit + self.offset if is_any and self.limit is not None else None

    def values(self, rows: Rows) -> list[pa.Array]:
        """Return the values of the SELECT list over the rows that pass the condition."""
        try:
            return self._values(rows)
        except pa.ArrowException as error:
            raise NotColumnwise(type(error).__name__) from error

    def _values(self, rows: Rows) -> list[pa.Array]:
        if self.groups is not None:
            rows = Rows(*columnwise_group.groups(self.groups.items, self.groups.aggregates, rows.columns, rows.count))
            if self.groups.having is not None:
                rows = rows.filter(columnwise.condition(self.groups.having, rows.columns, rows.count))
        if self.is_distinct:
            rows = rows.take(self._first_of_equals(rows))
        if not self.sorts:
            rows = rows.slice(self.offset, self.limit)
            return [self._value(target, rows) for target in self.targets]
        # PostgreSQL computes the SELECT list before it sorts: it may raise for a row that LIMIT leaves out
        values = [self._value(target, rows) for target in self.targets]
        stop = None if self.limit is None else self.offset + self.limit
        places = self._places(rows)[self.offset : stop]
        return [array.take(places) for array in values]

    def _value(self, expression: Expression, rows: Rows) -> pa.Array:
        """Return the values of an expression. A column is returned unchanged, even if an aggregate returned a decimal."""
        if isinstance(expression, ColumnRef):
            return rows.columns[expression.key]
        return computation.value(expression, rows.columns, rows.count, self.time)

    def _first_of_equals(self, rows: Rows) -> pa.Array:
        """Return the place of one row of each set of rows whose SELECT lists are equal."""
        keys = {str(place): columnwise.group_key(target.type, self._value(target, rows)) for place, target in enumerate(self.targets)}
        numbered = pa.table({**keys, "row": pa.array(range(rows.count), pa.int64())})
        return numbered.group_by(list(keys)).aggregate([("row", "min")]).column("row_min").combine_chunks()

    def _places(self, rows: Rows) -> pa.Array:
        """Return the places of the rows in the order of ORDER BY."""
        columns, keys = {}, []
        for place, sort in enumerate(self.sorts):
            values = columnwise.sort_key(sort.expression.type, self._value(sort.expression, rows))
            if values.null_count:
                columns[f"null{place}"] = pc.is_null(values).cast(pa.int8())
                keys.append((f"null{place}", "descending" if sort.nulls_first else "ascending"))
            columns[f"value{place}"] = values
            keys.append((f"value{place}", "descending" if sort.descending else "ascending"))
        return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _groups(table: HeldTable, grouped: Grouped) -> _Groups:
    """Prepare the groups of a query. A column that depends on a grouped primary key becomes an additional item."""
    columns = {part.key: part for part in table.references}
    items = {key: table.prepared(item) for item, key in grouped.items.items()}
    items |= {key: table.prepared(columns[source.key]) for source, key in grouped.dependent.items()}
    aggregates = {}
    for aggregate, key in grouped.aggregates.items():
        prepared = table.prepared(aggregate)
        assert isinstance(prepared, Aggregate)
        aggregates[key] = prepared
    return _Groups(items, aggregates, None if grouped.having is None else table.prepared(grouped.having))


def refusal(query: Query, select: Select) -> str | None:
    """Return the reason why the driver cannot evaluate a query of one table, by the tree alone, or None if it can."""
    if select.on or (query.limit is not None and query.limit.with_ties):
        return "DISTINCT ON or WITH TIES"
    targets, sorts = [target.expression for target in select.targets], [sort.expression for sort in query.sorts]
    expressions, is_known = [*targets, *sorts], computation.is_known
    if select.where is not None and not computation.is_known(select.where):
        return "a function"
    computed: frozenset[str] = frozenset()
    if select.grouped is not None:
        grouped = select.grouped
        if len(grouped.sets) != 1 or grouped.masks:
            return "grouping sets"
        if not all(map(columnwise_group.is_known, grouped.aggregates)):
            return "an aggregate"
        columns = {column.key: reference(column) for column in select.source.star}
        if not all(map(columnwise.is_grouped, [*grouped.items, *(columns[source.key] for source in grouped.dependent)])):
            return "equal values that differ"
        expressions += [*grouped.items, *([] if grouped.having is None else [grouped.having])]
        computed, is_known = frozenset(grouped.aggregates.values()), computation.is_known_by_column
    if not all(map(is_known, expressions)):
        return "a function"
    if select.distinct and not all(_is_computed(target, computed) or columnwise.is_grouped(target) for target in targets):
        return "equal values that differ"
    if not all(_is_computed(sort, computed) or columnwise.is_ordered(sort) for sort in sorts):
        return "a type without an order"
    return None


def _is_computed(expression: Expression, aggregates: AbstractSet[str]) -> bool:
    """Return whether an expression is an aggregate. A sum is a decimal, although numeric is stored as text."""
    return isinstance(expression, ColumnRef) and expression.key in aggregates


def _count(table: HeldTable, value: Expression) -> int | None:
    """Return LIMIT or OFFSET, or None for NULL. Raise NotColumnwise if it is not a constant or is negative."""
    constant = ordering.constant_count(table.planner, value)
    if constant is None or (constant.value is not None and int(constant.value) < 0):
        raise NotColumnwise("LIMIT")
    return None if constant.value is None else int(constant.value)
