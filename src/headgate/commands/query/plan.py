"""What a part of a query is, once planned: a Spark DataFrame and what its columns mean in PostgreSQL's types."""

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

    `key` is its name in the frame, unique within the whole query; `relation` and `attnum` are as in RowDescription. `literal`: the
    literal that the SELECT list has there, if nothing there has decided its type (it is text now): in a set operation the other side does.
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
    """A frame whose columns are named by the keys of `columns`, in their order (it may have others behind them).

    `sorts`: what its rows are sorted by, over the frame's columns; for those that gather them into one value.
    """

    frame: DataFrame
    columns: tuple[PlanColumn, ...]
    sorts: tuple[Sort, ...] = ()


EqualColumns: TypeAlias = tuple[ColumnRef, ColumnRef]


@dataclass(frozen=True)
class Source:
    """A FROM clause, or a part of it: the frame, the names that it brings into scope, and what ``*`` stands for.

    `equal`: pairs of columns of which every row has the same value twice (inner joins by equality).
    `hidden` are the columns of the tables of a JOIN … USING that an unqualified ``*`` leaves out, because `merged` has them.
    """

    frame: DataFrame
    tables: tuple[ScopeTable, ...]
    star: tuple[PlanColumn, ...]
    merged: tuple[ScopeColumn, ...] = ()
    sorts: tuple[Sort, ...] = ()
    equal: tuple[EqualColumns, ...] = ()

    def scope(self, outer: Scope | None) -> Scope:
        """The scope of expressions over this FROM clause."""
        return Scope(self.tables, outer, self.merged)


def col(key: str) -> Column:
    """The column of a key."""
    return F.col(quoted(key))


def scope_table(alias: str, columns: Sequence[PlanColumn], schema: str | None = None, relation: int = 0, row_key: str = "") -> ScopeTable:
    """An entry of FROM made of planned columns; it has no system columns."""
    return ScopeTable(
        alias,
        tuple(ScopeColumn(each.name, place, each.type, each.key) for place, each in enumerate(columns, 1)),
        schema,
        relation,
        system=False,
        row_key=row_key,
    )


def reference(column: PlanColumn) -> ColumnRef:
    """An expression that is just this column."""
    return ColumnRef(type=column.type, name=column.name, attnum=max(column.attnum, 1), key=column.key)


def renamed(columns: Sequence[PlanColumn], aliases: Sequence[str]) -> list[PlanColumn]:
    """The columns under the names of an alias list, as far as it goes."""
    names = list(aliases) + [each.name for each in columns[len(aliases) :]]
    return [replace(each, name=name) for each, name in zip(columns, names, strict=True)]
