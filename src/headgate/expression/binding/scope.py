"""Names in scope, and the resolution of column names (PostgreSQL's parse_relation.c).

The owner of an expression's tables makes the `Scope`: the row filter (one table), the query planner (FROM), CHECK
and DEFAULT (the table, or nothing). `resolve` returns the ColumnRef, or raises PostgreSQL's error, including its hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from headgate.errors import PostgresError
from headgate.expression.node import ColumnRef, Expression, TypeRef
from headgate.types import registry

SYSTEM_COLUMNS = {
    "ctid": (-1, registry.TID),
    "xmin": (-2, registry.XID),
    "cmin": (-3, registry.CID),
    "xmax": (-4, registry.XID),
    "cmax": (-5, registry.CID),
    "tableoid": (-6, registry.OID),
}


@dataclass(frozen=True)
class ScopeColumn:
    """One column. The compiler finds the Spark Column by `key`."""

    name: str
    attnum: int
    type: TypeRef
    key: str


@dataclass(frozen=True)
class ScopeTable:
    """One entry of FROM. `name` is its alias or its name, `schema` the schema if it has no alias (so ``s.t.c`` can name it).

    `row_type` is the oid of the table's composite type, for whole-row references, `row_key` the key that they get (the name and
    ``.*`` if it is empty). `merged`: the names of columns that only a qualified reference can name, because JOIN … USING merged them.
    `system`: whether it has system columns. `relation_name`: schema and name of the relation. `outer_joined`: a
    LATERAL reference is an error, because the table and the subquery are the sides of a RIGHT or FULL JOIN. `row_names`: the names of the
    columns in a whole row, if they are not those of `columns`: the row of a relation has the relation's own names.
    """

    name: str
    columns: tuple[ScopeColumn, ...]
    schema: str | None = None
    relation: int = 0
    row_type: int = registry.RECORD
    merged: frozenset[str] = frozenset()
    system: bool = True
    row_key: str = ""
    relation_name: tuple[str | None, str] | None = None
    outer_joined: bool = False
    is_scalar: bool = False
    """Whether it is a function that returns one value, which is its row too."""
    row_names: tuple[str, ...] = ()

    def row(self, location: int, levels: int) -> ColumnRef:
        if self.is_scalar:
            return _reference(self.columns[0], self.name, location, levels, qualified=True)
        key = self.row_key or f"{self.name}.*"
        columns = [column for column in self.columns if column.attnum >= 0]
        names = self.row_names or [column.name for column in columns]
        kind = TypeRef(self.row_type, fields=tuple((name, column.type) for name, column in zip(names, columns, strict=True)))
        return ColumnRef(
            type=kind, name=self.name, attnum=0, key=key, qualifier=self.name, levels_up=levels, relation=self.relation, location=location
        )


@dataclass(eq=False)
class OuterAggregates:
    """The aggregates of a query that its subqueries call. `key` returns a new key for their columns."""

    key: Callable[[], str]
    keys: dict[Expression, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scope:
    """The tables whose names an expression may use.

    `merged` are the columns that JOIN … USING merged. `outer` is the scope of the enclosing query. `qualify` makes references print with
    their table's name. `hidden` are the tables of the query that the expression cannot use, for the hints of errors. `clause` is the
    clause of the query that contains the subquery whose outer scope this is. `aggregates`: the query takes aggregates of its subqueries.
    `allowed`: the clause may have aggregates.
    """

    tables: tuple[ScopeTable, ...] = ()
    outer: Scope | None = None
    merged: tuple[ScopeColumn, ...] = ()
    qualify: bool = False
    hidden: tuple[ScopeTable, ...] = ()
    clause: str = "FROM clause of their own query level"
    aggregates: OuterAggregates | None = field(default=None, compare=False)
    allowed: bool = False

    @property
    def levels(self) -> Iterator[Scope]:
        """The scopes of the query and of those around it, from the inside to the outside."""
        yield self
        if self.outer is not None:
            yield from self.outer.levels

    @property
    def is_outermost(self) -> bool:
        """Whether the scope has no tables, and no enclosing one that has some."""
        return not any(level.tables for level in self.levels)


def merging(tables: Iterable[ScopeTable], names: Iterable[str]) -> tuple[ScopeTable, ...]:
    """Return the tables of a JOIN … USING, whose merged columns only a qualified reference can name."""
    merged = frozenset(names)
    return tuple(replace(table, merged=table.merged | merged) for table in tables)


def hiding(scope: Scope | None, tables: Sequence[ScopeTable]) -> Scope | None:
    """Return the scope with more tables that cannot be used."""
    return scope if not tables else replace(scope or EMPTY, hidden=((scope or EMPTY).hidden + tuple(tables)))


EMPTY = Scope()


def relation_scope(
    name: str, schema: str | None, columns: Iterable[ScopeColumn], relation: int = 0, row_type: int = registry.RECORD
) -> Scope:
    """Return the scope of an expression over one table: a row filter, a CHECK, an UPDATE without FROM."""
    return Scope((ScopeTable(name, tuple(columns), schema, relation, row_type),))


def resolve(parts: Sequence[str], scope: Scope, location: int) -> ColumnRef:
    """Return the column that ``c``, ``t.c``, ``s.t.c`` or ``db.s.t.c`` names. Raise 42703, 42702, 42P01 with position and hint."""
    if len(parts) == 1:
        return _resolve_unqualified(parts[0], scope, location)
    if len(parts) > 4:
        raise PostgresError("42601", f"improper qualified name (too many dotted names): {'.'.join(parts)}", location=location)
    schema = parts[-3] if len(parts) > 2 else None
    table, levels = find_table(parts[-2], schema, scope, location)
    column = _in_table(table, parts[-1], location, levels, qualified=scope.qualify)
    if column is None:
        raise PostgresError(
            "42703", f"column {'.'.join(parts[-2:])} does not exist", hint=_hint(parts[-1], scope, parts[-2]), location=location
        )
    return column


def find_table(name: str, schema: str | None, scope: Scope, location: int) -> tuple[ScopeTable, int]:
    """Return the entry of FROM with this name, and the number of query levels up to it.

    Raise 42P01 if none matches, 42P09 if several do.
    """
    for levels, level in enumerate(scope.levels):
        matches = [table for table in level.tables if table.name == name and (schema is None or table.schema == schema)]
        if len(matches) > 1:
            raise PostgresError("42P09", f'table reference "{name}" is ambiguous', location=location)
        if matches:
            _check_lateral(matches[0], location)
            return matches[0], levels
    raise _missing_table(name, schema, scope, location)


def _check_lateral(table: ScopeTable, location: int) -> None:
    if table.outer_joined:
        raise PostgresError(
            "42P10",
            f'invalid reference to FROM-clause entry for table "{table.name}"',
            detail="The combining JOIN type must be INNER or LEFT for a LATERAL reference.",
            location=location,
        )


def _missing_table(name: str, schema: str | None, scope: Scope, location: int) -> PostgresError:
    """Return the error for a name that no table in scope has (errorMissingRTE). The hint names a table that was probably meant."""
    tables = [table for level in scope.levels for table in (*level.hidden, *level.tables)]
    of_name = [table for table in tables if table.name == name]
    of_relation = [table for table in tables if table.relation_name and (schema or table.relation_name[0], name) == table.relation_name]
    table = next(iter(of_name + of_relation), None)
    if table is None:
        return PostgresError("42P01", f'missing FROM-clause entry for table "{name}"', location=location)
    if table.name != name and _is_usable(table, scope):
        hint = f'Perhaps you meant to reference the table alias "{table.name}".'
    else:
        hint = f'There is an entry for table "{table.name}", but it cannot be referenced from this part of the query.'
    return PostgresError("42P01", f'invalid reference to FROM-clause entry for table "{name}"', hint=hint, location=location)


def has_table(name: str, scope: Scope) -> bool:
    """Return whether a name is that of a table in scope (for ``t`` as a whole row)."""
    return any(table.name == name for level in scope.levels for table in level.tables)


def _resolve_unqualified(name: str, scope: Scope, location: int) -> ColumnRef:
    for levels, level in enumerate(scope.levels):
        merged = [_reference(column, "", location, levels, qualified=False) for column in level.merged if column.name == name]
        tables = [table for table in level.tables if name not in table.merged]
        columns = merged + [
            ref for table in tables if (ref := _in_table(table, name, location, levels, qualified=level.qualify)) is not None
        ]
        if len([ref for ref in columns if ref.attnum >= 0]) > 1 or (len(columns) > 1 and all(ref.attnum < 0 for ref in columns)):
            raise PostgresError("42702", f'column reference "{name}" is ambiguous', location=location)
        if merged:
            return merged[0]
        if columns:
            _check_lateral(next(table for table in level.tables if table.name == columns[0].qualifier), location)
            return columns[0]
    if has_table(name, scope):
        table, levels = find_table(name, None, scope, location)
        return table.row(location, levels)
    raise PostgresError("42703", f'column "{name}" does not exist', hint=_hint(name, scope), location=location)


def column_of(table: ScopeTable, name: str) -> ColumnRef:
    """Return a reference to a column that the table is known to have."""
    reference = _in_table(table, name, -1, 0, qualified=False)
    assert reference is not None
    return reference


def _in_table(table: ScopeTable, name: str, location: int, levels: int, *, qualified: bool) -> ColumnRef | None:
    columns = [column for column in table.columns if column.name == name]
    if len(columns) > 1:
        raise PostgresError("42702", f'column reference "{name}" is ambiguous', location=location)
    if columns:
        return _reference(columns[0], table.name, location, levels, qualified=qualified)
    if table.system and name in SYSTEM_COLUMNS:
        attnum, oid = SYSTEM_COLUMNS[name]
        return ColumnRef(
            type=TypeRef(oid),
            name=name,
            attnum=attnum,
            key=f"{table.name}.{name}",
            qualifier=table.name,
            levels_up=levels,
            location=location,
        )
    return None


def _reference(column: ScopeColumn, table: str, location: int, levels: int, *, qualified: bool) -> ColumnRef:
    return ColumnRef(
        type=column.type,
        name=column.name,
        attnum=column.attnum,
        key=column.key,
        qualifier=table,
        qualified=qualified,
        levels_up=levels,
        location=location,
    )


def _is_usable(table: ScopeTable, scope: Scope) -> bool:
    """Return whether the name of a table means this table in a scope."""
    named = (level.tables for level in scope.levels if any(candidate.name == table.name for candidate in level.tables))
    return table in next(named, ())


_FURTHEST = 3


def _hint(name: str, scope: Scope, alias: str | None = None) -> str | None:
    """Return a hint with the columns whose names are nearest to a name that does not exist (errorMissingColumn, searchRangeTableForCol).

    The edits from `alias` to the table's name are counted too. As in PostgreSQL, at most half of the column's name may differ, and there
    is no hint if more than two columns are equally near.
    """
    nearest: list[tuple[str, str]] = []
    least = _FURTHEST + 1
    for level in scope.levels:
        for table in (*level.hidden, *level.tables):
            penalty = 0 if alias is None else levenshtein(alias, table.name)
            if not penalty and _in_table(table, name, -1, 0, qualified=False) is not None:
                return f'There is a column named "{name}" in table "{table.name}", but it cannot be referenced from this part of the query.'
            for column in table.columns:
                edits = levenshtein(name, column.name)
                distance = edits + penalty
                if column.attnum < 0 or edits > len(name.encode()) // 2 or distance > least:
                    continue
                if distance < least:
                    nearest, least = [], distance
                if len(nearest) == 2:
                    nearest, least = [], distance - 1
                elif distance <= _FURTHEST:
                    nearest.append((table.name, column.name))
    if not nearest:
        return None
    columns = " or the column ".join(f'"{table}.{column}"' for table, column in nearest)
    return f"Perhaps you meant to reference the column {columns}."


def levenshtein(left: str, right: str) -> int:
    """Return the number of single-character edits between two names."""
    row = list(range(len(right) + 1))
    for i, character in enumerate(left, 1):
        previous, row[0] = row[0], i
        for j, right_character in enumerate(right, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (character != right_character))
    return row[-1]
