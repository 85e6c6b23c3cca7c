"""User-defined types: the rows of pg_type and pg_enum from oid 16384.

The commands on types call the functions that change rows, inside their transaction. What must hold: after changing a type's rows, a command
calls `Catalog.types_changed` at once, and again when the transaction ends, so that every thread reads the types again (`known_types`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.catalog import constraint, namespace
from headgate.catalog.cursor import Row
from headgate.catalog.physical import Cursor, Oids, delete, insert, one, rows, run, update
from headgate.catalog.pretty import pretty
from headgate.errors import PostgresError
from headgate.types import registry

_TYPE, _NAMESPACE = 1247, 2615
NAME_LENGTH = 63


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
