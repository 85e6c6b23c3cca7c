"""Schemas (pg_namespace) and what a search_path means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.catalog import acl
from headgate.catalog.physical import Cursor, insert, one, rows, run, update
from headgate.errors import PostgresError

PG_CATALOG = 11
PUBLIC = 2200


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


def effective(cursor: Cursor, database: int, user: str, search_path: Iterable[str]) -> list[str]:
    """The schemas along a search_path that exist, `$user` replaced, without the implicit pg_catalog: current_schemas(false)."""
    return list(effective_oids(cursor, database, user, search_path))


def effective_oids(cursor: Cursor, database: int, user: str, search_path: Iterable[str]) -> dict[str, int]:
    """As `effective`, with the oids of the schemas."""
    known = dict(rows(cursor, "SELECT nspname, oid FROM hg.pg_namespace WHERE dbid IN (0, ?)", [database]))
    path = [user if entry == "$user" else entry for entry in search_path]
    return {name: known[name] for name in path if name in known}


def creation(cursor: Cursor, database: int, user: str, search_path: Iterable[str]) -> Namespace:
    """The schema in which an unqualified CREATE makes its object; 3F000 if none of the search_path exists."""
    found = [name for name in effective(cursor, database, user, search_path) if not name.startswith("pg_temp_")]
    if not found:
        raise PostgresError("3F000", "no schema has been selected to create in")
    return get(cursor, database, found[0])
