"""Row filters: binds a filter to its table, checks it, prints it, and compiles it to a Spark Column.

CREATE and ALTER PUBLICATION call `bind_filter`. `load` reads a filter from the catalog, and the publisher calls `match`. Every accepted
filter has exactly PostgreSQL's meaning: a filter that cannot be compiled is rejected with 0A000 when it is bound, and is never
evaluated approximately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import Column

from headgate.expression import serialization
from headgate.expression.binding.binder import bind_condition
from headgate.expression.binding.context import BindContext
from headgate.expression.binding.scope import Scope, ScopeColumn, relation_scope
from headgate.expression.deparsing.deparse import deparse
from headgate.expression.node import ColumnRef, Expression, TypeRef, walk
from headgate.expression.spark import compiler
from headgate.rowfilter.check import check, refuse_named_arguments
from headgate.sql.parser import ParseNode
from headgate.types import registry
from headgate.types.text_column import PLAIN, TextSettings


class FilterColumn(Protocol):
    """The properties of a column that a filter needs. `headgate.catalog.relation.relation.Column` has them."""

    @property
    def attnum(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def type_oid(self) -> int: ...

    @property
    def typmod(self) -> int: ...

    @property
    def collation(self) -> int: ...


class FilterRelation(Protocol):
    """The properties of a table that a filter needs. `headgate.catalog.relation.relation.Relation` has them."""

    @property
    def oid(self) -> int: ...

    @property
    def schema(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[FilterColumn, ...]: ...


@dataclass(frozen=True)
class RowFilter:
    """A bound filter. `text` is its text as in pg_get_expr, `columns` the attnums of the columns that it reads."""

    expression: Expression
    text: str
    columns: frozenset[int] = field(default_factory=frozenset)

    def dump(self) -> str:
        """Return the JSON that the catalog stores as prqual."""
        return serialization.dump(self.expression)


def scope_of(relation: FilterRelation) -> Scope:
    """Return the names that a filter may use: the table's columns, keyed by their names."""
    columns = (
        ScopeColumn(column.name, column.attnum, TypeRef(column.type_oid, column.typmod, column.collation), column.name)
        for column in relation.columns
    )
    return relation_scope(relation.name, relation.schema, columns, relation.oid, _ROW_TYPE)


_ROW_TYPE = 2**31
"""A placeholder for the table's row type, which is a user-defined type. So whole-row references are rejected as such."""


def bind_filter(
    where: ParseNode,
    relation: FilterRelation,
    *,
    forms: TextSettings = PLAIN,
) -> RowFilter:
    """Bind the WHERE of CREATE or ALTER PUBLICATION to the table.

    Raises PostgreSQL's errors of analysis (42804, 42703, 42883, 22P02 …), 0A000 ``invalid publication WHERE expression`` with a
    DETAIL for expressions that PostgreSQL rejects, and 0A000 with the reason for those that cannot be compiled exactly.
    `forms`: the settings by which constants are read.
    """
    refuse_named_arguments(where)
    context = BindContext(construct="PUBLICATION WHERE", types=registry.known(), forms=forms, opaque_subquery=True)
    expression = bind_condition(where, scope_of(relation), "PUBLICATION WHERE", context=context)
    check(expression, context)
    compiler.check(expression)
    return _filter(expression, context.types)


def load(stored: str) -> RowFilter:
    """Return the filter that `RowFilter.dump` wrote."""
    return _filter(serialization.load(stored), registry.known())


def _filter(expression: Expression, types: registry.TypeRegistry) -> RowFilter:
    columns = frozenset(node.attnum for node in walk(expression) if isinstance(node, ColumnRef))
    return RowFilter(expression, deparse(expression, types=types), columns)


def match(row_filter: RowFilter, row: Column) -> Column:
    """Return a Column that is true if a row passes. NULL counts as false, and so does a NULL row.

    `row` is a struct column: its fields are the columns by name, in storage types.
    """
    from pyspark.sql import functions as F

    names = {column.key: row.getField(column.name) for column in walk(row_filter.expression) if isinstance(column, ColumnRef)}
    return F.coalesce(compiler.compile(row_filter.expression, names), F.lit(False))
