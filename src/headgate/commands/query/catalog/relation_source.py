"""The FROM items and output columns of a catalog query: SQL, names and types.

The key of a column is its SQL (``t1."oid"``), so that the compiler writes a reference as its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headgate.analysis.query import PlanColumn
from headgate.expression.binding.scope import Scope, ScopeColumn, ScopeTable
from headgate.expression.duckdb.value import NOTHING_KNOWN, Facts
from headgate.expression.node import Expression, TypeRef


@dataclass(frozen=True)
class SourceColumn(PlanColumn):
    """A column of a FROM item."""

    facts: Facts = NOTHING_KNOWN


@dataclass(frozen=True)
class CatalogSource:
    """A FROM clause, or a part of it. `star`: what ``*`` stands for. `sorted_by`: the SQL of the sort keys that keep the rows in order."""

    sql: str
    tables: tuple[ScopeTable, ...] = ()
    star: tuple[SourceColumn, ...] = ()
    merged: tuple[ScopeColumn, ...] = ()
    sorted_by: tuple[str, ...] = ()

    def scope(self, outer: Scope | None) -> Scope:
        """Return the scope of expressions over this FROM clause."""
        return Scope(self.tables, outer, self.merged)

    def beside(self, right: CatalogSource, sql: str) -> CatalogSource:
        """Return the combination of both sources, whose FROM is `sql`."""
        return CatalogSource(
            sql, self.tables + right.tables, self.star + right.star, self.merged + right.merged, self.sorted_by + right.sorted_by
        )


@dataclass
class Lookups:
    """Lookup rows that are left-joined to a SELECT, at most one per row: the data that functions of an oid return.

    DuckDB plans a LEFT JOIN in a fraction of the time of a correlated subquery.
    """

    keys: frozenset[str]
    """The keys of the columns by which rows may be looked up."""
    joined: dict[tuple[str, str], str] = field(default_factory=dict)
    """(a query with a unique oid, a column key) → the alias of its rows."""

    @property
    def sql(self) -> str:
        """The SQL to append to the only item of FROM."""
        return "".join(f" LEFT JOIN ({rows}) {name} ON {name}.oid = {key}" for (rows, key), name in self.joined.items())


@dataclass(frozen=True)
class OutputColumn:
    """A column of a query. `expression` has its type; `sql` is the compiled expression."""

    name: str
    expression: Expression
    sql: str
    relation: int = 0
    attnum: int = 0
    facts: Facts = NOTHING_KNOWN

    @property
    def type(self) -> TypeRef:
        """The type, or unknown for a literal whose type is still undecided."""
        return self.expression.type


@dataclass
class CatalogQuery:
    """A planned SELECT. `build(types)` returns its SQL, whose columns are named c1, c2, … and have these types."""

    columns: list[OutputColumn]
    build: Callable[[Sequence[TypeRef]], str]


@dataclass(frozen=True)
class Cte:
    """A query of a WITH clause: its name in the SQL, and its columns."""

    sql_name: str
    columns: tuple[SourceColumn, ...]

    def under(self, alias: str) -> list[SourceColumn]:
        """Return its columns as those of a FROM item."""
        return [replace(column, key=f"{alias}.c{place}") for place, column in enumerate(self.columns, 1)]
