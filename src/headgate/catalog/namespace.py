"""Schemas (pg_namespace) and what a search_path means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.catalog.physical import Cursor, insert, one, rows, run, update
from headgate.catalog.security import acl, rights
from headgate.catalog.security.role import READ_ALL_DATA, WRITE_ALL_DATA
from headgate.errors import PostgresError

PG_CATALOG = 11
PUBLIC = 2200
DATABASE_OWNER = 6171
"""The oid of pg_database_owner."""


@dataclass(frozen=True)
class Namespace:
    """A schema."""

    oid: int
    name: str
    owner: int


def lookup(cursor: Cursor, database: int, name: str) -> Namespace | None:
    """The schema of this name, or None."""
    found = one(cursor, "SELECT oid, nspname, nspowner FROM hg.pg_namespace WHERE dbid IN (0, ?) AND nspname = ?", [database, name])
    return None if found is None else Namespace(*found)


def find(cursor: Cursor, database: int, oid: int) -> Namespace | None:
    """The schema with this oid, or None."""
    found = one(cursor, "SELECT oid, nspname, nspowner FROM hg.pg_namespace WHERE dbid IN (0, ?) AND oid = ?", [database, oid])
    return None if found is None else Namespace(*found)


def get(cursor: Cursor, database: int, name: str) -> Namespace:
    """The schema of this name; 3F000 if there is none."""
    found = lookup(cursor, database, name)
    if found is None:
        raise PostgresError("3F000", f'schema "{name}" does not exist')
    return found


def names(cursor: Cursor, database: int) -> list[str]:
    """The names of all schemas of a database."""
    return [name for (name,) in rows(cursor, "SELECT nspname FROM hg.pg_namespace WHERE dbid IN (0, ?) ORDER BY nspname", [database])]


def create(cursor: Cursor, oid: int, database: int, name: str, owner: int) -> Namespace:
    """CREATE SCHEMA; 42939 for a reserved name, 42P06 for one in use."""
    if name.startswith("pg_"):
        raise PostgresError("42939", f'unacceptable schema name "{name}"', detail='The prefix "pg_" is reserved for system schemas.')
    require_free(cursor, database, name)
    return make(cursor, oid, database, name, owner)


def make(cursor: Cursor, oid: int, database: int, name: str, owner: int) -> Namespace:
    """Writes the row of a schema, whose name may be a reserved one."""
    insert(cursor, "pg_namespace", dbid=database, oid=oid, nspname=name, nspowner=owner)
    return Namespace(oid, name, owner)


def drop(cursor: Cursor, database: int, oid: int) -> None:
    """Removes the row of a schema and its membership in publications; what it holds is the caller's to drop first."""
    run(cursor, "DELETE FROM hg.pg_namespace WHERE dbid = ? AND oid = ?", [database, oid])
    run(cursor, "DELETE FROM hg.pg_publication_namespace WHERE dbid = ? AND pnnspid = ?", [database, oid])


def require_free(cursor: Cursor, database: int, name: str) -> None:
    """42P06 if a schema has the name."""
    if lookup(cursor, database, name) is not None:
        raise PostgresError("42P06", f'schema "{name}" already exists')


def rename(cursor: Cursor, database: int, oid: int, name: str) -> None:
    """ALTER SCHEMA … RENAME TO a name that is free; 42939."""
    if name.startswith("pg_"):
        raise PostgresError("42939", f'unacceptable schema name "{name}"', detail='The prefix "pg_" is reserved for system schemas.')
    update(cursor, "pg_namespace", {"dbid": database, "oid": oid}, nspname=name)


def set_owner(cursor: Cursor, database: int, oid: int, owner: int) -> None:
    """ALTER SCHEMA … OWNER TO."""
    acl.give(cursor, "pg_namespace", oid, owner, database)


def effective(cursor: Cursor, database: int, user: str, search_path: Iterable[str], temporary: str | None = None) -> list[str]:
    """The schemas along a search_path that exist, `$user` replaced, without the implicit pg_catalog: current_schemas(false)."""
    return list(effective_oids(cursor, database, user, search_path, temporary))


def effective_oids(cursor: Cursor, database: int, user: str, search_path: Iterable[str], temporary: str | None = None) -> dict[str, int]:
    """As `effective`, with the oids of the schemas: those that the user may use, and the session's temporary one."""
    known = dict(rows(cursor, "SELECT nspname, oid FROM hg.pg_namespace WHERE dbid IN (0, ?)", [database]))
    path = [user if entry == "$user" else entry for entry in search_path]
    found = {name: known[name] for name in path if name in known}
    if rights.one(cursor, "SELECT 1 FROM hg.pg_authid WHERE rolname = ? AND rolsuper", [user]):
        return found
    return {name: oid for name, oid in found.items() if name == temporary or may(cursor, user, database, oid, "USAGE")}


def may(cursor: Cursor, role: str, database: int, oid: int, privilege: str) -> bool:
    """Whether a role has a right (CREATE, USAGE) on a schema."""
    found = rights.one(
        cursor,
        "SELECT n.nspowner, n.nspacl, d.datdba FROM hg.pg_namespace n LEFT JOIN hg.pg_database d ON d.oid = ?"
        " WHERE n.oid = ? AND n.dbid IN (0, ?)",
        [database, oid, database],
    )
    if found is None:
        return True
    owner, given, database_owner = found
    who = with_database_owner(cursor, acl.role(cursor, role), database_owner)
    if privilege == "USAGE" and not who.roles.isdisjoint((READ_ALL_DATA, WRITE_ALL_DATA)):
        return True
    return who.may(acl.letter(privilege), owner, acl.read(given, "n", acl.role_name(cursor, owner)))


def check_use(cursor: Cursor, role: str, database: int, name: str) -> None:
    """42501 `permission denied for schema s`, if there is one of this name."""
    found = lookup(cursor, database, name)
    if found is not None and not may(cursor, role, database, found.oid, "USAGE"):
        raise PostgresError("42501", f"permission denied for schema {name}")


def with_database_owner(cursor: Cursor, who: acl.RoleRights, database_owner: int) -> acl.RoleRights:
    """The owner of the current database is the member of pg_database_owner."""
    if database_owner not in who.roles:
        return who
    names = who.names | {acl.role_name(cursor, DATABASE_OWNER)}
    return acl.RoleRights(who.name, who.oid, who.superuser, who.roles | {DATABASE_OWNER}, names)
