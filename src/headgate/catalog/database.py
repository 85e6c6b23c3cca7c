"""Databases (pg_database) and copying a template's catalog rows."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog import physical
from headgate.catalog.physical import Cursor, delete, insert, one, rows, run, update
from headgate.catalog.security import acl, stored_setting
from headgate.errors import PostgresError, existing


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
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_database WHERE datname = ?", [name])
    return None if row is None else Database(*row)


def find(cursor: Cursor, oid: int) -> Database | None:
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_database WHERE oid = ?", [oid])
    return None if row is None else Database(*row)


def get(cursor: Cursor, name: str) -> Database:
    """Return the database with this name. Raise 3D000 if it does not exist."""
    return existing(lookup(cursor, name), "3D000", f'database "{name}"')


def all_databases(cursor: Cursor) -> list[Database]:
    return [Database(*row) for row in rows(cursor, f"SELECT {_COLUMNS} FROM hg.pg_database ORDER BY datname")]


def create(cursor: Cursor, oid: int, name: str, owner: int, template: str = "template1") -> None:
    """Create a database with the template's catalog rows. The caller copies the tables' data. Raise 42P04 if the name is in use."""
    if lookup(cursor, name) is not None:
        raise PostgresError("42P04", f'database "{name}" already exists')
    source = existing(lookup(cursor, template), "3D000", f'template database "{template}"')
    insert(
        cursor, "pg_database", oid=oid, datname=name, datdba=owner, encoding=6, datlocprovider="c", datallowconn=True, datconnlimit=-1,
        datfrozenxid=700, datminmxid=1, dattablespace=1663, datcollate="C", datctype="C",
    )  # fmt: skip
    for table in _per_database(cursor):
        run(cursor, f"INSERT INTO hg.{table} SELECT ? AS dbid, * EXCLUDE (dbid) FROM hg.{table} WHERE dbid = ?", [oid, source.oid])


def drop(cursor: Cursor, oid: int) -> None:
    """Delete a database and all its catalog rows. The caller has checked that this is allowed."""
    for table in _per_database(cursor):
        run(cursor, f"DELETE FROM hg.{table} WHERE dbid = ?", [oid])
    delete(cursor, "history", dbid=oid)
    stored_setting.forget_database(cursor, oid)
    delete(cursor, "pg_database", oid=oid)


def rename(cursor: Cursor, oid: int, name: str) -> None:
    """Rename a database. Raise 42P04 if the name is in use."""
    if lookup(cursor, name) is not None:
        raise PostgresError("42P04", f'database "{name}" already exists')
    update(cursor, "pg_database", {"oid": oid}, datname=name)


def set_owner(cursor: Cursor, oid: int, owner: int) -> None:
    acl.give(cursor, "pg_database", oid, owner)


def _per_database(_cursor: Cursor) -> list[str]:
    """Return the tables with a `dbid` that CREATE DATABASE copies and DROP DATABASE empties."""
    catalogs = [table.name for table in physical.tables().values() if not table.shared]
    return [*catalogs, "partition_ancestor", "sequence_state"]
