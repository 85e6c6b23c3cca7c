"""Evaluate a SELECT of one table over rows that the driver holds: grouping, DISTINCT, ORDER BY, LIMIT, SELECT list.

Called by `single_table`. `TableQuery.of` decides from the analysed query alone whether Arrow supports every function and aggregate of it,
and raises `NotColumnwise` if not. Only then are parameters and session values substituted and rows read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headgate.analysis.query import Grouped, Limit, PlanColumn, Query, Select, SelectItem, Sort
from headgate.commands.query.clause import ordering
from headgate.commands.query.driver.table_rows import HeldTable
from headgate.commands.query.driver.table_scan import Rows, keys_of
from headgate.expression import columnwise, columnwise_group
from headgate.expression.implementation.implementation import NotColumnwise
from headgate.expression.node import Aggregate, ColumnRef, Expression


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

    @classmethod
    def of(cls, table: HeldTable, query: Query, select: Select) -> TableQuery:
        """Prepare the clauses of an analysed query."""
        if select.on:
            raise NotColumnwise("DISTINCT ON")
        groups = None if select.grouped is None else _groups(table, select.grouped)
        _require_keys(select.targets if select.distinct else (), query.sorts, {} if groups is None else groups.aggregates)
        limit = query.limit or Limit(None, None, with_ties=False)
        if limit.with_ties:
            raise NotColumnwise("WITH TIES")
        return cls(
            query.columns,
            None if select.where is None else _prepared(table, select.where),
            groups,
            tuple(_prepared(table, target.expression) for target in select.targets),
            select.distinct,
            tuple(replace(sort, expression=_prepared(table, sort.expression)) for sort in query.sorts),
            None if limit.count is None else _count(table, limit.count),
            0 if limit.offset is None else _count(table, limit.offset) or 0,
        )

    @property
    def keys(self) -> list[str]:
        """Return the keys of the table's columns that are needed from the rows that meet the condition."""
        if self.groups is not None:
            return keys_of([*self.groups.items.values(), *self.groups.aggregates.values()])
        return keys_of([*self.targets, *(sort.expression for sort in self.sorts)])

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
            return [_value(target, rows) for target in self.targets]
        # PostgreSQL computes the SELECT list before it sorts: it may raise for a row that LIMIT leaves out
        values = [_value(target, rows) for target in self.targets]
        stop = None if self.limit is None else self.offset + self.limit
        places = self._places(rows)[self.offset : stop]
        return [array.take(places) for array in values]

    def _first_of_equals(self, rows: Rows) -> pa.Array:
        """Return the place of one row of each set of rows whose SELECT lists are equal."""
        keys = {str(place): columnwise.group_key(target.type, _value(target, rows)) for place, target in enumerate(self.targets)}
        numbered = pa.table({**keys, "row": pa.array(range(rows.count), pa.int64())})
        return numbered.group_by(list(keys)).aggregate([("row", "min")]).column("row_min").combine_chunks()

    def _places(self, rows: Rows) -> pa.Array:
        """Return the places of the rows in the order of ORDER BY."""
        columns, keys = {}, []
        for place, sort in enumerate(self.sorts):
            values = columnwise.sort_key(sort.expression.type, _value(sort.expression, rows))
            if values.null_count:
                columns[f"null{place}"] = pc.is_null(values).cast(pa.int8())
                keys.append((f"null{place}", "descending" if sort.nulls_first else "ascending"))
            columns[f"value{place}"] = values
            keys.append((f"value{place}", "descending" if sort.descending else "ascending"))
        return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _groups(table: HeldTable, grouped: Grouped) -> _Groups:
    """Prepare the groups of a query. A column that depends on a grouped primary key becomes an additional item."""
    if len(grouped.sets) != 1 or grouped.masks:
        raise NotColumnwise("grouping sets")
    items = {key: _prepared(table, item) for item, key in grouped.items.items()}
    columns = {part.key: part for part in table.references}
    items |= {key: _prepared(table, columns[source]) for source, key in grouped.dependent.items()}
    aggregates = {}
    for aggregate, key in grouped.aggregates.items():
        if not columnwise_group.is_known(aggregate):
            raise NotColumnwise("an aggregate")
        prepared = table.prepared(aggregate)
        assert isinstance(prepared, Aggregate)
        aggregates[key] = prepared
    if not all(map(columnwise.is_grouped, items.values())):
        raise NotColumnwise("equal values that differ")
    return _Groups(items, aggregates, None if grouped.having is None else _prepared(table, grouped.having))


def _require_keys(distinct: Sequence[SelectItem], sorts: Sequence[Sort], aggregates: Mapping[str, Aggregate]) -> None:
    """Raise `NotColumnwise` for keys that Arrow cannot compare or order. A sum is a decimal, although numeric is stored as text."""
    if not all(_is_computed(item.expression, aggregates) or columnwise.is_grouped(item.expression) for item in distinct):
        raise NotColumnwise("equal values that differ")
    if not all(_is_computed(sort.expression, aggregates) or columnwise.is_ordered(sort.expression) for sort in sorts):
        raise NotColumnwise("a type without an order")


def _is_computed(expression: Expression, aggregates: Mapping[str, Aggregate]) -> bool:
    return isinstance(expression, ColumnRef) and expression.key in aggregates


def _prepared(table: HeldTable, expression: Expression) -> Expression:
    """Return an expression with substituted parameters. Raise NotColumnwise if Arrow does not support all of it.

    So functions with side effects are never called here.
    """
    if not columnwise.is_known(expression):
        raise NotColumnwise("a function")
    return table.prepared(expression)


def _value(expression: Expression, rows: Rows) -> pa.Array:
    """Return the values of an expression. A column is returned unchanged, even if an aggregate returned a decimal."""
    if isinstance(expression, ColumnRef):
        return rows.columns[expression.key]
    return columnwise.value(expression, rows.columns, rows.count)


def _count(table: HeldTable, value: Expression) -> int | None:
    """Return LIMIT or OFFSET, or None for NULL. Raise NotColumnwise if it is not a constant or is negative."""
    constant = ordering.constant_count(table.planner, value)
    if constant is None or (constant.value is not None and int(constant.value) < 0):
        raise NotColumnwise("LIMIT")
    return None if constant.value is None else int(constant.value)
