"""Databases (pg_database) and copying a template's catalog rows."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog import physical
from headgate.catalog.physical import Cursor, insert, one, rows, run, update
from headgate.catalog.security import acl, stored_setting
from headgate.errors import PostgresError


@dataclass(frozen=True)
class Database:
    """A database of the node."""

    oid: int
    name: str
    owner: int
    is_template: bool
    allow_connections: bool
    connection_limit: int


_COLUMNS = "oid, datname, datdba, datistemplate, datallowconn, datconnlimit"


def lookup(cursor: Cursor, name: str) -> Database | None:
    """The database of this name, or None."""
    found = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_database WHERE datname = ?", [name])
    return None if found is None else Database(*found)


def find(cursor: Cursor, oid: int) -> Database | None:
    """The database with this oid, or None."""
    found = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_database WHERE oid = ?", [oid])
    return None if found is None else Database(*found)


def get(cursor: Cursor, name: str) -> Database:
    """The database of this name; 3D000 if there is none."""
    found = lookup(cursor, name)
    if found is None:
        raise PostgresError("3D000", f'database "{name}" does not exist')
    return found


def all_databases(cursor: Cursor) -> list[Database]:
    """All databases by name."""
    return [Database(*row) for row in rows(cursor, f"SELECT {_COLUMNS} FROM hg.pg_database ORDER BY datname")]


def create(cursor: Cursor, oid: int, name: str, owner: int, template: str = "template1") -> Database:
    """CREATE DATABASE: copies the template's catalog rows (its tables' data are the caller's). 42P04 if the name is in use."""
    if lookup(cursor, name) is not None:
        raise PostgresError("42P04", f'database "{name}" already exists')
    source = lookup(cursor, template)
    if source is None:
        raise PostgresError("3D000", f'template database "{template}" does not exist')
    insert(
        cursor, "pg_database", oid=oid, datname=name, datdba=owner, encoding=6, datlocprovider="c", datallowconn=True, datconnlimit=-1,
        datfrozenxid=700, datminmxid=1, dattablespace=1663, datcollate="C", datctype="C",
    )  # fmt: skip
    for table in _per_database(cursor):
        run(cursor, f"INSERT INTO hg.{table} SELECT ? AS dbid, * EXCLUDE (dbid) FROM hg.{table} WHERE dbid = ?", [oid, source.oid])
    found = find(cursor, oid)
    assert found is not None
    return found


def drop(cursor: Cursor, oid: int) -> None:
    """DROP DATABASE: removes the database and every catalog row of it; whether that is allowed has been checked."""
    for table in _per_database(cursor):
        run(cursor, f"DELETE FROM hg.{table} WHERE dbid = ?", [oid])
    run(cursor, "DELETE FROM hg.history WHERE dbid = ?", [oid])
    stored_setting.forget_database(cursor, oid)
    run(cursor, "DELETE FROM hg.pg_database WHERE oid = ?", [oid])


def rename(cursor: Cursor, oid: int, name: str) -> None:
    """ALTER DATABASE … RENAME TO; 42P04 if the name is in use."""
    if lookup(cursor, name) is not None:
        raise PostgresError("42P04", f'database "{name}" already exists')
    update(cursor, "pg_database", {"oid": oid}, datname=name)


def set_owner(cursor: Cursor, oid: int, owner: int) -> None:
    """ALTER DATABASE … OWNER TO."""
    acl.give(cursor, "pg_database", oid, owner)


def _per_database(_cursor: Cursor) -> list[str]:
    """The tables with a `dbid` that CREATE DATABASE copies and DROP DATABASE empties."""
    found = [table.name for table in physical.tables().values() if not table.shared]
    return [*found, "partition_ancestor", "sequence_state"]
