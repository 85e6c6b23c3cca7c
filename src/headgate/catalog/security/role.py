"""Roles (pg_authid) and their membership (pg_auth_members)."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import datetime

from headgate.catalog.physical import Cursor, delete, insert, run, update
from headgate.catalog.security import stored_setting
from headgate.catalog.security.rights import one, rows
from headgate.errors import PostgresError, existing

READ_ALL_SETTINGS, READ_ALL_STATS, SIGNAL_BACKEND = 3374, 3375, 4200
"""The oids of pg_read_all_settings, pg_read_all_stats and pg_signal_backend."""
READ_ALL_DATA, WRITE_ALL_DATA = 6181, 6182
"""The oids of pg_read_all_data and pg_write_all_data."""

READ_CHANGES, READ_CHANGES_NAME = 9800, "headgate_read_changes"
"""The oid and the name of headgate's own predefined role. Its members may read published changes by SQL."""


@dataclass(frozen=True)
class Role:
    """A role. `verifier` is the stored form of the password, or None. `valid_until` is in UTC, without a time zone."""

    oid: int
    name: str
    superuser: bool = False
    inherit: bool = True
    create_role: bool = False
    create_database: bool = False
    can_login: bool = False
    replication: bool = False
    bypass_rls: bool = False
    connection_limit: int = -1
    verifier: str | None = None
    valid_until: datetime | None = None


_COLUMNS = (
    "oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconnlimit,"
    " rolpassword, rolvaliduntil"
)


def lookup(cursor: Cursor, name: str) -> Role | None:
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_authid WHERE rolname = ?", [name])
    return None if row is None else Role(*row)


def find(cursor: Cursor, oid: int) -> Role | None:
    row = one(cursor, f"SELECT {_COLUMNS} FROM hg.pg_authid WHERE oid = ?", [oid])
    return None if row is None else Role(*row)


def get(cursor: Cursor, name: str) -> Role:
    """Return the role with this name. Raise 42704 if it does not exist."""
    return existing(lookup(cursor, name), "42704", f'role "{name}"')


def create(cursor: Cursor, role: Role) -> Role:
    """Create a role. Raise 42939 for a reserved name, 42710 for a name in use."""
    refuse_reserved(role.name)
    if lookup(cursor, role.name) is not None:
        raise PostgresError("42710", f'role "{role.name}" already exists')
    insert(cursor, "pg_authid", **_row(role))
    return role


def refuse_reserved(name: str, detail: str = 'Role names starting with "pg_" are reserved.') -> None:
    """Raise 42939 for a name that is reserved for built-in roles."""
    if name.startswith("pg_"):
        raise PostgresError("42939", f'role name "{name}" is reserved', detail=detail)


def change(cursor: Cursor, role: Role) -> None:
    """Write all attributes of the role with this oid."""
    values = _row(role)
    update(cursor, "pg_authid", {"oid": values.pop("oid")}, **values)


def drop(cursor: Cursor, oid: int) -> None:
    """Delete a role and its memberships. The caller has checked that nothing depends on it."""
    run(cursor, "DELETE FROM hg.pg_auth_members WHERE roleid = ? OR member = ?", [oid, oid])
    stored_setting.forget_role(cursor, oid)
    delete(cursor, "pg_authid", oid=oid)


def grant(cursor: Cursor, role: int, member: int, grantor: int, *, admin: bool = False) -> bool:
    """Grant membership of a role [WITH ADMIN OPTION]. Return False if the member already has it (AddRoleMems)."""
    membership = one(cursor, "SELECT admin_option FROM hg.pg_auth_members WHERE roleid = ? AND member = ?", [role, member])
    if membership is not None and (membership[0] or not admin):
        return False
    if membership is not None:
        delete(cursor, "pg_auth_members", roleid=role, member=member)  # DuckDB lets another transaction delete a row that is updated
    insert(cursor, "pg_auth_members", roleid=role, member=member, grantor=grantor, admin_option=admin)
    return True


def revoke(cursor: Cursor, role: int, member: int, *, admin_only: bool = False) -> bool:
    """Revoke membership of a role [or its ADMIN OPTION]. Return False if the role is not a member (DelRoleMems)."""
    if one(cursor, "SELECT 1 FROM hg.pg_auth_members WHERE roleid = ? AND member = ?", [role, member]) is None:
        return False
    if admin_only:
        update(cursor, "pg_auth_members", {"roleid": role, "member": member}, admin_option=False)
    else:
        delete(cursor, "pg_auth_members", roleid=role, member=member)
    return True


def admins(cursor: Cursor, role: int) -> set[int]:
    """Return the oids of the roles that may grant and revoke membership of a role."""
    return {member for (member,) in rows(cursor, "SELECT member FROM hg.pg_auth_members WHERE roleid = ? AND admin_option", [role])}


def memberships(cursor: Cursor, oid: int, *, inherited: bool = False) -> set[int]:
    """Return the oids of a role and of all that it is a member of, at any depth. `inherited`: only those whose privileges it inherits."""
    condition = " JOIN hg.pg_authid a ON a.oid = m.member AND a.rolinherit" if inherited else ""
    edges = rows(cursor, f"SELECT m.member, m.roleid FROM hg.pg_auth_members m{condition}")
    role_oids, open_ = {oid}, [oid]
    while open_:
        at = open_.pop()
        for member, role in edges:
            if member == at and role not in role_oids:
                role_oids.add(role)
                open_.append(role)
    return role_oids


def _row(role: Role) -> dict[str, object]:
    return dict(zip(_COLUMNS.split(", "), astuple(role), strict=True))


def make_own(cursor: Cursor) -> None:
    """Create headgate's predefined role, unless it exists or a user has created a role with its name."""
    if one(cursor, "SELECT 1 FROM hg.pg_authid WHERE oid = ? OR rolname = ?", [READ_CHANGES, READ_CHANGES_NAME]) is None:
        insert(cursor, "pg_authid", **_row(Role(READ_CHANGES, READ_CHANGES_NAME)))
