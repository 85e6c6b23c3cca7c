"""What names mean in a query: the FROM items that an expression can see, and how columns are found among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.catalog.query.value import TypedSql, position
from headgate.errors import PostgresError
from headgate.types import registry as t


@dataclass
class FromItem:
    """A FROM item. `name`: as the query calls it; `hidden`: columns that a JOIN … USING has merged away."""

    name: str | None
    schema: str | None
    columns: list[tuple[str, TypedSql]]
    hidden: set[str] = field(default_factory=set)
    order: str | None = None
    star: bool = True
    table: int = 0

    def system(self, name: str) -> TypedSql | None:
        """A system column that every table has: tableoid."""
        return TypedSql(f"CAST({self.table} AS UINTEGER)", t.OID) if name == "tableoid" and self.table else None

    def row(self) -> TypedSql:
        """The whole row as one value."""
        return TypedSql("NULL", t.RECORD, fields=tuple(self.columns))


@dataclass
class Query:
    """A SELECT that has been taken apart: its columns, and its SQL once the types of the columns are settled.

    `build(types)` gives SQL whose columns are named c1, c2, … in order.
    """

    columns: list[tuple[str, TypedSql]]
    build: Callable[[list[int]], str]

    def types(self) -> list[int]:
        """The types of the columns, where unknown ones become text."""
        return [t.TEXT if value.unknown else value.type for _, value in self.columns]


@dataclass
class Cte:
    """A query of a WITH clause: its name in the SQL that is written, and its columns."""

    sql_name: str
    columns: list[tuple[str, TypedSql]]


@dataclass
class QueryScope:
    """The names that expressions of one SELECT see; `parent` is the query around it."""

    parent: QueryScope | None = None
    sources: list[FromItem] = field(default_factory=list)
    ctes: dict[str, Cte] = field(default_factory=dict)

    def cte(self, name: str) -> Cte | None:
        """The WITH query of this name."""
        found = self.ctes.get(name)
        return found if found is not None or self.parent is None else self.parent.cte(name)

    def column(self, name: str, location: int) -> TypedSql:
        """An unqualified column; 42702 if several FROM items have it, 42703 if none has."""
        scope: QueryScope | None = self
        while scope is not None:
            found = [value for source in scope.sources if name not in source.hidden for known, value in source.columns if known == name]
            if len(found) > 1:
                raise PostgresError("42702", f'column reference "{name}" is ambiguous', position=position(location))
            if found:
                return found[0]
            system = [value for value in (source.system(name) for source in scope.sources) if value is not None]
            if len(system) == 1:
                return system[0]
            scope = scope.parent
        whole = self.source(None, name)
        if whole is not None:
            return whole.row() if len(whole.columns) != 1 or whole.order is None else whole.columns[0][1]
        raise PostgresError("42703", f'column "{name}" does not exist', position=position(location))

    def qualified(self, schema: str | None, table: str, name: str, location: int) -> TypedSql:
        """table.name or schema.table.name; 42P01 if there is no such FROM item, 42703 if it has no such column."""
        source = self.source(schema, table)
        if source is None:
            shown = table if schema is None else f"{schema}.{table}"
            raise PostgresError("42P01", f'missing FROM-clause entry for table "{shown}"', position=position(location))
        for known, value in source.columns:
            if known == name:
                return value
        system = source.system(name)
        if system is not None:
            return system
        raise PostgresError("42703", f"column {table}.{name} does not exist", position=position(location))

    def source(self, schema: str | None, table: str) -> FromItem | None:
        """The FROM item of this name, of this query or one around it."""
        scope: QueryScope | None = self
        while scope is not None:
            for source in scope.sources:
                if source.name == table and (schema is None or source.schema == schema):
                    return source
            scope = scope.parent
        return None
