"""The planned form of a query or of a part of it: a Spark DataFrame and the PostgreSQL types of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.analysis.query import PlanColumn, Sort
from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable
from headgate.expression.node import ColumnRef
from headgate.storage.spark.column_name import quoted
from headgate.types.storage import own_name

LEAF = own_name("_leaf")
"""The column of a frame of several leaves with the oid of each row's leaf."""


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
    return F.col(quoted(key))
