"""Row security policies (pg_policy)."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog.physical import Cursor, delete
from headgate.catalog.security.rights import rows

SELECT, INSERT, UPDATE, DELETE, ALL = "r", "a", "w", "d", "*"


@dataclass(frozen=True)
class Policy:
    """A row of pg_policy. `roles` contains 0 for PUBLIC."""

    oid: int
    name: str
    command: str
    permissive: bool
    roles: tuple[int, ...]
    using: str | None
    check: str | None


def of_relation(cursor: Cursor, database: int, relation: int) -> list[Policy]:
    policy_rows = rows(
        cursor,
        "SELECT oid, polname, polcmd, polpermissive, polroles, polqual, polwithcheck FROM hg.pg_policy WHERE dbid = ? AND polrelid = ?"
        " ORDER BY polname",
        [database, relation],
    )
    return [
        Policy(oid, name, command, permissive, tuple(roles), using, check)
        for oid, name, command, permissive, roles, using, check in policy_rows
    ]


def remove(cursor: Cursor, database: int, oid: int) -> None:
    delete(cursor, "pg_policy", dbid=database, oid=oid)
    delete(cursor, "pg_description", dbid=database, objoid=oid, classoid=3256)
