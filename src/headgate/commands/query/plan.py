"""The planned form of a query or of a part of it: a Spark DataFrame and the PostgreSQL types of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable
from headgate.expression.node import ColumnRef, Const, Expression, TypeRef
from headgate.storage.spark.column_name import quoted


@dataclass(frozen=True)
class PlanColumn:
    """A column of a plan.

    `key` is its name in the frame, unique within the whole query. `relation` and `attnum` are as in RowDescription. `literal` is the
    literal in the SELECT list if its type is undecided. Its type is text for now; in a set operation, the other side decides it.
    """

    name: str
    type: TypeRef
    key: str
    relation: int = 0
    attnum: int = 0
    literal: Const | None = None


@dataclass(frozen=True)
class Sort:
    """One item of ORDER BY."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Plan:
    """A frame whose first columns are named by the keys of `columns`, in their order. More columns may follow.

    `sorts`: the sort order of the rows, over the frame's columns, for aggregates that collect the rows into one value.
    """

    frame: DataFrame
    columns: tuple[PlanColumn, ...]
    sorts: tuple[Sort, ...] = ()


EqualColumns: TypeAlias = tuple[ColumnRef, ColumnRef]


@dataclass(frozen=True)
class Source:
    """A FROM clause, or a part of it: the frame, the names that it brings into scope, and the columns of ``*``.

    `equal`: pairs of columns that have equal values in every row (inner equi-joins). An unqualified ``*`` leaves out the columns of the
    tables of a JOIN … USING, because `merged` has them.
    """

    frame: DataFrame
    tables: tuple[ScopeTable, ...]
    star: tuple[PlanColumn, ...]
    merged: tuple[ScopeColumn, ...] = ()
    sorts: tuple[Sort, ...] = ()
    equal: tuple[EqualColumns, ...] = ()

    def scope(self, outer: Scope | None) -> Scope:
        """Return the scope of expressions over this FROM clause."""
        return Scope(self.tables, outer, self.merged)


def col(key: str) -> Column:
    """Return the Column with a key."""
    return F.col(quoted(key))


def scope_table(alias: str, columns: Sequence[PlanColumn], schema: str | None = None, relation: int = 0, row_key: str = "") -> ScopeTable:
    """Return a scope entry for planned columns. It has no system columns."""
    return ScopeTable(
        alias,
        tuple(ScopeColumn(column.name, place, column.type, column.key) for place, column in enumerate(columns, 1)),
        schema,
        relation,
        system=False,
        row_key=row_key,
    )


def reference(column: PlanColumn) -> ColumnRef:
    """Return an expression that references this column."""
    return ColumnRef(type=column.type, name=column.name, attnum=max(column.attnum, 1), key=column.key)


def renamed(columns: Sequence[PlanColumn], aliases: Sequence[str]) -> list[PlanColumn]:
    """Return the columns with the names of an alias list. Columns beyond the list keep their names."""
    names = list(aliases) + [column.name for column in columns[len(aliases) :]]
    return [replace(column, name=name) for column, name in zip(columns, names, strict=True)]
