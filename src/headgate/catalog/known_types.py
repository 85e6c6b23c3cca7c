"""The user-defined types of a database as a registry, which a thread uses for its statements.

Sessions call `KnownTypes.use` before each statement, and workers before each batch. It activates the database's types for the thread
(`headgate.types.registry.use`). The types are read again after a change: `Catalog.type_changes` counts the calls of
`Catalog.types_changed`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from headgate.catalog import namespace
from headgate.catalog.catalog import Catalog
from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, rows
from headgate.sql.names import quote_ident
from headgate.types import registry
from headgate.types.registry import PgType, TypeKind, TypeRegistry


def registry_of(cursor: Cursor, database: int, path: Sequence[str] | None) -> TypeRegistry:
    """Return the built-in types and those of a database. Types outside `path` (the schemas of a search path) print with their schema."""
    # The results of these queries stay cached when tables are created (`catalog.point`).
    of_kind = (
        "SELECT oid FROM hg.pg_type WHERE dbid = ? AND typtype IN (?, ?)",
        "SELECT oid FROM hg.pg_class WHERE dbid = ? AND relkind = ?",
    )
    if not rows(cursor, of_kind[0], [database, "e", "d"]) and not rows(cursor, of_kind[1], [database, "c"]):
        return registry.builtin().extended((), path)
    type_rows = rows(
        cursor,
        "SELECT t.oid, t.typname, n.nspname, t.typtype, t.typcategory, t.typlen, t.typbyval, t.typelem, t.typarray, t.typbasetype,"
        " t.typtypmod, t.typcollation, t.typnotnull, t.typdefaultbin, t.typrelid FROM hg.pg_type t"
        " JOIN hg.pg_namespace n ON n.oid = t.typnamespace AND n.dbid IN (0, ?)"
        " LEFT JOIN hg.pg_type e ON e.dbid = t.dbid AND e.oid = t.typelem"
        " LEFT JOIN hg.pg_class c ON c.dbid = t.dbid AND c.oid = CASE WHEN t.typtype = 'b' THEN e.typrelid ELSE t.typrelid END"
        " WHERE t.dbid = ? AND (CASE WHEN t.typtype = 'b' THEN e.typtype ELSE t.typtype END IN ('e', 'd') OR c.relkind = 'c')"
        " ORDER BY t.oid",
        [database, database],
    )
    labels = _grouped(cursor, "SELECT enumtypid, enumlabel FROM hg.pg_enum WHERE dbid = ? ORDER BY enumtypid, enumsortorder", database)
    checks = _grouped(
        cursor,
        "SELECT contypid, conname, conbin FROM hg.pg_constraint WHERE dbid = ? AND contype = 'c' AND contypid <> 0 ORDER BY conname",
        database,
    )
    attributes = _grouped(
        cursor,
        "SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod FROM hg.pg_attribute a"
        " JOIN hg.pg_class c ON c.dbid = a.dbid AND c.oid = a.attrelid"
        " WHERE a.dbid = ? AND c.relkind = 'c' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum",
        database,
    )
    names = _shown_names({oid: (schema, name) for oid, name, schema, *_ in type_rows}, path)
    types: dict[int, PgType] = {}
    for row in type_rows:
        oid, name, schema, kind, category, length, by_value, element, array, base, modifier, collation, not_null, default, own = row
        spelt = names[element] + "[]" if kind == "b" and element in names else names[oid]
        parent = types.get(base)
        types[oid] = PgType(
            oid, name, schema, TypeKind(kind), category, False, length, by_value, ",", element if kind == "b" else 0, array, base,
            modifier, collation, own, False, spelt, spelt, tuple(label for (label,) in labels.get(oid, ())),
            not_null or (parent is not None and parent.not_null),
            (*(parent.checks if parent is not None else ()), *checks.get(oid, ())), default,
            tuple(registry.Attribute(*attribute) for attribute in attributes.get(own, ())),
        )  # fmt: skip
    return registry.builtin().extended(types.values(), path)


def _grouped(cursor: Cursor, sql: str, database: int) -> dict[int, list[Row]]:
    """Return the rows of a query on a database by their first column, without it."""
    grouped: dict[int, list[Row]] = {}
    for owner, *values in rows(cursor, sql, [database]):
        grouped.setdefault(owner, []).append(tuple(values))
    return grouped


def _shown_names(names: Mapping[int, tuple[str, str]], path: Sequence[str] | None) -> dict[int, str]:
    """Return the names of types, given as (schema, name), with the schema unless the search path finds the type."""
    schemas = [*(path or ())]
    if "pg_catalog" not in schemas:
        schemas.insert(0, "pg_catalog")
    taken = set(names.values())

    def shown(schema: str, name: str) -> str:
        for candidate in schemas:
            if candidate == schema:
                return quote_ident(name)
            if (candidate, name) in taken or (candidate == "pg_catalog" and registry.builtin().find_name(name, candidate) is not None):
                break
        return f"{quote_ident(schema)}.{quote_ident(name)}"

    return {oid: shown(*name) for oid, name in names.items()}


class KnownTypes:
    """The types of a database as one session or worker sees them. They are read again only after a change.

    The types of tables' rows are looked up when a statement needs them (`registry.RowTypes`), with the cursor that `current` returns, or
    with one of their own.
    """

    def __init__(self, catalog: Catalog, database: int, current: Callable[[], Cursor | None] = lambda: None) -> None:
        self._catalog, self._current = catalog, current
        self._database = database
        self._seen: tuple[object, ...] | None = None
        self._types = registry.builtin()
        self._path: Sequence[str] = ()

    def use(self, user: str = "", search_path: Sequence[str] = (), cursor: Cursor | None = None, shows: int | None = None) -> TypeRegistry:
        """Activate the types for this thread and return them.

        `cursor` is that of the open transaction, which sees its own changes. It sees the changes of others up to `shows`, the value of
        `type_changes` at its snapshot.
        """
        now = self._catalog.type_changes
        seen = (now, now if shows is None else shows, user, tuple(search_path))
        if seen != self._seen:
            with self._reading(cursor) as reading:
                self._path = list(namespace.effective(reading, self._database, user, search_path))
                self._types = registry_of(reading, self._database, self._path).looking_up(self)
            self._seen = seen
        self._types.forget_row_types()
        registry.use(self._types)
        return self._types

    @contextlib.contextmanager
    def _reading(self, cursor: Cursor | None) -> Iterator[Cursor]:
        """Yield the cursor of the open transaction, or another one if there is no transaction."""
        if cursor is not None:
            yield cursor
            return
        with contextlib.closing(self._catalog.cursor()) as own:
            yield own

    def by_oid(self, oid: int) -> Sequence[PgType]:
        """See `registry.RowTypes`."""
        return self._row_type("(t.oid = ? OR t.typarray = ?)", [oid, oid])

    def by_relation(self, relation: int) -> Sequence[PgType]:
        """See `registry.RowTypes`."""
        return self._row_type("t.typrelid = ?", [relation])

    def by_name(self, name: str, schema: str | None) -> Sequence[PgType]:
        """See `registry.RowTypes`."""
        schemas = self._path if schema is None else [schema]
        types = self._row_type("? IN (t.typname, a.typname) AND list_contains(?, n.nspname)", [name, schemas])
        return sorted(types, key=lambda pg_type: pg_type.name != name)

    def _row_type(self, condition: str, parameters: Sequence[object]) -> Sequence[PgType]:
        """Return the type of a table's rows and its array type. Of several schemas, the first of the path counts."""
        with self._reading(self._current()) as cursor:
            sql = (
                "SELECT t.oid, t.typname, n.nspname, t.typarray, a.typname, t.typrelid FROM hg.pg_type t"
                " JOIN hg.pg_namespace n ON n.oid = t.typnamespace AND n.dbid IN (0, ?)"
                " JOIN hg.pg_class c ON c.dbid = t.dbid AND c.oid = t.typrelid AND c.relkind <> 'c'"
                " JOIN hg.pg_type a ON a.dbid = t.dbid AND a.oid = t.typarray"
                f" WHERE t.dbid = ? AND {condition}"
            )
            type_rows = rows(cursor, sql, [self._database, self._database, *parameters])
            if not type_rows:
                return ()
            places = {schema: place for place, schema in enumerate(self._path)}
            oid, name, schema, array, array_name, relation = min(type_rows, key=lambda row: places.get(row[2], len(places)))
            sql = (
                "SELECT attname, atttypid, atttypmod FROM hg.pg_attribute"
                " WHERE dbid = ? AND attrelid = ? AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
            attributes = tuple(registry.Attribute(*row) for row in rows(cursor, sql, [self._database, relation]))
            above = frozenset(_tables_above(cursor, self._database, relation))
        shown = quote_ident(name) if schema in places else f"{quote_ident(schema)}.{quote_ident(name)}"
        return (
            PgType(
                oid, name, schema, TypeKind.COMPOSITE, "C", False, -1, False, ",", 0, array, 0, -1, 0, relation, False, shown, shown,
                attributes=attributes, of_table=True, above=above,
            ),
            PgType(
                array, array_name, schema, TypeKind.BASE, "A", False, -1, False, ",", oid, 0, 0, -1, 0, 0, False, f"{shown}[]", f"{shown}[]"
            ),
        )  # fmt: skip


def _tables_above(cursor: Cursor, database: int, relation: int) -> Iterator[int]:
    for (parent,) in rows(cursor, "SELECT inhparent FROM hg.pg_inherits WHERE dbid = ? AND inhrelid = ?", [database, relation]):
        yield parent
        yield from _tables_above(cursor, database, parent)
