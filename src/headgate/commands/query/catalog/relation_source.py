"""The compiled FROM clause of a catalog query."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Source:
    """The SQL of a FROM clause, or of a part of it. `sorted_by`: the SQL of the sort keys that keep the rows in order."""

    sql: str
    sorted_by: tuple[str, ...] = ()


@dataclass
class Lookups:
    """Lookup rows that are left-joined to a SELECT, at most one per row: the data that functions of an oid return.

    DuckDB plans a LEFT JOIN in a fraction of the time of a correlated subquery.
    """

    keys: frozenset[str]
    """The keys of the columns by which rows may be looked up."""
    joined: dict[tuple[str, str], str] = field(default_factory=dict)
    """(a query with a unique oid, the SQL of a column) → the alias of its rows."""

    @property
    def sql(self) -> str:
        """The SQL to append to the only item of FROM."""
        return "".join(f" LEFT JOIN ({rows}) {name} ON {name}.oid = {column}" for (rows, column), name in self.joined.items())
