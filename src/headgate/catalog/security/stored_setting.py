"""Settings that are stored for roles and databases (pg_db_role_setting) by ALTER ROLE … SET and ALTER DATABASE … SET.

Sessions start with them (`in_force`). The oid 0 stands for all roles, or all databases.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.catalog.physical import Cursor, delete, insert, one, run, update

_WHERE = "setdatabase = ? AND setrole = ?"


def of(cursor: Cursor, database: int, role: int) -> dict[str, str]:
    row = one(cursor, f"SELECT setconfig FROM hg.pg_db_role_setting WHERE {_WHERE}", [database, role])
    return dict(_pair(item) for item in row[0]) if row is not None else {}


def store(cursor: Cursor, database: int, role: int, values: dict[str, str]) -> None:
    """Write all values of a role in a database. Without values, delete the row."""
    items = [f"{name}={value}" for name, value in values.items()]
    has_row = one(cursor, f"SELECT 1 FROM hg.pg_db_role_setting WHERE {_WHERE}", [database, role]) is not None
    if not items:
        run(cursor, f"DELETE FROM hg.pg_db_role_setting WHERE {_WHERE}", [database, role])
    elif has_row:
        update(cursor, "pg_db_role_setting", {"setdatabase": database, "setrole": role}, setconfig=items)
    else:
        insert(cursor, "pg_db_role_setting", setdatabase=database, setrole=role, setconfig=items)


def in_force(cursor: Cursor, database: int, role: int) -> Iterator[tuple[str, str, str]]:
    """Yield (source, name, value) of the settings with which a session of the role in the database starts, with pg_settings' source."""
    for source, scope in (("global", (0, 0)), ("database", (database, 0)), ("user", (0, role)), ("database user", (database, role))):
        for name, value in of(cursor, *scope).items():
            yield source, name, value


def forget_role(cursor: Cursor, role: int) -> None:
    delete(cursor, "pg_db_role_setting", setrole=role)


def forget_database(cursor: Cursor, database: int) -> None:
    delete(cursor, "pg_db_role_setting", setdatabase=database)


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value
