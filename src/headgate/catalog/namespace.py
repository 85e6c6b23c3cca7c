"""Schemas (pg_namespace) and the resolution of a search_path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, delete, insert, one, rows, update
from headgate.catalog.security import acl, rights
from headgate.catalog.security.role import READ_ALL_DATA, WRITE_ALL_DATA
from headgate.errors import PostgresError, existing

PG_CATALOG = 11
DATABASE_OWNER = 6171
"""The oid of pg_database_owner."""


@dataclass(frozen=True)
class Namespace:
    """A schema."""

    oid: int
    name: str
    owner: int


def lookup(cursor: Cursor, database: int, name: str) -> Namespace | None:
    row = one(cursor, "SELECT oid, nspname, nspowner FROM hg.pg_namespace WHERE dbid IN (0, ?) AND nspname = ?", [database, name])
    return None if row is None else Namespace(*row)


def find(cursor: Cursor, database: int, oid: int) -> Namespace | None:
    row = one(cursor, "SELECT oid, nspname, nspowner FROM hg.pg_namespace WHERE dbid IN (0, ?) AND oid = ?", [database, oid])
    return None if row is None else Namespace(*row)


def get(cursor: Cursor, database: int, name: str) -> Namespace:
    """Return the schema with this name. Raise 3F000 if it does not exist."""
    return existing(lookup(cursor, database, name), "3F000", f'schema "{name}"')


def name_of(cursor: Cursor, database: int, oid: int) -> str:
    """Return the name of a schema, or "" if it does not exist."""
    schema = find(cursor, database, oid)
    return "" if schema is None else schema.name


def names(cursor: Cursor, database: int) -> list[str]:
    return [name for (name,) in rows(cursor, "SELECT nspname FROM hg.pg_namespace WHERE dbid IN (0, ?) ORDER BY nspname", [database])]


def create(cursor: Cursor, oid: int, database: int, name: str, owner: int) -> Namespace:
    """Create a schema. Raise 42939 for a reserved name, 42P06 for a name in use."""
    if name.startswith("pg_"):
        raise PostgresError("42939", f'unacceptable schema name "{name}"', detail='The prefix "pg_" is reserved for system schemas.')
    require_free(cursor, database, name)
    return make(cursor, oid, database, name, owner)


def make(cursor: Cursor, oid: int, database: int, name: str, owner: int) -> Namespace:
    """Write the row of a schema, which may have a reserved name."""
    insert(cursor, "pg_namespace", dbid=database, oid=oid, nspname=name, nspowner=owner)
    return Namespace(oid, name, owner)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    """Delete the row of a schema and its membership in publications. The caller must drop its contents first."""
    delete(cursor, "pg_namespace", dbid=database, oid=oid)
    delete(cursor, "pg_publication_namespace", dbid=database, pnnspid=oid)


def require_free(cursor: Cursor, database: int, name: str) -> None:
    """Raise 42P06 if a schema has the name."""
    if lookup(cursor, database, name) is not None:
        raise PostgresError("42P06", f'schema "{name}" already exists')


def rename(cursor: Cursor, database: int, oid: int, name: str) -> None:
    """Rename a schema to a free name. Raise 42939 for a reserved name."""
    if name.startswith("pg_"):
        raise PostgresError("42939", f'unacceptable schema name "{name}"', detail='The prefix "pg_" is reserved for system schemas.')
    update(cursor, "pg_namespace", {"dbid": database, "oid": oid}, nspname=name)


def set_owner(cursor: Cursor, database: int, oid: int, owner: int) -> None:
    acl.give(cursor, "pg_namespace", oid, owner, database)


def effective(cursor: Cursor, database: int, user: str, search_path: Iterable[str], temporary: str | None = None) -> dict[str, int]:
    """Return the existing schemas of a search_path, with their oids: those with USAGE for the user, and the session's temporary one.

    `$user` is replaced, and the implicit pg_catalog is not included, as in current_schemas(false).
    """
    schemas = dict(rows(cursor, "SELECT nspname, oid FROM hg.pg_namespace WHERE dbid IN (0, ?)", [database]))
    path = [user if entry == "$user" else entry for entry in search_path]
    path_schemas = {name: schemas[name] for name in path if name in schemas}
    if rights.one(cursor, "SELECT 1 FROM hg.pg_authid WHERE rolname = ? AND rolsuper", [user]):
        return path_schemas
    return {name: oid for name, oid in path_schemas.items() if name == temporary or may(cursor, user, database, oid, "USAGE")}


def may(cursor: Cursor, role: str, database: int, oid: int, privilege: str) -> bool:
    """Return whether a role has a privilege (CREATE, USAGE) on a schema."""
    row = rights.one(
        cursor,
        "SELECT n.nspowner, n.nspacl, d.datdba FROM hg.pg_namespace n LEFT JOIN hg.pg_database d ON d.oid = ?"
        " WHERE n.oid = ? AND n.dbid IN (0, ?)",
        [database, oid, database],
    )
    if row is None:
        return True
    owner, items, database_owner = row
    who = with_database_owner(cursor, acl.role(cursor, role), database_owner)
    if privilege == "USAGE" and not who.roles.isdisjoint((READ_ALL_DATA, WRITE_ALL_DATA)):
        return True
    return who.may(acl.letter(privilege), owner, acl.read(items, "n", acl.role_name(cursor, owner)))


def check_use(cursor: Cursor, role: str, database: int, name: str) -> None:
    """Raise 42501 `permission denied for schema s` if the schema exists and the role has no USAGE on it."""
    schema = lookup(cursor, database, name)
    if schema is not None and not may(cursor, role, database, schema.oid, "USAGE"):
        raise PostgresError("42501", f"permission denied for schema {name}")


def with_database_owner(cursor: Cursor, who: acl.RoleRights, database_owner: int) -> acl.RoleRights:
    """Add pg_database_owner to the roles of the owner of the current database, its only member."""
    if database_owner not in who.roles:
        return who
    names = who.names | {acl.role_name(cursor, DATABASE_OWNER)}
    return acl.RoleRights(who.name, who.oid, who.superuser, who.roles | {DATABASE_OWNER}, names)
