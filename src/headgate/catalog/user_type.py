"""User-defined types (pg_type and pg_enum from oid 16384): a registry of them, and the rows of enum types.

Sessions call `KnownTypes.use` before each statement, and workers before each batch. It activates the database's types for the thread
(`headgate.types.registry.use`). The functions that change rows are called by the commands on types, inside their transaction. What must
hold: after changing a type's rows, a command calls `Catalog.types_changed` at once, and again when the transaction ends, so that every
thread reads the types again (`Catalog.type_changes` counts the calls).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headgate.catalog import constraint, namespace
from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, Oids, delete, insert, one, rows, run, update
from headgate.catalog.pretty import pretty
from headgate.errors import PostgresError
from headgate.sql.names import quote_ident
from headgate.types import registry
from headgate.types.registry import PgType, TypeKind, TypeRegistry

if TYPE_CHECKING:
    from headgate.catalog.catalog import Catalog

_TYPE, _NAMESPACE = 1247, 2615
NAME_LENGTH = 63


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


@dataclass(frozen=True)
class TypeRow:
    """A row of pg_type. `relation` is the table whose row type it is, or 0."""

    oid: int
    name: str
    namespace: int
    owner: int
    kind: str
    array: int
    relation: int
    builtin: bool


@dataclass(frozen=True)
class Domain:
    """The definition of a domain. `default`: the stored text, and the text to show. `checks`: (name or None, stored text)."""

    base: int
    modifier: int
    not_null: bool = False
    default: tuple[str, str] | tuple[None, None] = (None, None)
    checks: Sequence[tuple[str | None, str]] = ()


_COLUMNS = "oid, typname, typnamespace, typowner, typtype, typarray, typrelid, dbid"


def lookup(cursor: Cursor, database: int, namespace_oid: int, name: str) -> TypeRow | None:
    return _with_array(cursor, database, namespace_oid, name).get(name)


def _with_array(cursor: Cursor, database: int, namespace_oid: int, name: str) -> dict[str, TypeRow]:
    """Return, by name, the type with this name in a schema and the type with the usual name of its array type, if they exist.

    CREATE TABLE and CREATE TYPE need both, and a query takes a millisecond.
    """
    sql = f"SELECT {_COLUMNS} FROM hg.pg_type WHERE dbid IN (0, ?) AND typnamespace = ? AND typname IN (?, ?)"
    types = [_type_row(row) for row in rows(cursor, sql, [database, namespace_oid, name, _cut("_" + name)])]
    return {found_type.name: found_type for found_type in types}


def _type_row(row: Row) -> TypeRow:
    oid, name, namespace_oid, owner, kind, array, relation, database = row
    return TypeRow(oid, name, namespace_oid, owner, kind, array, relation, database == 0)


def find(cursor: Cursor, database: int, oid: int) -> TypeRow | None:
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_type WHERE dbid = ? AND oid = ?", [database, oid])
    return None if row is None else _type_row(row)


def of_relation(cursor: Cursor, database: int, relation: int) -> TypeRow | None:
    """Return the row type of a relation, or None for an index or a sequence."""
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_type WHERE dbid = ? AND typrelid = ?", [database, relation])
    return None if row is None else _type_row(row)


def require_free(cursor: Cursor, database: int, namespace_oid: int, name: str) -> None:
    """Raise 42710 if the schema has a type with this name. Rename an array type that has the name."""
    existing = lookup(cursor, database, namespace_oid, name)
    if existing is None:
        return
    element = one(cursor, "SELECT typname FROM hg.pg_type WHERE dbid = ? AND typarray = ?", [database, existing.oid])
    if element is None or existing.builtin:
        raise PostgresError("42710", f'type "{name}" already exists')
    set_column(cursor, database, existing.oid, "typname", array_name(cursor, database, namespace_oid, element[0]))


def array_name(cursor: Cursor, database: int, namespace_oid: int, name: str) -> str:
    """Return the name of the array type over `name` (makeArrayTypeName). Underscores are prepended until it is free."""
    candidate = "_" + name
    if _cut(candidate) in _with_array(cursor, database, namespace_oid, name):
        while lookup(cursor, database, namespace_oid, _cut(candidate)) is not None:
            candidate = "_" + candidate
    return _cut(candidate)


def _cut(name: str) -> str:
    return name.encode()[:NAME_LENGTH].decode(errors="ignore")


def _insert_array(cursor: Cursor, database: int, own: int, array: int, name: str, **common: object) -> None:
    """Insert the array type of a new type, and the dependencies of both. `common`: the columns that both have."""
    insert(
        cursor, "pg_type", dbid=database, oid=array, typname=name, typlen=-1, typtype="b", typcategory="A", typelem=own, typsubscript=6179,
        typinput=750, typoutput=751, typreceive=2400, typsend=2401, typanalyze=3816, typstorage="x", **common,
    )  # fmt: skip
    schema = common["typnamespace"]
    insert(cursor, "pg_depend", dbid=database, classid=_TYPE, objid=own, refclassid=_NAMESPACE, refobjid=schema, deptype="n")
    insert(cursor, "pg_depend", dbid=database, classid=_TYPE, objid=array, refclassid=_TYPE, refobjid=own, deptype="i")


def create_enum(cursor: Cursor, oids: Oids, database: int, namespace_oid: int, name: str, owner: int, labels: Sequence[str]) -> None:
    """Create an enum type and its array type. Raise 42710 for a name in use, 42602 and 23505 for invalid labels."""
    require_free(cursor, database, namespace_oid, name)
    over = array_name(cursor, database, namespace_oid, name)
    array, own = oids(), oids()
    for label in labels:
        check_label(label)
    for index, label in enumerate(labels):
        if label in labels[:index]:
            raise PostgresError(
                "23505", 'duplicate key value violates unique constraint "pg_enum_typid_label_index"',
                detail=f"Key (enumtypid, enumlabel)=({own}, {label}) already exists.",
                schema="pg_catalog", table="pg_enum", constraint="pg_enum_typid_label_index",
            )  # fmt: skip
    common = {"typnamespace": namespace_oid, "typowner": owner, "typisdefined": True, "typdelim": ",", "typalign": "i", "typtypmod": -1}
    insert(
        cursor, "pg_type", dbid=database, oid=own, typname=name, typlen=4, typbyval=True, typtype="e", typcategory="E", typarray=array,
        typinput=_function(cursor, "enum_in"), typoutput=_function(cursor, "enum_out"), typreceive=_function(cursor, "enum_recv"),
        typsend=_function(cursor, "enum_send"), typstorage="p", **common,
    )  # fmt: skip
    _insert_array(cursor, database, own, array, over, **common)
    for position, label in enumerate(labels, 1):
        insert(cursor, "pg_enum", dbid=database, oid=oids(), enumtypid=own, enumsortorder=float(position), enumlabel=label)


def create_domain(cursor: Cursor, oids: Oids, database: int, namespace_oid: int, name: str, owner: int, domain: Domain) -> None:
    """Create a domain and its array type. Raise 42710 for a name in use."""
    require_free(cursor, database, namespace_oid, name)
    over = array_name(cursor, database, namespace_oid, name)
    array, own = oids(), oids()
    sql = (
        "SELECT typlen, typbyval, typcategory, typdelim, typalign, typstorage, typsend, typoutput, typanalyze, typcollation"
        " FROM hg.pg_type WHERE dbid IN (0, ?) AND oid = ?"
    )
    base_row = one(cursor, sql, [database, domain.base])
    assert base_row is not None
    length, by_value, category, delimiter, align, storage, send, output, analyze, collation = base_row
    common = {"typnamespace": namespace_oid, "typowner": owner, "typisdefined": True, "typdelim": delimiter, "typcollation": collation}
    insert(
        cursor, "pg_type", dbid=database, oid=own, typname=name, typlen=length, typbyval=by_value, typtype="d", typcategory=category,
        typarray=array, typbasetype=domain.base, typtypmod=domain.modifier, typnotnull=domain.not_null, typdefaultbin=domain.default[0],
        typdefault=domain.default[1], typinput=_function(cursor, "domain_in"), typoutput=output,
        typreceive=_function(cursor, "domain_recv"), typsend=send, typanalyze=analyze, typalign=align, typstorage=storage, **common,
    )  # fmt: skip
    _insert_array(cursor, database, own, array, over, typalign="d" if align == "d" else "i", typtypmod=-1, **common)
    for label, text in domain.checks:
        add_check(cursor, oids, database, own, namespace_oid, label or check_name(cursor, database, own, name), text)


def default_of(cursor: Cursor, database: int, domain: int) -> tuple[str, str] | tuple[None, None]:
    """Return the default of a domain, as in `Domain`."""
    row = one(cursor, "SELECT typdefaultbin, typdefault FROM hg.pg_type WHERE dbid = ? AND oid = ?", [database, domain])
    return (None, None) if row is None else (row[0], row[1])


def check_name(cursor: Cursor, database: int, domain: int, name: str) -> str:
    """Return PostgreSQL's choice of name for a CHECK of a domain: name_check, then name_check1 and so on."""
    used_names = {
        used_name
        for (used_name,) in rows(cursor, "SELECT conname FROM hg.pg_constraint WHERE dbid = ? AND contypid = ?", [database, domain])
    }
    candidates = (f"{name}_check{number or ''}" for number in range(len(used_names) + 1))
    return next(candidate for candidate in candidates if candidate not in used_names)


def add_check(
    cursor: Cursor, oids: Oids, database: int, domain: int, namespace_oid: int, name: str, text: str, *, validated: bool = True
) -> None:
    """Add a CHECK to a domain. Raise 42710 for a name in use."""
    if find_check(cursor, database, domain, name):
        raise PostgresError("42710", f'constraint "{name}" for domain "{registry.known().by_oid(domain).name}" already exists')
    insert(
        cursor, "pg_constraint", dbid=database, oid=oids(), conname=name, connamespace=namespace_oid, contype="c", convalidated=validated,
        contypid=domain, conislocal=True, conbin=text, conbinpretty=pretty(text),
    )  # fmt: skip


def find_check(cursor: Cursor, database: int, domain: int, name: str) -> tuple[int, bool] | None:
    """Return the oid of a domain's CHECK, and whether all values satisfy it (it is not NOT VALID). None if there is none."""
    sql = "SELECT oid, convalidated FROM hg.pg_constraint WHERE dbid = ? AND contypid = ? AND conname = ?"
    row = one(cursor, sql, [database, domain, name])
    return None if row is None else (row[0], row[1])


def change_check(cursor: Cursor, database: int, check: int, **values: object) -> None:
    """Change columns of pg_constraint for a CHECK of a domain."""
    update(cursor, "pg_constraint", {"dbid": database, "oid": check}, **values)


def drop_check(cursor: Cursor, database: int, domain: int, name: str) -> bool:
    """Drop a CHECK of a domain. Return whether it existed."""
    check = find_check(cursor, database, domain, name)
    constraint.delete(cursor, database, "contypid = ? AND conname = ?", [domain, name])
    return check is not None


def domains_over(cursor: Cursor, database: int, types: Sequence[int]) -> list[TypeRow]:
    """Return the domains whose base type is one of these types."""
    marks = ", ".join("?" for _ in types)
    return _type_rows(cursor, database, f"typtype = 'd' AND typbasetype IN ({marks})", types)


def composites_with(cursor: Cursor, database: int, types: Sequence[int]) -> list[TypeRow]:
    """Return the composite types that have an attribute of one of these types."""
    relations = [relation for relation, *_ in columns_of(cursor, database, types, "c")]
    return _type_rows(cursor, database, f"typrelid IN ({', '.join('?' for _ in relations)})", relations) if relations else []


def _type_rows(cursor: Cursor, database: int, condition: str, parameters: Sequence[int]) -> list[TypeRow]:
    columns = "oid, typname, typnamespace, typowner, typtype, typarray, typrelid, false"
    found = rows(cursor, f"SELECT {columns} FROM hg.pg_type WHERE dbid = ? AND {condition} ORDER BY oid", [database, *parameters])
    return [TypeRow(*row) for row in found]


def _function(cursor: Cursor, name: str) -> int:
    function = one(cursor, "SELECT oid FROM hg.pg_proc WHERE dbid = 0 AND proname = ?", [name])
    return 0 if function is None else int(function[0])


def check_label(label: str) -> None:
    """Raise 42602 for a label of more than 63 bytes."""
    if len(label.encode()) > NAME_LENGTH:
        raise PostgresError("42602", f'invalid enum label "{label}"', detail=f"Labels must be {NAME_LENGTH} bytes or less.")


def labels_of(cursor: Cursor, database: int, oid: int) -> list[tuple[str, float]]:
    """Return (label, enumsortorder) of an enum type, in order."""
    return rows(
        cursor, "SELECT enumlabel, enumsortorder FROM hg.pg_enum WHERE dbid = ? AND enumtypid = ? ORDER BY enumsortorder", [database, oid]
    )


def add_label(cursor: Cursor, oids: Oids, database: int, oid: int, label: str, neighbour: str | None, *, after: bool) -> None:
    """Add a label after all others, or before or after a neighbour. Raise 22023 if that label does not exist."""
    labels = labels_of(cursor, database, oid)
    order: float | None
    if neighbour is None:
        order = labels[-1][1] + 1 if labels else 1.0
    else:
        index = next((index for index, (name, _) in enumerate(labels) if name == neighbour), None)
        if index is None:
            raise PostgresError("22023", f'"{neighbour}" is not an existing enum label')
        order = _between(labels, index + 1 if after else index)
        if order is None:
            _renumber(cursor, database, oid, labels)
            add_label(cursor, oids, database, oid, label, neighbour, after=after)
            return
    insert(cursor, "pg_enum", dbid=database, oid=oids(), enumtypid=oid, enumsortorder=order, enumlabel=label)


def _between(held: Sequence[tuple[str, float]], place: int) -> float | None:
    """Return a float4 between those of the labels around a position, or None if there is none left."""
    if place == 0:
        return held[0][1] - 1
    if place == len(held):
        return held[-1][1] + 1
    low, high = np.float32(held[place - 1][1]), np.float32(held[place][1])
    middle = np.float32((low + high) / np.float32(2))
    return None if middle in (low, high) else float(middle)


def _renumber(cursor: Cursor, database: int, oid: int, held: Sequence[tuple[str, float]]) -> None:
    for position, (name, _) in enumerate(held, 1):
        sql = "UPDATE hg.pg_enum SET enumsortorder = ? WHERE dbid = ? AND enumtypid = ? AND enumlabel = ?"  # claims no order: all change
        run(cursor, sql, [float(position), database, oid, name])


def rename_label(cursor: Cursor, database: int, oid: int, label: str, new_label: str) -> None:
    """Rename a label. Raise 22023 if it does not exist, 42710 if the new label is in use."""
    labels = [name for name, _ in labels_of(cursor, database, oid)]
    if label not in labels:
        raise PostgresError("22023", f'"{label}" is not an existing enum label')
    if new_label in labels:
        raise PostgresError("42710", f'enum label "{new_label}" already exists')
    update(cursor, "pg_enum", {"dbid": database, "enumtypid": oid, "enumlabel": label}, enumlabel=new_label)


def rename(cursor: Cursor, database: int, type_row: TypeRow, name: str) -> None:
    require_free(cursor, database, type_row.namespace, name)
    set_column(cursor, database, type_row.oid, "typname", name)
    _set_relation(cursor, database, type_row, relname=name)
    if type_row.array:
        set_column(cursor, database, type_row.array, "typname", array_name(cursor, database, type_row.namespace, name))


def set_schema(cursor: Cursor, database: int, type_row: TypeRow, namespace_oid: int) -> None:
    """Move a type and its array type to another schema. Raise 42710 if a name is in use there."""
    if namespace_oid == type_row.namespace:
        return
    over = one(cursor, "SELECT typname FROM hg.pg_type WHERE dbid = ? AND oid = ?", [database, type_row.array])
    for name in (type_row.name, *(over or ())):
        if lookup(cursor, database, namespace_oid, name) is not None:
            raise PostgresError("42710", f'type "{name}" already exists in schema "{namespace.name_of(cursor, database, namespace_oid)}"')
    for oid in (type_row.oid, type_row.array):
        set_column(cursor, database, oid, "typnamespace", namespace_oid)
    _set_relation(cursor, database, type_row, relnamespace=namespace_oid)
    update(
        cursor, "pg_depend", {"dbid": database, "classid": _TYPE, "objid": type_row.oid, "refclassid": _NAMESPACE}, refobjid=namespace_oid
    )


def set_owner(cursor: Cursor, database: int, type_row: TypeRow, owner: int) -> None:
    """Change the owner of a type and its array type."""
    for oid in (type_row.oid, type_row.array):
        set_column(cursor, database, oid, "typowner", owner)
    _set_relation(cursor, database, type_row, relowner=owner)


def drop(cursor: Cursor, database: int, type_row: TypeRow) -> None:
    """Delete a type, its array type, its labels and its comment. The caller must drop dependent objects before."""
    delete(cursor, "pg_enum", dbid=database, enumtypid=type_row.oid)
    constraint.delete(cursor, database, "contypid = ?", [type_row.oid])
    for oid in (type_row.oid, type_row.array):
        delete(cursor, "pg_type", dbid=database, oid=oid)
        delete(cursor, "pg_depend", dbid=database, classid=_TYPE, objid=oid)
        delete(cursor, "pg_description", dbid=database, classoid=_TYPE, objoid=oid)


def columns_of(cursor: Cursor, database: int, types: Sequence[int], kinds: str = "rp") -> list[tuple[int, str, int]]:
    """Return (relation, column, type) of the live columns of tables, or of composite types (`kinds`), whose type is one of these."""
    marks = ", ".join("?" for _ in types)
    return rows(
        cursor,
        "SELECT a.attrelid, a.attname, a.atttypid FROM hg.pg_attribute a JOIN hg.pg_class c ON c.oid = a.attrelid AND c.dbid = a.dbid"
        f" WHERE a.dbid = ? AND NOT a.attisdropped AND contains(?, c.relkind) AND a.atttypid IN ({marks}) ORDER BY a.attrelid, a.attnum",
        [database, kinds, *types],
    )


def of_schema(cursor: Cursor, database: int, namespace_oid: int) -> list[TypeRow]:
    """Return the enums, domains and composite types of a schema."""
    type_rows = rows(
        cursor,
        "SELECT t.oid, typname, typnamespace, typowner, typtype, typarray, typrelid, false FROM hg.pg_type t"
        " LEFT JOIN hg.pg_class c ON c.dbid = t.dbid AND c.oid = t.typrelid"
        " WHERE t.dbid = ? AND typnamespace = ? AND (typtype IN ('e', 'd') OR relkind = 'c') ORDER BY t.oid",
        [database, namespace_oid],
    )
    return [TypeRow(*type_row) for type_row in type_rows]


def _set_relation(cursor: Cursor, database: int, type_row: TypeRow, **columns: object) -> None:
    """Set columns of the row of pg_class of a composite type."""
    if type_row.relation:
        update(cursor, "pg_class", {"dbid": database, "oid": type_row.relation}, **columns)


def set_column(cursor: Cursor, database: int, oid: int, column: str, value: object) -> None:
    update(cursor, "pg_type", {"dbid": database, "oid": oid}, **{column: value})
