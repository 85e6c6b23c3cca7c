"""A row filter: bound to its table, checked, printed, and made into the Column that decides on a row.

`bind_filter` serves CREATE and ALTER PUBLICATION; `load` what the catalog stored; `match` the publisher. What is
accepted here can be decided with exactly PostgreSQL's meaning: a filter that cannot be compiled is refused with 0A000 when it
is bound, never evaluated approximately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

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

if TYPE_CHECKING:
    from pyspark.sql import Column


class FilterColumn(Protocol):
    """What a filter needs to know of a column; `headgate.catalog.relation.relation.Column` is one."""

    @property
    def attnum(self) -> int:
        """Its number."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def type_oid(self) -> int:
        """Its type."""
        ...

    @property
    def typmod(self) -> int:
        """Its modifier."""
        ...

    @property
    def collation(self) -> int:
        """Its collation."""
        ...


class FilterRelation(Protocol):
    """What a filter needs to know of its table; `headgate.catalog.relation.relation.Relation` is one."""

    @property
    def oid(self) -> int:
        """The table's oid."""
        ...

    @property
    def schema(self) -> str:
        """Its schema."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def columns(self) -> tuple[FilterColumn, ...]:
        """The live columns."""
        ...


@dataclass(frozen=True)
class RowFilter:
    """A bound filter. `text` is pg_get_expr's; `columns` the attnums it reads."""

    expression: Expression
    text: str
    columns: frozenset[int] = field(default_factory=frozenset)

    def dump(self) -> str:
        """The JSON that the catalog stores as prqual."""
        return serialization.dump(self.expression)


def scope_of(relation: FilterRelation) -> Scope:
    """The names that a filter may use: the table's columns, keyed by their names."""
    columns = (
        ScopeColumn(each.name, each.attnum, TypeRef(each.type_oid, each.typmod, each.collation), each.name) for each in relation.columns
    )
    return relation_scope(relation.name, relation.schema, columns, relation.oid, _ROW_TYPE)


_ROW_TYPE = 2**31
"""Stands for the table's row type, which is a user-defined type: whole-row references are refused as such."""


def bind_filter(
    where: ParseNode,
    relation: FilterRelation,
    *,
    types: registry.TypeRegistry | None = None,
    forms: TextSettings = PLAIN,
) -> RowFilter:
    """Binds the WHERE of CREATE/ALTER PUBLICATION to the table.

    Raises PostgreSQL's errors of analysis (42804, 42703, 42883, 22P02 …), 0A000 ``invalid publication WHERE expression`` with
    DETAIL for what PostgreSQL refuses, and 0A000 with the reason for what cannot be compiled exactly.
    `forms` says what the filter's constants mean.
    """
    refuse_named_arguments(where)
    context = BindContext(construct="PUBLICATION WHERE", types=types or registry.known(), forms=forms, opaque_subquery=True)
    expression = bind_condition(where, scope_of(relation), "PUBLICATION WHERE", context=context)
    check(expression, context)
    compiler.check(expression)
    return _filter(expression, context.types)


def load(stored: str, types: registry.TypeRegistry | None = None) -> RowFilter:
    """The filter that `RowFilter.dump` wrote."""
    return _filter(serialization.load(stored), types or registry.known())


def _filter(expression: Expression, types: registry.TypeRegistry) -> RowFilter:
    columns = frozenset(each.attnum for each in walk(expression) if isinstance(each, ColumnRef))
    return RowFilter(expression, deparse(expression, types=types), columns)


def match(row_filter: RowFilter, row: Column) -> Column:
    """Whether the row in a struct column (fields by column name, in storage types) passes; NULL counts as false, also a NULL row."""
    from pyspark.sql import functions as F

    names = {each.key: row.getField(each.name) for each in walk(row_filter.expression) if isinstance(each, ColumnRef)}
    return F.coalesce(compiler.compile(row_filter.expression, names), F.lit(False))
