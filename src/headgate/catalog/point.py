"""The parts of the catalogs that a statement reads or writes: whole catalogs, or their rows of single objects.

`cursor` keeps a version for each such part, so that a change of one table does not invalidate cached results about others. Called by
`cursor` only.

    a part                          read by                                       written by
    "pg_class"                      any statement on it                           any statement on it
    ("pg_class",)                   statements on single objects                  statements that are not plain
    ("pg_class", "relname")         statements that find objects by name          plain statements whose rows may have any name
    ("pg_class", "relname", "t")    statements that look for this name            statements whose rows have, or get, this name

A statement that reads rows of single objects reads the last three: `SELECT oid FROM hg.pg_class WHERE relname = ?`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.catalog.plain_statement import BoundTerm, Plain, analyse, bound, stored

Part = str | tuple[object, ...]


@dataclass(frozen=True)
class _Point:
    """Columns that identify the object to which a row belongs.

    Used for queries that name only the columns `only`, and none of `never`. Changes of other columns are not tracked.
    """

    columns: tuple[str, ...]
    kind: type
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.columns[0]

    def serves(self, columns: Collection[str]) -> bool:
        """Return whether all columns that a query names are tracked."""
        return self.never.isdisjoint(columns) and (self.only is None or self.only.issuperset(columns))

    def follows(self, columns: Collection[str]) -> bool:
        """Return whether one of the columns that an UPDATE sets is tracked."""
        return any(column not in self.never and (self.only is None or column in self.only) for column in columns)


_POINTS: Mapping[str, tuple[_Point, ...]] = {
    "pg_class": (
        _Point(("oid",), int, never=frozenset({"relacl", "reltuples", "relpages", "relallvisible"})),
        _Point(("relname",), str, only=frozenset({"dbid", "oid", "relname", "relnamespace"})),
        _Point(("relkind",), str, only=frozenset({"dbid", "oid", "relkind"})),
    ),
    "pg_type": (
        _Point(("typrelid",), int),
        _Point(("typname",), str),
        _Point(("typtype",), str, only=frozenset({"dbid", "oid", "typtype"})),
    ),
    "pg_attribute": (_Point(("attrelid",), int),),
    "pg_attrdef": (_Point(("adrelid",), int),),
    "pg_constraint": (_Point(("conrelid", "confrelid"), int),),
    "pg_index": (_Point(("indrelid",), int),),
    "pg_inherits": (_Point(("inhrelid",), int),),
    "pg_partitioned_table": (_Point(("partrelid",), int),),
    "pg_sequence": (_Point(("seqrelid",), int),),
    "pg_trigger": (_Point(("tgrelid",), int),),
    "history": (_Point(("oid",), int),),
}


def read(sql: str, parameters: Sequence[object]) -> tuple[Part, ...] | None:
    """Return the parts that a query on single objects reads, or None for another query."""
    plain = analyse(sql)
    if plain is None or plain.kind != "SELECT":
        return None
    column_names = {*plain.columns, *(column for term in plain.condition for column in term.columns)}
    for point in _POINTS.get(plain.table, ()):
        values = _values(point, bound(plain.condition, parameters), alone=False) if point.serves(column_names) else None
        if values is not None:
            return ((plain.table,), (plain.table, point.name), *((plain.table, point.name, value) for value in values))
    return None


def _values(point: _Point, terms: Iterable[BoundTerm], *, alone: bool) -> list[object] | None:
    """Return the values that a condition allows in the columns of a point. With `alone`, only if all of them are known."""
    if alone and len(point.columns) > 1:
        return None
    for term, values in terms:
        if not term.or_zero and set(term.columns) <= set(point.columns) and all(type(value) is point.kind for value in values):
            return list(dict.fromkeys(values))
    return None


def written(sql: str, parameters: Sequence[object], table: str) -> Iterable[Part]:
    """Return the parts that an INSERT, UPDATE or DELETE of a catalog writes."""
    points = _POINTS.get(table)
    if points is None:
        return (table,)
    plain = analyse(sql)
    if plain is None or plain.kind == "SELECT" or not parameters:
        return (table, (table,))
    if plain.kind == "INSERT":
        width = len(plain.columns)
        rows = (dict(zip(plain.columns, parameters[at : at + width], strict=True)) for at in range(0, len(parameters), width))
        return inserted(table, rows)
    parts: list[Part] = [table]
    for point in points:
        parts.extend(_changed_parts(plain, point, parameters))
    return parts


def _changed_parts(plain: Plain, point: _Point, parameters: Sequence[object]) -> Iterable[Part]:
    is_update = plain.kind == "UPDATE"
    if is_update and not point.follows(plain.columns):
        return
    values = _values(point, bound(plain.condition, parameters[len(plain.columns) :]), alone=True)
    if values is None or (is_update and not set(point.columns).isdisjoint(plain.columns)):
        yield plain.table, point.name
        return
    for value in values:
        yield plain.table, point.name, value


def inserted(table: str, rows: Iterable[Mapping[str, object]]) -> Iterable[Part]:
    parts: dict[Part, None] = {table: None}
    for row in rows:
        for point in _POINTS.get(table, ()):
            for column in point.columns:
                value = stored(row.get(column))
                parts[(table, point.name, value) if type(value) is point.kind else (table, point.name)] = None
    return parts
